"""Tiny Gemma 4 checkpoints with their towers, as published, and what mlx-vlm makes of them.

The decoder is that of gemma4_shapes.py, byte for byte; vision and audio towers are transformers' own,
of one layer each, N(0, 1/inputs). Nothing here computes with the towers: a reader of text has to know
their tensors and to set them aside.
"""

import json
import math
import pathlib
import tempfile

import numpy as np
import safetensors.torch
import torch
import transformers

import gemma4_shapes as shapes

VISION = {
    "default_output_length": 280, "global_head_dim": 16, "head_dim": 16, "hidden_size": 32,
    "intermediate_size": 32, "model_type": "gemma4_vision", "num_attention_heads": 2,
    "num_hidden_layers": 1, "num_key_value_heads": 2, "patch_size": 4, "position_embedding_size": 8,
    "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
}  # fmt: skip
AUDIO = {
    "hidden_size": 16, "model_type": "gemma4_audio", "num_attention_heads": 2, "num_hidden_layers": 1,
    "output_proj_dims": 12, "subsampling_conv_channels": [128, 2], "use_clipped_linears": True,
}  # fmt: skip
UNIFIED_VISION = {
    "mm_embed_dim": 32, "mm_posemb_size": 12, "model_type": "gemma4_unified_vision",
    "model_patch_size": 4, "output_proj_dims": 32, "patch_size": 4, "pooling_kernel_size": 1,
}  # fmt: skip
UNIFIED_AUDIO = {"audio_embed_dim": 8, "model_type": "gemma4_unified_audio", "output_proj_dims": 8}
# name: (group_size, bits, mode, recipe, with the names of old)
MLX_VLM = {f"mlxvlm-{b}bit-g{g}": (g, b, "affine", None, False) for b, g in ((4, 32), (4, 64), (8, 64))}
MLX_VLM |= {f"mlxvlm-mixed_{r}": (64, 4, "affine", f"mixed_{r}", False) for r in ("2_6", "4_8")}
MLX_VLM |= {
    "mlxvlm-mxfp4": (None, None, "mxfp4", None, False),
    "mlxvlm-bf16": (None, None, None, None, False),
    "mlxvlm-old-3bit-g32": (32, 3, "affine", None, True),
}
SMALL = {"e2b", "e4b"}  # sizes with ears, and with clipped products


def whole_config(name):
    """config.json of a shape with its towers."""
    config = shapes.hf_config(name)
    if name == "12b":
        return config | {"vision_config": UNIFIED_VISION, "audio_config": UNIFIED_AUDIO}
    vision = VISION | {"standardize": name not in SMALL, "use_clipped_linears": name in SMALL}
    return config | {"vision_config": vision, "audio_config": AUDIO if name in SMALL else None}


def tower_state(name):
    """{stored name: BF16 tensor} of all that is not the decoder, by transformers' own writer."""
    kind = "Gemma4Unified" if name == "12b" else "Gemma4"
    config = getattr(transformers, f"{kind}Config")(**whole_config(name))
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).to(torch.bfloat16)
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        stored = safetensors.torch.load_file(pathlib.Path(directory) / "model.safetensors")
    generator = torch.Generator().manual_seed(shapes.SEED + 100 + sorted(shapes.SHAPES).index(name))
    state = {}
    for key, tensor in sorted(stored.items()):
        if key.startswith("model.language_model."):
            continue
        if key.endswith(("_min", "_max")):  # infinite in a new model
            value = torch.tensor(-8.0 if key.endswith("_min") else 8.0)
        else:
            noise = torch.randn(tensor.shape, generator=generator)
            value = noise / math.sqrt(tensor.shape[-1]) if tensor.dim() > 1 else 1 + 0.25 * noise
        state[key] = value.to(torch.bfloat16)
    return state


