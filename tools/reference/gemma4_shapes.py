"""Tiny random Gemma 4 text models of every shape, written as Hugging Face files.

Shapes, by the published model each is built like (sizes apart):
  e2b       per-layer embeddings, shared K/V, shared layers twice as wide, dead K/V weights of shared
            layers in the file; hidden_size 192, whose root is moved by 1.3e-3 when rounded to BF16
  e4b       the same with one width; every matrix but the per-layer ones 256 wide, for the K formats
  12b       K = V in full layers, one global K/V head, unified architecture, a low soft cap
  26b       K = V, two global K/V heads, experts beside the dense MLP
  31b       K = V, two global K/V heads, in three shards
  text      text only, prefix "model.", no layer_types, no soft cap, half of a head rotated, and a
            num_global_key_value_heads that does not apply
  odd       shared K/V whose sources are not the two last owners in the usual order, twice as wide,
            no per-layer embeddings, a rope factor

Weights: projections N(0, 1/inputs), so every sub-layer moves the stream; norm weights and layer
scalars away from one; q_norm and k_norm such that attention scores have a spread of about 1.5;
embeddings such that logits have a standard deviation of about 2.5; a last norm of both signs, without
which a tied head would answer with the last token whatever the layers do; routers of spread 4.
"""

import json
import math

import safetensors.torch
import torch

import make_tiny_tokenizer_golden as tiny_tokenizer

VOCAB = len(tiny_tokenizer.pieces())
S, F = "sliding_attention", "full_attention"
SEED = 41

BASE = {
    "attention_bias": False, "attention_dropout": 0.0, "attention_k_eq_v": False, "bos_token_id": 2,
    "dtype": "bfloat16", "enable_moe_block": False, "eos_token_id": 1,
    "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 0, "initializer_range": 0.02, "max_position_embeddings": 512,
    "model_type": "gemma4_text", "moe_intermediate_size": None, "num_experts": None,
    "num_global_key_value_heads": None, "num_kv_shared_layers": 0, "pad_token_id": 0,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        F: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        S: {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "tie_word_embeddings": True, "top_k_experts": None, "use_bidirectional_attention": None,
    "use_cache": True, "use_double_wide_mlp": False, "vocab_size": VOCAB,
    "vocab_size_per_layer_input": VOCAB,
}  # fmt: skip

SHAPES = {
    "e2b": {
        "hidden_size": 192, "intermediate_size": 64, "num_hidden_layers": 5,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 32,
        "layer_types": [S, S, F, S, F], "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 32, "sliding_window": 8,
    },
    "e4b": {
        "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "global_head_dim": 128,
        "layer_types": [S, F, S, F], "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 64, "sliding_window": 8,
    },
    "12b": {
        "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 5,
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_global_key_value_heads": 1,
        "head_dim": 16, "global_head_dim": 32, "layer_types": [S, S, F, S, F],
        "attention_k_eq_v": True, "final_logit_softcapping": 6.0, "sliding_window": 12,
        "use_bidirectional_attention": "vision", "model_type": "gemma4_unified_text",
    },
    "26b": {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_global_key_value_heads": 2,
        "head_dim": 16, "global_head_dim": 32, "layer_types": [S, S, S, F],
        "attention_k_eq_v": True, "sliding_window": 12, "use_bidirectional_attention": "vision",
        "enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 32,
    },
    "31b": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_global_key_value_heads": 2,
        "head_dim": 16, "global_head_dim": 32, "layer_types": [S, F, S, F],
        "attention_k_eq_v": True, "sliding_window": 12, "use_bidirectional_attention": "vision",
    },
    "text": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_global_key_value_heads": 1,
        "head_dim": 16, "global_head_dim": 24, "sliding_window": 5,
        "final_logit_softcapping": None,
        "rope_parameters": {
            F: {"partial_rotary_factor": 0.5, "rope_theta": 1000000.0, "rope_type": "proportional"},
            S: {"rope_theta": 10000.0, "rope_type": "default"},
        },
    },
    "odd": {
        "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 7,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32,
        "layer_types": [F, S, F, S, F, S, F], "num_kv_shared_layers": 3,
        "use_double_wide_mlp": True, "sliding_window": 6,
        "rope_parameters": {
            F: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                "rope_type": "proportional", "factor": 2.0},
            S: {"rope_theta": 10000.0, "rope_type": "default"},
        },
    },
}  # fmt: skip

