#!/usr/bin/env python3
"""Compares two logits files: GOLDEN.npy and OURS.npy, float32 [num_positions, vocab_size] each.

Prints (or with --json writes to standard output as one object):
  mean_kl, p99_kl, max_kl   KL(softmax(golden) || softmax(ours)) a position, in float64
  top1                      share of positions with the same largest logit
  top1_clear                the same among positions whose golden margin exceeds --margin (0.01)
  max_abs_diff              largest difference of two logits, and where
Rows are read a few at a time from mapped files, so files may be larger than memory.
Exit status: 0, or 1 when a limit of --max-kl, --max-mean-kl, --max-diff or --require-top1 is missed,
2 when the files do not fit together.
"""

import argparse
import json
import sys

import numpy as np

ROWS = 16


def log_softmax(rows):
    rows = rows - rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def compare_rows(golden, ours, margin):
    """Per row: KL, same top-1, clear margin, largest difference and its column."""
    if not np.isfinite(ours).all():
        raise SystemExit("ours holds values that are not finite")
    a, b = golden.astype(np.float64), ours.astype(np.float64)
    log_p, log_q = log_softmax(a), log_softmax(b)
    kl = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    top2 = np.partition(golden, -2, axis=1)[:, -2:]
    same = golden.argmax(axis=1) == ours.argmax(axis=1)
    diff = np.abs(a - b)
    return kl, same, top2[:, 1] - top2[:, 0] > margin, diff.max(axis=1), diff.argmax(axis=1)


def compare(golden, ours, margin, golden_rows=None):
    rows = np.arange(len(golden)) if golden_rows is None else golden_rows
    parts = []
    for start in range(0, len(rows), ROWS):
        picked = rows[start : start + ROWS]
        parts.append(compare_rows(golden[picked], ours[picked], margin))
    kl, same, clear, diff, column = (np.concatenate(part) for part in zip(*parts))
    worst = int(diff.argmax())
    return {
        "positions": len(rows),
        "vocab_size": int(golden.shape[1]),
        "mean_kl": float(kl.mean()),
        "p99_kl": float(np.quantile(kl, 0.99)),
        "max_kl": float(kl.max()),
        "max_kl_position": int(rows[kl.argmax()]),
        "top1": float(same.mean()),
        "top1_clear": float(same[clear].mean()) if clear.any() else 1.0,
        "clear_positions": int(clear.sum()),
        "clear_wrong": [int(i) for i in rows[clear & ~same]],
        "max_abs_diff": float(diff.max()),
        "max_abs_diff_at": [int(rows[worst]), int(column[worst])],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("golden")
    parser.add_argument("ours")
    parser.add_argument("--margin", type=float, default=0.01)
    parser.add_argument("--last", type=int, help="compare only the last N positions")
    parser.add_argument("--max-mean-kl", type=float)
    parser.add_argument("--max-kl", type=float)
    parser.add_argument("--max-diff", type=float)
    parser.add_argument("--require-top1", action="store_true", help="every clear top-1 equal")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    golden, ours = (np.load(path, mmap_mode="r") for path in (args.golden, args.ours))
    if golden.shape != ours.shape or golden.dtype != np.float32 or ours.dtype != np.float32:
        print(f"golden {golden.dtype}{golden.shape}, ours {ours.dtype}{ours.shape}", file=sys.stderr)
        return 2
    rows = np.arange(len(golden))[-args.last :] if args.last else None
    result = compare(golden, ours, args.margin, rows)
    if args.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:16} {value:.6g}" if isinstance(value, float) else f"{key:16} {value}")
    limits = [
        ("mean_kl", args.max_mean_kl), ("max_kl", args.max_kl), ("max_abs_diff", args.max_diff)
    ]  # fmt: skip
    missed = [f"{key} > {limit}" for key, limit in limits if limit is not None and result[key] > limit]
    if args.require_top1 and result["clear_wrong"]:
        missed.append(f"top-1 differs at {result['clear_wrong'][:10]}")
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
