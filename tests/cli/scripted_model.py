"""A model that says what it is told to: the token before decides the next one.

One layer that adds nothing; the embedding is the identity, and the head of a token has a one at the token
that comes before it.
"""
import json
import pathlib
import struct

import mini_tokenizer

NEWLINE = "<0x0A>"


def write(folder, script, chat_template=None):
    """script: {token: [tokens that follow it]}; texts that are no token yet become one."""
    folder = pathlib.Path(folder)
    extra = []
    for texts in script.values():
        extra += [t for t in texts if t not in mini_tokenizer.SPECIAL and t not in extra]
    mini_tokenizer.write(folder, extra=extra)
    vocabulary = json.loads(folder.joinpath("tokenizer.json").read_text())["model"]["vocab"]
    size = (len(vocabulary) + 31) // 32 * 32
    config = {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": len(vocabulary),
        "hidden_size": size, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1,
        "num_key_value_heads": 1, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 512,
        "max_position_embeddings": 16384, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["full_attention"], "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
        "tie_word_embeddings": False, "bos_token_id": 2, "eos_token_id": [1, vocabulary["<turn|>"]], "pad_token_id": 0,
        "dtype": "float32"}
    folder.joinpath("config.json").write_text(json.dumps(config))
    if chat_template is not None:
        folder.joinpath("chat_template.jinja").write_text(chat_template)

    ones = [(i, i) for i in range(len(vocabulary))]
    head = []
    for before, texts in script.items():
        for text in texts:
            head.append((vocabulary[text], vocabulary[before]))
            before = text
    assert len({column for _, column in head}) == len(head), "each token is followed by one other"
    layer = "model.layers.0."
    shapes = {"model.embed_tokens": (len(vocabulary), size), "model.norm": (size,), "lm_head": (len(vocabulary), size)}
    for norm in ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]:
        shapes[layer + norm] = (size,)
    for projection in "qkv":
        shapes[f"{layer}self_attn.{projection}_proj"] = (32, size)
    shapes[layer + "self_attn.o_proj"] = (size, 32)
    shapes[layer + "self_attn.q_norm"] = shapes[layer + "self_attn.k_norm"] = (32,)
    for projection in ["gate", "up"]:
        shapes[f"{layer}mlp.{projection}_proj"] = (32, size)
    shapes[layer + "mlp.down_proj"] = (size, 32)
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, shape in shapes.items():
        tensor = bytearray(4 * shape[0] * (shape[1] if len(shape) > 1 else 1))
        for row, column in {"model.embed_tokens": ones, "lm_head": head}.get(name, []):
            struct.pack_into("<f", tensor, 4 * (row * size + column), 1.0)
        header[name + ".weight"] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(tensor)]}
        data += tensor
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.joinpath("model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder
