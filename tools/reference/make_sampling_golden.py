"""Goldens of sampling: probabilities after transformers' logits processors, and Philox blocks.

Programs: transformers, torch, randomgen (versions in sampling.provenance.json). Seed: 7.
Rerun:    python -m venv v && v/bin/pip install torch transformers numpy randomgen
          v/bin/python tools/reference/make_sampling_golden.py tests/golden/sampling.json

sampling.json: {"vocab_size", "cases": [...], "philox4x32_10": [...]}. A case holds "name", "logits",
"seen" (ids of prompt and answer), "suppress", "temperature", "top_k" (0 = off), "top_p" (1 = off),
"min_p" (0 = off), "repetition_penalty" (1 = off), and "probs" = softmax in float64 of the scores
left by, in this order: SuppressTokens, RepetitionPenalty, Temperature, TopK, TopP, MinP. Removed ids
have probability 0. Temperature 0 (greedy) has all probability on the first of the largest scores.
As in transformers, top-k keeps every id that ties with the k-th. Where top-p cuts between equal
scores, which of them stay depends on the sort: such a case has "tie_at_cut": true, and only the
sorted probabilities mean something.

A Philox block holds "key" (2 words), "counter" (4 words, the lowest first), "words" (4 words out).
"""

import argparse
import json
import pathlib

import numpy as np
import torch
from randomgen import Philox
from transformers.generation import logits_process as lp

import provenance

SEED = 7
VOCAB = 64
OFF = {"suppress": [], "seen": [], "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
       "repetition_penalty": 1.0}  # fmt: skip
COMBINATIONS = [
    {},
    {"temperature": 0.3}, {"temperature": 0.7}, {"temperature": 2.5}, {"temperature": 0.01},
    {"top_k": 1}, {"top_k": 5}, {"top_k": 40}, {"top_k": 64}, {"top_k": 1000},
    {"top_p": 0.1}, {"top_p": 0.5}, {"top_p": 0.9}, {"top_p": 0.95}, {"top_p": 0.999},
    {"top_p": 1e-6},
    {"min_p": 0.01}, {"min_p": 0.1}, {"min_p": 0.5}, {"min_p": 1.0},
    {"repetition_penalty": 1.2, "seen": [0, 3, 9, 9, 41]},
    {"repetition_penalty": 0.8, "seen": [1, 2, 3, 63]},
    {"repetition_penalty": 5.0, "seen": list(range(64))},
    {"suppress": [0, 17, 63]},
    {"suppress": [5], "repetition_penalty": 1.3, "seen": [5, 6]},
    {"temperature": 0.0},
    {"temperature": 0.0, "suppress": [0, 1, 2, 3], "repetition_penalty": 1.5, "seen": [10, 20, 30]},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 64, "top_p": 0.95},
    {"temperature": 1.5, "top_k": 10, "top_p": 0.5, "min_p": 0.05},
    {"temperature": 0.6, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.1, "seen": [4, 8, 15]},
    {"temperature": 2.0, "top_k": 30, "top_p": 0.99, "min_p": 0.1, "suppress": [7, 8],
     "repetition_penalty": 1.7, "seen": [16, 23, 42]},
]  # fmt: skip


def rows(rng):
    """Named rows of logits: usual, flat, one far ahead, ties, large magnitudes."""
    ties = np.round(rng.standard_normal(VOCAB) * 2)
    flat = np.zeros(VOCAB)
    ahead = rng.standard_normal(VOCAB)
    ahead[12] = 30.0
    return {
        "usual": rng.standard_normal(VOCAB) * 3,
        "ties": ties,
        "flat": flat,
        "ahead": ahead,
        "large": rng.standard_normal(VOCAB) * 40 + 200,
    }


def processors(case):
    chain = []
    if case["suppress"]:
        chain.append(lp.SuppressTokensLogitsProcessor(case["suppress"]))
    if case["repetition_penalty"] != 1.0:
        chain.append(lp.RepetitionPenaltyLogitsProcessor(case["repetition_penalty"]))
    if case["temperature"] not in (0.0, 1.0):
        chain.append(lp.TemperatureLogitsWarper(case["temperature"]))
    if case["temperature"] > 0:
        if case["top_k"]:
            chain.append(lp.TopKLogitsWarper(case["top_k"]))
        if case["top_p"] < 1:
            chain.append(lp.TopPLogitsWarper(case["top_p"]))
        if case["min_p"] > 0:
            chain.append(lp.MinPLogitsWarper(case["min_p"]))
    return chain


def probabilities(case):
    """(probs, whether a kept and a removed id had equal scores before top-p)."""
    ids = torch.tensor([case["seen"]], dtype=torch.long)
    scores = torch.tensor([case["logits"]], dtype=torch.float32)
    tie = False
    for step in processors(case):
        before = scores[0]
        scores = step(ids, scores)
        if isinstance(step, lp.TopPLogitsWarper):
            kept = torch.isfinite(scores[0])
            removed = ~kept & torch.isfinite(before)
            tie = bool(set(before[kept].tolist()) & set(before[removed].tolist()))
    if case["temperature"] == 0.0:
        probs = torch.zeros(VOCAB, dtype=torch.float64)
        probs[int((scores[0] == scores[0].max()).nonzero()[0, 0])] = 1.0
        return probs.tolist(), False
    return torch.softmax(scores[0].double(), dim=-1).tolist(), tie


def philox_blocks(rng):
    cases = [([0, 0], [0, 0, 0, 0]), ([0xFFFFFFFF] * 2, [0xFFFFFFFF] * 4)]
    cases += [(rng.integers(0, 2**32, 2).tolist(), rng.integers(0, 2**32, 4).tolist()) for _ in range(10)]
    blocks = []
    for key, counter in cases:
        # randomgen steps the counter before it makes a block.
        value = sum(word << (32 * i) for i, word in enumerate(counter))
        generator = Philox(
            counter=(value - 1) % (1 << 128), key=key[0] | key[1] << 32, number=4, width=32
        )
        words = [int(word) for word in generator.random_raw(4)]
        blocks.append({"key": key, "counter": counter, "words": words})
    # The known answer of the algorithm's authors for key and counter zero.
    assert blocks[0]["words"] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], blocks[0]
    assert blocks[1]["words"] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD], blocks[1]
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    rng = np.random.default_rng(SEED)
    cases = []
    for number, (name, logits) in enumerate(rows(rng).items()):
        logits = [float(x) for x in logits.astype(np.float32)]
        for i, combination in enumerate(COMBINATIONS):
            if name not in ("usual", "ties") and i % 3 != number % 3 and i not in (0, 25):
                continue  # the other rows take a third of the combinations
            case = OFF | combination | {"name": f"{name}-{i}", "logits": logits}
            case["probs"], tie = probabilities(case)
            if tie:
                case["tie_at_cut"] = True
            cases.append(case)
    record = {"vocab_size": VOCAB, "cases": cases, "philox4x32_10": philox_blocks(rng)}
    lines = ",\n".join(json.dumps(case) for case in cases)
    philox = ",\n".join(json.dumps(block) for block in record["philox4x32_10"])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(
        f'{{"vocab_size": {VOCAB},\n"cases": [\n{lines}\n],\n"philox4x32_10": [\n{philox}\n]}}\n'
    )
    json.loads(out.read_text())
    packages = ["transformers", "torch", "randomgen", "numpy"]
    provenance.write(out.parent, __file__, packages, SEED, name="sampling.provenance.json")
    print(len(cases), "cases,", sum("tie_at_cut" in case for case in cases), "cut inside a tie")


if __name__ == "__main__":
    main()
