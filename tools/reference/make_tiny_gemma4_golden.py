"""Tiny random Gemma 4 text models of every shape in every format, with logits and traces.

Programs: transformers, torch, safetensors, mlx, mlx-lm, mlx-vlm, gguf, llama.cpp's converter, quantiser
and library (versions in provenance.json). Seed: 41 and a number by shape (gemma4_shapes.py).
Rerun:    python -m venv v && v/bin/pip install torch transformers safetensors numpy gguf \
              "mlx[cpu]" mlx-lm mlx-vlm
          # llama.cpp: the source and a build of its library, as llama-cpp-python's sdist has them
          LLAMA_CPP_LIB_PATH=BUILD/bin PYTHONPATH=SDIST v/bin/python \
              tools/reference/make_tiny_gemma4_golden.py FULL --llama-cpp SDIST/vendor/llama.cpp
          v/bin/python tools/reference/make_tiny_gemma4_golden.py FULL --select tests/golden/gemma4

The first command writes the full product of shapes and formats into FULL, a folder a checkpoint; the
second copies the covering subset that the repository keeps. --only GLOB restricts the first.

SHAPE-hf-whole is no golden: the decoder of SHAPE-hf-bf16 with small towers, which mlx-vlm converts.
Each other folder SHAPE-FORMAT holds a checkpoint (config.json and safetensors, or model.gguf) and
  ids.npy            int32 [n], longer than the window; with experts, ids at which the router's last
                     chosen score lies GAP or more above the first that is not chosen, in all layers
  logits.npy         float32 [n, vocab_size] of float32 transformers on the weights as the file's own
                     rule dequantises them
  greedy.npy         int32 [12], what greedy decoding appends to ids.npy (Hugging Face files only)
  trace/trace.safetensors  float32 [rows, ...] of every named intermediate, and `rows`: int32 [rows], the
                     positions (all of them in FULL, two in the subset, of Hugging Face files only)
  provenance.json    versions, seed, hashes; embed_scale and its rule; spread of the logits;
                     `runtime`: what the file's own program shows against logits.npy (mean KL over
                     positions, KL(golden || runtime), in nats; share of equal arg-max)
"""

import argparse
import fnmatch
import json
import os
import pathlib
import shutil

import numpy as np
import safetensors.numpy
import torch

import gemma4_convert as convert
import gemma4_reference as reference
import gemma4_shapes as shapes
import gemma4_whole as whole
import provenance

NUM_IDS = 40
NUM_GREEDY = 12
GAP = 0.2
ROWS = [17, 39]  # of the subset: behind every window, and the last
WHY_NOT = {
    "text": "mlx-lm assumes another pattern without layer_types; llama.cpp wants a factor of 0.25",
    "odd": "llama.cpp hard-codes the sources of shared layers; mlx-lm has no rope factor",
}
# mlx-lm does not know old names, and mlx-vlm's loader not the number of weights in a table of e2b.
NO_READER = {("e2b", "mlxvlm-old-3bit-g32")}
# The subset that the repository keeps.
SUBSET = [
    "e2b-hf-bf16", "26b-hf-bf16", "31b-hf-bf16", "text-hf-bf16", "odd-hf-bf16",
    "12b-mlx-5bit-g128", "26b-mlx-3bit-g32", "31b-mlx-2bit-g32", "31b-mlx-6bit-g64",
    "31b-mlx-mixed_3_6", "31b-mlx-mxfp4", "31b-mlx-nvfp4", "31b-mlx-mxfp8",
    "e2b-mlx-4bit-g32", "26b-mlx-4bit-g64", "31b-mlx-8bit-g64",
    "e2b-mlxvlm-4bit-g32", "26b-mlxvlm-4bit-g32", "31b-mlxvlm-8bit-g64", "12b-mlxvlm-mixed_2_6",
    "26b-mlxvlm-old-3bit-g32",
    "e4b-gguf-q4_k_m", "e2b-gguf-q4_0", "26b-gguf-q4_0", "31b-gguf-q8_0", "31b-gguf-f16",
]  # fmt: skip


def router_gap(model, ids_batch):
    """Smallest distance in any layer at the last position of each row of ids; inf without experts."""
    if not getattr(model.config, "enable_moe_block", False):
        return torch.full((len(ids_batch),), float("inf"))
    top = model.config.top_k_experts
    gaps, hooks = [], []

    def hook(_module, _inputs, output):
        scores = output.reshape(*ids_batch.shape, -1)[:, -1].sort(dim=-1, descending=True).values
        gaps.append(scores[:, top - 1] - scores[:, top])

    for layer in model.model.layers:
        hooks.append(layer.router.proj.register_forward_hook(hook))
    with torch.no_grad():
        model.model(ids_batch, use_cache=False)
    for h in hooks:
        h.remove()
    return torch.stack(gaps).amin(dim=0)


