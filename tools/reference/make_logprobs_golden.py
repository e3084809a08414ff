"""Golden of log probabilities: torch's log_softmax in float64 of float32 logits.

Programs: torch, numpy (versions in logprobs.provenance.json). Seed: 11.
Rerun:    python -m venv v && v/bin/pip install torch numpy
          v/bin/python tools/reference/make_logprobs_golden.py tests/golden/logprobs.json

logprobs.json: {"rows": [...]}. A row holds "name", "logits" and "logprobs" of every id, and
"likeliest": all ids by falling logit, of equal ones the lower id first.
"""

import argparse
import json
import pathlib

import numpy as np
import torch

import provenance

SEED = 11


def rows(rng):
    """Named rows: usual, soft-capped, flat, one far ahead, ties, large magnitudes, far apart."""
    ahead = rng.standard_normal(101)
    ahead[12] = 30.0
    return {
        "usual": rng.standard_normal(257) * 3,
        "capped": 30 * np.tanh(rng.standard_normal(300) * 20 / 30),
        "one": np.array([4.25]),
        "flat": np.zeros(64),
        "ahead": ahead,
        "ties": np.round(rng.standard_normal(128) * 2),
        "large": rng.standard_normal(77) * 40 + 2000,
        "far apart": rng.standard_normal(99) * 1e4,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    lines = []
    for name, logits in rows(np.random.default_rng(SEED)).items():
        logits = torch.tensor(logits, dtype=torch.float32)
        record = {
            "name": name,
            "logits": logits.tolist(),
            "logprobs": torch.log_softmax(logits.double(), dim=-1).tolist(),
            "likeliest": torch.sort(logits, descending=True, stable=True).indices.tolist(),
        }
        lines.append(json.dumps(record))
    out.write_text('{"rows": [\n' + ",\n".join(lines) + "\n]}\n")
    json.loads(out.read_text())
    provenance.write(out.parent, __file__, ["torch", "numpy"], SEED, name="logprobs.provenance.json")


if __name__ == "__main__":
    main()
