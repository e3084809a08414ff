"""A tiny random Gemma 3 text model as Hugging Face files, with logits, a layer trace and greedy ids.

Programs: transformers, torch, safetensors (versions in provenance.json). Seed: 5.
Rerun:    python -m venv v && v/bin/pip install torch transformers safetensors numpy
          v/bin/python tools/reference/make_tiny_gemma3_golden.py tests/golden

Writes tiny_gemma3_f32/ and tiny_gemma3_bf16/: model.safetensors and config.json, the first with
today's keys (rope_parameters, layer_types), the second with the published models' older keys
(rope_theta, rope_local_base_freq, sliding_window_pattern). The second's weights are the first's
rounded to bfloat16. Both references run in float32; the embedding scale is sqrt(hidden_size) rounded
to the dtype of the embedding tensor. query_pre_attn_scalar differs from head_dim on purpose.

Goldens, .npy version 1.0, little-endian, n = 40 ids (window 16):
  ids.npy                        int32 [n]
  logits.npy                     float32 [n, vocab_size]
  greedy.npy                     int32 [24]: ids that greedy decoding appends to ids.npy
  trace/embedding.npy            float32 [n, hidden_size], scaled
  trace/layer.I.attn.o_proj.npy  float32 [n, hidden_size], attention's output before its norm
  trace/layer.I.mlp.down_proj.npy float32 [n, hidden_size], MLP's output before its norm
  trace/layer.I.output.npy       float32 [n, hidden_size], the residual stream after layer I
  trace/final_norm.npy           float32 [n, hidden_size]
"""

import argparse
import json
import pathlib

import numpy as np
import safetensors.torch
import torch
import transformers

import provenance

SEED = 5
NUM_IDS = 40
NUM_GREEDY = 24
SHAPE = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 24,
    "sliding_window": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "use_cache": True,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}
LAYER_TYPES = ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(7)]
NEW_KEYS = {
    "layer_types": LAYER_TYPES,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "dtype": "float32",
}
OLD_KEYS = {
    "sliding_window_pattern": 6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
}
HEAD = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"}


def random_weights(model, generator):
    """Weights large enough that every layer moves the stream; norms are spread around zero."""
    state = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue  # tied
        noise = torch.randn(tensor.shape, generator=generator)
        scale = 0.3 if name.endswith("norm.weight") else tensor.shape[-1] ** -0.5
        state[name] = noise * (0.1 if "embed_tokens" in name else scale)
    return state


def reference_model(config_path, state, dtype):
    """Float32 model on the given weights, with the embedding scale of their dtype."""
    config = transformers.Gemma3TextConfig.from_pretrained(config_path.parent)
    config._attn_implementation = "eager"
    assert list(config.layer_types) == LAYER_TYPES
    assert config.rope_parameters["full_attention"]["rope_theta"] == 1e6
    assert config.rope_parameters["sliding_attention"]["rope_theta"] == 1e4
    model = transformers.Gemma3ForCausalLM(config).float().eval()
    missing = model.load_state_dict({k: v.float() for k, v in state.items()}, strict=False)
    assert missing.missing_keys == ["lm_head.weight"] and not missing.unexpected_keys
    model.tie_weights()
    scale = torch.tensor(config.hidden_size, dtype=torch.float32).sqrt().to(dtype).float()
    model.model.embed_tokens.embed_scale = scale
    return model


@torch.no_grad()
def run(model, ids):
    """(logits [n, vocab], {trace name: [n, hidden]})."""
    trace = {}

    def keep(name):
        def hook(_module, _inputs, output):
            trace[name] = (output[0] if isinstance(output, tuple) else output)[0].clone()

        return hook

    hooks = [model.model.embed_tokens.register_forward_hook(keep("embedding"))]
    hooks.append(model.model.norm.register_forward_hook(keep("final_norm")))
    for i, layer in enumerate(model.model.layers):
        hooks.append(layer.self_attn.o_proj.register_forward_hook(keep(f"layer.{i}.attn.o_proj")))
        hooks.append(layer.mlp.down_proj.register_forward_hook(keep(f"layer.{i}.mlp.down_proj")))
        hooks.append(layer.register_forward_hook(keep(f"layer.{i}.output")))
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    for name, value in trace.items():
        assert value.shape == (len(ids), model.config.hidden_size), (name, value.shape)
    return logits, trace


def greedy(model, ids):
    """(appended ids, smallest margin between the best and the second): the whole text each step."""
    ids, smallest = list(ids), float("inf")
    for _ in range(NUM_GREEDY):
        with torch.no_grad():
            last = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        best = torch.topk(last, 2)
        smallest = min(smallest, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[-NUM_GREEDY:], smallest


def save(path, array, dtype):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array, dtype=dtype), version=(1, 0))


def write_case(out, state, dtype, keys):
    out.mkdir(parents=True, exist_ok=True)
    config = HEAD | SHAPE | keys
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    state = {name: tensor.to(dtype).contiguous() for name, tensor in state.items()}
    safetensors.torch.save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    model = reference_model(out / "config.json", state, dtype)
    generator = torch.Generator().manual_seed(SEED + 1)
    ids = [2] + torch.randint(3, SHAPE["vocab_size"], (NUM_IDS - 1,), generator=generator).tolist()
    logits, trace = run(model, ids)
    appended, margin = greedy(model, ids)
    save(out / "ids.npy", ids, "<i4")
    save(out / "logits.npy", logits.numpy(), "<f4")
    save(out / "greedy.npy", appended, "<i4")
    for name, value in trace.items():
        save(out / "trace" / f"{name}.npy", value.numpy(), "<f4")
    print(out.name, "logits std", float(logits.std()), "smallest greedy margin", margin, appended)
    provenance.write(
        out,
        __file__,
        ["transformers", "torch", "safetensors", "numpy"],
        seed=SEED,
        inputs=[out / "config.json", out / "model.safetensors"],
        reference_dtype="float32",
        embed_scale=float(model.model.embed_tokens.embed_scale),
        smallest_greedy_margin=margin,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    config = transformers.Gemma3TextConfig(**SHAPE, **NEW_KEYS)
    state = random_weights(
        transformers.Gemma3ForCausalLM(config), torch.Generator().manual_seed(SEED)
    )
    write_case(out / "tiny_gemma3_f32", state, torch.float32, NEW_KEYS)
    write_case(out / "tiny_gemma3_bf16", state, torch.bfloat16, OLD_KEYS)


if __name__ == "__main__":
    main()