def write_whole(name, state, out):
    """config.json, safetensors and tokenizer of a shape with its towers."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(whole_config(name), indent=2, sort_keys=True) + "\n")
    generation = {"bos_token_id": 2, "do_sample": True, "eos_token_id": [1, 5], "pad_token_id": 0,
                  "temperature": 1.0, "top_k": 64, "top_p": 0.95}  # fmt: skip
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    named = {"model.language_model." + key: tensor.contiguous() for key, tensor in state.items()}
    safetensors.torch.save_file(dict(sorted((named | tower_state(name)).items())), out / "model.safetensors",
                                metadata={"format": "pt"})
    shapes.write_tokenizer(out)


def to_mlx_vlm(source, out, kind):
    """Writes an MLX directory of the whole model."""
    import mlx_vlm

    group_size, bits, mode, recipe, old = MLX_VLM[kind]
    mlx_vlm.convert(str(source), str(out), quantize=mode is not None, q_group_size=group_size, q_bits=bits,
                    q_mode=mode or "affine", quant_predicate=recipe)
    (out / "README.md").unlink()  # a card for people
    if old:
        rename_as_of_old(out)


def rename_as_of_old(out):
    """What mlx-vlm's loader takes besides what it writes, all in one: the decoder directly below
    "language_model.", towers below "model.", experts of layer 0 fused and without ".weight" where they
    can be, of layer 1 one tensor each, a quantised projector of pictures, frequencies and clip bounds
    that mean nothing in a decoder; entries of the quantization block without "language_model.", one
    `false`, no mode."""
    import mlx.core as mx

    decoder, experts = "language_model.model.", "experts.switch_glu."
    tensors = mx.load(str(out / "model.safetensors"))
    renamed = {}
    for name, tensor in tensors.items():
        if not name.startswith(decoder):
            renamed["model." + name] = tensor
            continue
        name = "language_model." + name.removeprefix(decoder)
        layer, _, part = name.partition(experts)
        if part and layer.endswith(".layers.0."):
            if part.startswith("up_proj"):
                continue
            if part.startswith("gate_proj"):
                up = tensors[decoder + name.removeprefix("language_model.").replace("gate_proj", "up_proj")]
                tensor, part = mx.concatenate([tensor, up], axis=1), part.replace("gate_proj", "gate_up_proj")
            renamed[f"{layer}experts.{part.removesuffix('.weight')}"] = tensor
        elif part and layer.endswith(".layers.1."):
            renamed |= {f"{layer}experts.{e}.{part}": mx.contiguous(one) for e, one in enumerate(tensor)}
        else:
            renamed[name] = tensor
    projector = "model.embed_vision.embedding_projection"
    width = renamed[projector + ".weight"].shape[-1]
    if width % 32 == 0:
        packed = mx.quantize(renamed[projector + ".weight"], 32, 4)
        renamed |= dict(zip((f"{projector}.{part}" for part in ("weight", "scales", "biases")), packed))
    renamed["language_model.layers.0.self_attn.rotary_emb.inv_freq"] = mx.ones((8,))
    renamed["language_model.layers.0.mlp.up_proj.input_max"] = mx.array(8.0)
    config = json.loads((out / "config.json").read_text())
    block = {}
    for name, value in config["quantization"].items():
        if name != "mode":
            block[name.removeprefix("language_model.")] = value
    block["vision_tower.patch_embedder.input_proj"] = False
    block[projector.removeprefix("model.")] = {"bits": 4, "group_size": 32}
    config["quantization"] = config["quantization_config"] = block
    (out / "config.json").write_text(json.dumps(config, indent=4))
    (out / "model.safetensors.index.json").unlink()
    mx.save_safetensors(str(out / "model.safetensors"), dict(sorted(renamed.items())), {"format": "mlx"})


def mlx_vlm_logits(path, ids):
    """(logits [n, vocab_size] by mlx-vlm's language model, in what it computed), or None where its
    loader cannot read what its converter has written: it takes no module of a number of weights that
    64 does not divide, which no published size has."""
    import mlx.core as mx
    import mlx_vlm.utils
    from mlx.utils import tree_map

    try:
        model = mlx_vlm.utils.load_model(pathlib.Path(path))
    except ValueError as error:
        assert "parameters not in model" in str(error), error
        return None
    try:
        out = model.language_model(mx.array([ids])).logits[0]
        return np.array(out.astype(mx.float32)), "the dtype of the file"
    except RuntimeError as error:
        assert "only supports float32" in str(error), error
    model.update(tree_map(lambda v: v.astype(mx.float32) if mx.issubdtype(v.dtype, mx.floating) else v,
                          model.parameters()))
    return np.array(model.language_model(mx.array([ids])).logits[0]), "float32"
