"""A tiny random Gemma 3 text model as one GGUF file with a small vocabulary, and its logits.

Programs: gguf (writer, quantiser and dequantiser), transformers, torch (versions in
provenance.json). Seed: 9.
Rerun:    python -m venv v && v/bin/pip install torch transformers tokenizers gguf numpy
          v/bin/python tools/reference/make_tiny_gguf_golden.py tests/golden/tiny_gemma3_gguf

tiny.gguf holds Q8_0, Q4_0, Q5_0, F16, BF16 and F32 tensors, norms with the 1 added, and a vocabulary
of 300: <pad> <eos> <bos> <unk>, 256 byte tokens, 40 pieces with falling scores. The reference runs
transformers in float32 on the dequantised weights with the float32 root as embedding scale.

Goldens as in make_tiny_gemma3_golden.py: ids.npy, logits.npy, greedy.npy.
"""

import argparse
import pathlib

import gguf
import numpy as np
import torch

import gemma3_gguf
import make_tiny_gemma3_golden as tiny
import provenance

SEED = 9
HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 64, 7, 4, 2, 16, 300
PIECES = ["\u2581", "e", "t", "a", "o", "n", "h", "i", "s", "r", "d", "l", "u", "th", "he", "in",
          "er", "an", "\u2581t", "\u2581a", "\u2581th", "\u2581the", "re", "on", "at", "en", "nd",
          "\u2581s", "\u2581w", "\u2581an", "\u2581and", "ou", "ing", "c", "m", "w", "f", "g", "y",
          "p"]  # fmt: skip
TYPES = {
    "attn_q": "Q8_0", "attn_k": "Q5_0", "attn_v": "Q8_0", "attn_output": "Q4_0",
    "ffn_gate": "Q4_0", "ffn_up": "F16", "ffn_down": "BF16",
}  # fmt: skip
SHAPES = {
    "attn_q": (HEADS * HEAD_DIM, HIDDEN), "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD_DIM),
    "ffn_gate": (INTERMEDIATE, HIDDEN), "ffn_up": (INTERMEDIATE, HIDDEN),
    "ffn_down": (HIDDEN, INTERMEDIATE),
}  # fmt: skip
NORMS = {
    "attn_norm": HIDDEN, "post_attention_norm": HIDDEN, "ffn_norm": HIDDEN, "post_ffw_norm": HIDDEN,
    "attn_q_norm": HEAD_DIM, "attn_k_norm": HEAD_DIM,
}  # fmt: skip


def add_keys(writer):
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(16)
    writer.add_rope_freq_base(1000000.0)
    writer.add_name("tiny random gemma3")
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{i:02X}>" for i in range(256)] + PIECES
    assert len(tokens) == VOCAB
    kind = gguf.TokenType
    types = [kind.CONTROL] * 3 + [kind.UNKNOWN] + [kind.BYTE] * 256 + [kind.NORMAL] * len(PIECES)
    # A longer piece is merged before a shorter one; equal lengths in the order of the list.
    order = sorted(range(len(PIECES)), key=lambda i: -len(PIECES[i]))
    scores = [0.0] * 260 + [-float(order.index(i)) - 1.0 for i in range(len(PIECES))]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def add_tensors(writer, rng):
    def add(name, values, kind):
        kind = gguf.GGMLQuantizationType[kind]
        data = gguf.quantize(values.astype(np.float32), kind)
        writer.add_tensor(name, data, raw_dtype=kind)

    def norm(size):
        # Coarse enough that taking the 1 away again is exact.
        return 1 + np.round(rng.standard_normal(size) * 0.3 * 256) / 256

    add("token_embd.weight", rng.standard_normal((VOCAB, HIDDEN)) * 0.1, "Q8_0")
    add("output_norm.weight", norm(HIDDEN), "F32")
    for layer in range(LAYERS):
        for part, size in NORMS.items():
            add(f"blk.{layer}.{part}.weight", norm(size), "F32")
        for part, shape in SHAPES.items():
            values = rng.standard_normal(shape) * shape[1] ** -0.5
            add(f"blk.{layer}.{part}.weight", values, TYPES[part])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    path = out / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    add_keys(writer)
    add_tensors(writer, np.random.default_rng(SEED))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = gemma3_gguf.load(path)
    generator = torch.Generator().manual_seed(SEED)
    ids = [2] + torch.randint(4, VOCAB, (tiny.NUM_IDS - 1,), generator=generator).tolist()
    logits, _ = tiny.run(model, ids)
    appended, margin = tiny.greedy(model, ids)
    tiny.save(out / "ids.npy", ids, "<i4")
    tiny.save(out / "logits.npy", logits.numpy(), "<f4")
    tiny.save(out / "greedy.npy", appended, "<i4")
    print("logits std", float(logits.std()), "smallest greedy margin", margin, appended)
    packages = ["gguf", "transformers", "torch", "numpy"]
    provenance.write(
        out, __file__, packages, SEED, [path],
        reference_dtype="float32", embed_scale="float32 square root of hidden_size",
        smallest_greedy_margin=margin,
    )  # fmt: skip


if __name__ == "__main__":
    main()