TOKEN_IDS = {
    "audio_token_id": 258881, "boa_token_id": 256000, "boi_token_id": 255999,
    "eoa_token_index": 258883, "eoi_token_id": 258882, "image_token_id": 258880,
    "video_token_id": 258884,
}  # fmt: skip
NO_LAYER_TYPES = {"text"}


def text_config(name):
    """The keys of text_config of a shape."""
    return dict(sorted((BASE | SHAPES[name]).items()))


def hf_config(name):
    """config.json of a shape."""
    text = text_config(name)
    if name == "text":
        return {"architectures": ["Gemma4ForCausalLM"]} | text
    unified = name == "12b"
    architecture = "Gemma4UnifiedForConditionalGeneration" if unified else "Gemma4ForConditionalGeneration"
    return {
        "architectures": [architecture], "audio_config": None, "dtype": "bfloat16",
        "eos_token_id": [1, 5], "model_type": "gemma4_unified" if unified else "gemma4",
        "text_config": text, "tie_word_embeddings": True, "vision_config": None,
    } | TOKEN_IDS  # fmt: skip


def _weight(name, tensor, config, generator):
    """Random values for the tensor of this name in a transformers model."""
    noise = torch.randn(tensor.shape, generator=generator)
    leaf = name.removesuffix(".weight").split(".")[-1]
    if leaf in ("q_norm", "k_norm"):
        spread = math.sqrt(1.5 / math.sqrt(tensor.shape[0]))
        return spread * (1 + 0.25 * noise)
    if name == "norm.weight":
        return noise
    if leaf.endswith("norm") or "layernorm" in leaf:
        return (1.2 if leaf.startswith("post") else 0.8) + 0.25 * noise
    if leaf == "layer_scalar":
        return 0.9 + 0.2 * noise.clamp(-1.5, 1.5)
    if leaf in ("scale", "per_expert_scale"):
        return 1 + 0.2 * noise
    if leaf == "embed_tokens":
        return noise * 2.5 / math.sqrt(config["hidden_size"])
    if leaf == "embed_tokens_per_layer":
        return noise / math.sqrt(config["hidden_size_per_layer_input"])
    if ".router.proj" in name:
        return noise * 4
    return noise / math.sqrt(tensor.shape[-1])


def random_state(name, model):
    """{name without prefix: BF16 tensor} of a model's decoder, the dead weights of e2b included."""
    config = text_config(name)
    generator = torch.Generator().manual_seed(SEED + sorted(SHAPES).index(name))
    state = {}
    for key, tensor in model.model.state_dict().items():
        state[key] = _weight(key, tensor, config, generator).to(torch.bfloat16)
    if name == "e2b":
        source = {S: 1, F: 2}
        for i in range(3, 5):
            for part in ("k_proj", "v_proj", "k_norm"):
                like = state[f"layers.{source[config['layer_types'][i]]}.self_attn.{part}.weight"]
                noise = torch.randn(like.shape, generator=generator)
                state[f"layers.{i}.self_attn.{part}.weight"] = noise.to(torch.bfloat16)
    return state


def write_tokenizer(out):
    """A tokenizer of VOCAB pieces, which the converters want to see."""
    rows = tiny_tokenizer.pieces()
    (out / "tokenizer.json").write_text(
        json.dumps(tiny_tokenizer.tokenizer_json(rows), ensure_ascii=False, indent=0) + "\n"
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>",
        "pad_token": "<pad>", "unk_token": "<unk>", "clean_up_tokenization_spaces": False,
        "add_bos_token": True,
    }  # fmt: skip
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_hf(name, state, out):
    """config.json and safetensors of a shape."""
    out.mkdir(parents=True, exist_ok=True)
    config = hf_config(name)
    if name in NO_LAYER_TYPES:
        config.pop("layer_types", None)
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    prefix = "model." if name == "text" else "model.language_model."
    named = {prefix + key: tensor.contiguous() for key, tensor in sorted(state.items())}
    shards = 3 if name == "31b" else 1
    if shards == 1:
        safetensors.torch.save_file(named, out / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map, total = {}, 0
    keys = list(named)
    for i in range(shards):
        part = {key: named[key] for key in keys[i * len(keys) // shards : (i + 1) * len(keys) // shards]}
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        safetensors.torch.save_file(part, out / file, metadata={"format": "pt"})
        weight_map |= {key: file for key in part}
        total += sum(t.numel() * t.element_size() for t in part.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
