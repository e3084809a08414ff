"""Tiny Gemma 4 checkpoints in other formats, by the formats' own programs, and what those programs
compute with the result: mlx-lm for MLX files, llama.cpp for GGUF files. gemma4_whole.py has mlx-vlm.
"""

import importlib
import pathlib
import subprocess
import sys

import numpy as np

AFFINE_BITS = (2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
# name: (group_size, bits, mode, recipe, dtype)
MLX = {f"mlx-{b}bit-g{g}": (g, b, "affine", None, "bfloat16") for b in AFFINE_BITS for g in AFFINE_GROUPS}
MLX |= {f"mlx-mixed_{r}": (64, None, "affine", f"mixed_{r}", "bfloat16") for r in ("2_6", "3_4", "3_6", "4_6")}
MLX |= {f"mlx-{m}": (None, None, m, None, "bfloat16") for m in ("mxfp4", "mxfp8", "nvfp4")}
MLX |= {
    "mlx-4bit-g64-f16": (64, 4, "affine", None, "float16"),
    "mlx-6bit-g32-f32": (32, 6, "affine", None, "float32"),
    "mlx-bf16": (None, None, None, None, "bfloat16"),
}
# What llama.cpp's quantiser calls them, None: the converter's own output.
GGUF = {
    "gguf-f16": None, "gguf-bf16": None, "gguf-f32": None, "gguf-q4_0": 2, "gguf-q4_1": 3,
    "gguf-q8_0": 7, "gguf-q5_0": 8, "gguf-q5_1": 9, "gguf-q2_k": 10, "gguf-q3_k_m": 12,
    "gguf-q4_k_s": 14, "gguf-q4_k_m": 15, "gguf-q5_k_m": 17, "gguf-q6_k": 18, "gguf-iq4_nl": 25,
    "gguf-iq4_xs": 30,
}  # fmt: skip


def mlx_model(path, vocab_size):
    import mlx_lm.utils

    return mlx_lm.utils.load_model(pathlib.Path(path), model_config={"vocab_size": vocab_size})


def to_mlx(source, out, kind, vocab_size):
    """Writes an MLX directory; False where the recipe does not apply to the shape."""
    import mlx.core as mx
    import mlx_lm.utils
    from mlx.utils import tree_map

    group_size, bits, mode, recipe, dtype = MLX[kind]
    model, config = mlx_model(source, vocab_size)
    config.pop("vocab_size", None) if "text_config" in config else None
    cast = getattr(mx, dtype)
    model.update(tree_map(lambda v: v.astype(cast) if mx.issubdtype(v.dtype, mx.floating) else v,
                          model.parameters()))
    if mode is not None:
        predicate = None
        if recipe is not None:
            predicate = importlib.import_module("mlx_lm.convert").mixed_quant_predicate_builder(
                recipe, model, group_size
            )
        model, config = mlx_lm.utils.quantize_model(
            model, config, group_size, bits, mode=mode, quant_predicate=predicate
        )
    mlx_lm.utils.save_model(out, model)
    mlx_lm.utils.save_config(config, out / "config.json")


def mlx_logits(path, ids, vocab_size):
    """(logits [n, vocab_size] by mlx-lm, in what it computed): in the file's dtype, or in float32
    where mlx cannot multiply unquantised experts of another on a CPU."""
    import mlx.core as mx
    from mlx.utils import tree_map

    model, _ = mlx_model(path, vocab_size)
    try:
        return np.array(model(mx.array([ids]))[0].astype(mx.float32)), "the dtype of the file"
    except RuntimeError as error:
        assert "only supports float32" in str(error), error
    model.update(tree_map(lambda v: v.astype(mx.float32) if mx.issubdtype(v.dtype, mx.floating) else v,
                          model.parameters()))
    return np.array(model(mx.array([ids]))[0].astype(mx.float32)), "float32"


def to_gguf(source, out, kind, llama_cpp):
    """Writes a GGUF file. llama_cpp: the folder of its source."""
    outtype = kind.removeprefix("gguf-") if GGUF[kind] is None else "f32"
    plain = out if GGUF[kind] is None else out.with_suffix(".plain.gguf")
    command = [sys.executable, f"{llama_cpp}/convert_hf_to_gguf.py", str(source), "--outtype", outtype,
               "--outfile", str(plain), "--model-name", "tiny random gemma4"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    if plain == out:
        return
    import llama_cpp as lib

    params = lib.llama_model_quantize_default_params()
    params.ftype = GGUF[kind]
    params.nthread = 1
    code = lib.llama_model_quantize(str(plain).encode(), str(out).encode(), params)
    plain.unlink()
    assert code == 0, (kind, code)


def gguf_logits(path, ids):
    """(logits [n, vocab_size] by llama.cpp, with what)."""
    import llama_cpp as lib

    model_params = lib.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(str(path).encode(), model_params)
    assert model, path
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.n_threads = params.n_threads_batch = 1
    context = lib.llama_init_from_model(model, params)
    assert context, path
    batch = lib.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
        batch.seq_id[i][0], batch.logits[i] = 0, 1
    assert lib.llama_decode(context, batch) == 0
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    rows = [np.ctypeslib.as_array(lib.llama_get_logits_ith(context, i), (vocab,)).copy() for i in range(len(ids))]
    lib.llama_batch_free(batch)
    lib.llama_free(context)
    lib.llama_model_free(model)
    return np.stack(rows), "its default types"
