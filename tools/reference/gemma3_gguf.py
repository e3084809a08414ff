"""Float32 Gemma 3 text model of `transformers` with the weights of a GGUF file.

The weights are dequantised by the `gguf` package (numpy), so nothing of ours takes part. Norm
weights lose the 1 that GGUF files have added; the embedding scale is the float32 root of the hidden
size (the rule for GGUF files); attention is the eager one; sliding layers are all but every sixth.
"""

import lzma

import gguf
import numpy as np
import tokenizers
import torch
import transformers

PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def hf_name(name):
    """The transformers name of a GGUF tensor."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    block, number, rest = name.split(".", 2)
    assert block == "blk" and rest.endswith(".weight"), name
    return f"model.layers.{number}.{PER_LAYER[rest[: -len('.weight')]]}.weight"


def config_of(reader):
    def key(name, default=None):
        field = reader.get_field(f"gemma3.{name}")
        return default if field is None else field.contents()

    layers = key("block_count")
    head_dim = key("attention.key_length")
    return transformers.Gemma3TextConfig(
        vocab_size=len(reader.get_field("tokenizer.ggml.tokens").data),
        hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"),
        num_hidden_layers=layers,
        num_attention_heads=key("attention.head_count"),
        num_key_value_heads=key("attention.head_count_kv"),
        head_dim=head_dim,
        query_pre_attn_scalar=head_dim,
        max_position_embeddings=key("context_length"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        sliding_window=key("attention.sliding_window"),
        layer_types=[
            "sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(layers)
        ],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": key("rope.freq_base")},
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": key("rope.freq_base_swa", 10000.0),
            },
        },
        attn_implementation="eager",
    )


def load(path):
    """The model in float32, ready to run; every tensor of the file is used and none is missing."""
    reader = gguf.GGUFReader(path)
    config = config_of(reader)
    with torch.device("meta"):
        model = transformers.Gemma3ForCausalLM(config)
    state = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        if tensor.name.endswith("norm.weight"):
            assert np.array_equal((values - np.float32(1)) + np.float32(1), values), tensor.name
            values = values - np.float32(1)
        state[hf_name(tensor.name)] = torch.from_numpy(np.ascontiguousarray(values))
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    # Buffers are not part of the file: make them anew on the CPU.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    scale = torch.tensor(config.hidden_size, dtype=torch.float32).sqrt()
    model.model.embed_tokens.embed_scale = scale
    assert not any(t.is_meta for t in [*model.parameters(), *model.buffers()])
    assert config._attn_implementation == "eager"
    return model.eval()


def load_tokenizer(path):
    """A `tokenizers` tokenizer from tokenizer.json or tokenizer.json.xz."""
    opener = lzma.open if str(path).endswith(".xz") else open
    with opener(path, "rb") as file:
        return tokenizers.Tokenizer.from_buffer(file.read())


@torch.no_grad()
def hidden_states(model, ids):
    """Final hidden states [num_tokens, hidden_size] after the last norm."""
    return model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]


@torch.no_grad()
def logits(model, hidden):
    """Logits [rows, vocab_size] of some rows of hidden_states()."""
    return model.lm_head(hidden).float()