def choose_ids(model, seed):
    """BOS and random ids; with experts, of up to 256 candidates the first with a clear gap (else the
    best), in the first place too where BOS has none."""
    generator = torch.Generator().manual_seed(seed)
    if not getattr(model.config, "enable_moe_block", False):
        return [2] + torch.randint(3, shapes.VOCAB, (NUM_IDS - 1,), generator=generator).tolist()
    ids, smallest = [], float("inf")
    while len(ids) < NUM_IDS:
        best, best_id = -1.0, 0
        for _ in range(16):
            candidates = torch.randint(3, shapes.VOCAB, (16, 1), generator=generator)
            if not ids and best < 0:
                candidates[0] = 2
            prefix = torch.tensor(ids, dtype=torch.int64).expand(16, -1)
            gaps = router_gap(model, torch.cat([prefix, candidates], dim=1))
            clear = (gaps >= GAP).nonzero()
            pick = int(clear[0]) if len(clear) else int(gaps.argmax())
            if gaps[pick] > best:
                best, best_id = float(gaps[pick]), int(candidates[pick])
            if best >= GAP:
                break
        smallest = min(smallest, best)
        ids.append(best_id)
    print("  smallest router gap", smallest)
    return ids


def greedy(model, ids):
    """(appended ids, smallest margin between the best and the second)."""
    ids, smallest = list(ids), float("inf")
    for _ in range(NUM_GREEDY):
        best = torch.topk(reference.logits(model, ids)[-1], 2)
        smallest = min(smallest, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[-NUM_GREEDY:], smallest


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows = rows - rows.max(axis=-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


def compare(golden, got):
    p, q = log_softmax(golden), log_softmax(got)
    kl = (np.exp(p) * (p - q)).sum(axis=-1)
    return {
        "mean_kl": float(kl.mean()),
        "max_kl": float(kl.max()),
        "equal_argmax": float((golden.argmax(-1) == got.argmax(-1)).mean()),
    }


def save(path, array, dtype):
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array, dtype=dtype), version=(1, 0))


def write_trace(path, trace, rows):
    path.parent.mkdir(exist_ok=True)
    tensors = {name: value[rows].numpy().astype(np.float32) for name, value in trace.items()}
    tensors["rows"] = np.array(rows, dtype=np.int32)
    safetensors.numpy.save_file({k: np.ascontiguousarray(v) for k, v in sorted(tensors.items())}, path)


def write_golden(out, model, packages, runtime, files, with_greedy, seed):
    """runtime: ids to (logits, with what program)."""
    ids = choose_ids(model, seed)
    logits, trace = reference.run(model, ids)
    logits = logits.numpy()
    assert np.isfinite(logits).all() and logits.std() > 1, logits.std()
    save(out / "ids.npy", ids, "<i4")
    save(out / "logits.npy", logits, "<f4")
    write_trace(out / "trace/trace.safetensors", trace, list(range(len(ids))))
    extra = {}
    if with_greedy:
        appended, margin = greedy(model, ids)
        save(out / "greedy.npy", appended, "<i4")
        extra["smallest_greedy_margin"] = margin
    got, program = runtime(ids)
    shown = compare(logits, got) | {"program": program}
    margin = np.sort(logits, axis=-1)
    print(f"{out.name}: std {logits.std():.2f}", shown, extra, flush=True)
    scale = float(model.model.embed_tokens.embed_scale)
    exact = float(torch.tensor(model.config.hidden_size, dtype=torch.float32).sqrt())
    provenance.write(
        out, "make_tiny_gemma4_golden.py", packages, seed=seed, inputs=files,
        reference="float32 transformers, eager attention and experts",
        embed_scale=scale,
        embed_scale_rule="float32 root" if scale == exact else "root rounded to the table's dtype",
        logits_std=float(logits.std()), runtime=shown,
        smallest_top2_margin=float((margin[:, -1] - margin[:, -2]).min()), **extra,
    )  # fmt: skip


def transformers_bf16(path):
    def run(ids):
        model = reference.load_hf(path).to(torch.bfloat16)
        return reference.logits(model, ids).numpy(), "transformers, bfloat16"

    return run


def mlx_lm(path):
    def run(ids):
        got, how = convert.mlx_logits(path, ids, shapes.VOCAB)
        return got, f"mlx-lm, {how}"

    return run


def mlx_vlm(path):
    def run(ids):
        got = whole.mlx_vlm_logits(path, ids)
        return mlx_lm(path)(ids) if got is None else (got[0], f"mlx-vlm, {got[1]}")

    return run


def llama_cpp_of(path):
    def run(ids):
        got, how = convert.gguf_logits(path, ids)
        return got, f"llama.cpp, {how}"

    return run


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def make_hf(full, shape, seed):
    out = fresh(full / f"{shape}-hf-bf16")
    config = shapes.text_config(shape)
    state = shapes.random_state(shape, reference.empty_model(config))
    shapes.write_hf(shape, state, out)
    files = sorted(out.iterdir())
    shapes.write_tokenizer(out)
    write_golden(out, reference.load_hf(out), ["transformers", "torch", "safetensors", "numpy"],
                 transformers_bf16(out), files, True, seed)


def make_mlx(full, shape, kind, seed):
    out = fresh(full / f"{shape}-{kind}")
    convert.to_mlx(full / f"{shape}-hf-bf16", out, kind, shapes.VOCAB)
    files = sorted(out.iterdir())
    write_golden(out, reference.load_mlx(out), ["transformers", "torch", "mlx", "mlx-lm", "numpy"],
                 mlx_lm(out), files, False, seed)


def make_whole(full, shape):
    """The Hugging Face checkpoint that mlx-vlm converts; no golden."""
    out = fresh(full / f"{shape}-hf-whole")
    config = shapes.text_config(shape)
    whole.write_whole(shape, shapes.random_state(shape, reference.empty_model(config)), out)


def make_mlx_vlm(full, shape, kind, seed):
    out = fresh(full / f"{shape}-{kind}")
    whole.to_mlx_vlm(full / f"{shape}-hf-whole", out, kind)
    files = sorted(f for f in out.iterdir() if not f.name.startswith("tokenizer"))
    packages = ["transformers", "torch", "safetensors", "mlx", "mlx-lm", "mlx-vlm", "numpy"]
    write_golden(out, reference.load_mlx_vlm(out), packages, mlx_vlm(out), files, False, seed)


def make_gguf(full, shape, kind, seed, llama_cpp):
    out = fresh(full / f"{shape}-{kind}")
    path = out / "model.gguf"
    convert.to_gguf(full / f"{shape}-hf-bf16", path, kind, llama_cpp)
    model = reference.load_gguf(path, shapes.text_config(shape))
    write_golden(out, model, ["transformers", "torch", "gguf", "numpy"], llama_cpp_of(path), [path], False,
                 seed)


def select(full, out):
    """Copies the subset; traces of the Hugging Face files, ROWS only."""
    for name in SUBSET:
        to = fresh(out / name)
        for file in sorted((full / name).iterdir()):
            # The index of a single file only repeats its names.
            idle = file.name == "model.safetensors.index.json" and "-mlx" in name
            if file.is_file() and not idle and not file.name.startswith("tokenizer"):
                shutil.copyfile(file, to / file.name)
        if "-hf-" in name:
            tensors = safetensors.numpy.load_file(full / name / "trace/trace.safetensors")
            kept = {k: torch.from_numpy(v) for k, v in tensors.items() if k not in ("rows", "logits")}
            write_trace(to / "trace/trace.safetensors", kept, ROWS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("full", type=pathlib.Path)
    parser.add_argument("--llama-cpp", help="folder of llama.cpp's source; without it no GGUF files")
    parser.add_argument("--only", default="*", help="names SHAPE-FORMAT, a glob")
    parser.add_argument("--select", type=pathlib.Path, help="copy the subset there, make nothing")
    args = parser.parse_args()
    if args.select:
        return select(args.full, args.select)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for shape in sorted(shapes.SHAPES):
        seed = shapes.SEED + sorted(shapes.SHAPES).index(shape)
        wanted = lambda kind: fnmatch.fnmatch(f"{shape}-{kind}", args.only)
        if wanted("hf-bf16"):
            make_hf(args.full, shape, seed)
        if shape in WHY_NOT:
            continue
        for kind in filter(wanted, convert.MLX):
            make_mlx(args.full, shape, kind, seed)
        vlm_kinds = [kind for kind in whole.MLX_VLM if wanted(kind) and (shape, kind) not in NO_READER]
        if vlm_kinds:
            make_whole(args.full, shape)
        for kind in vlm_kinds:
            make_mlx_vlm(args.full, shape, kind, seed)
        for kind in filter(wanted, convert.GGUF if args.llama_cpp else ()):
            make_gguf(args.full, shape, kind, seed, args.llama_cpp)


if __name__ == "__main__":
    main()
