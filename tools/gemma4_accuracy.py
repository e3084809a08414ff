"""Makes docs/gemma4_accuracy.md from what the golden tests measure.

    tools/gemma4_accuracy.py build/ci/tests/test_runtime FULL

FULL: the full product of shapes and formats (tools/reference/make_tiny_gemma4_golden.py). The tests
run on it and write a line a checkpoint; nothing is made where one of them fails.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "docs/gemma4_accuracy.md"
SHAPES = {
    "e2b": "as E2B: per-layer embeddings, shared keys and values, shared layers twice as wide, hidden size 192",
    "e4b": "as E4B: per-layer embeddings, shared keys and values, one width",
    "12b": "as 12B: values made from keys in full layers, one head of keys there, a low soft cap",
    "26b": "as 26B-A4B: experts beside the dense branch, values made from keys in full layers",
    "31b": "as 31B: values made from keys in full layers",
    "text": "a text-only file without `layer_types` and soft cap, half of a head rotated",
    "odd": "sources of shared keys and values in an unusual order, a rope factor",
}

HEAD = """# How exact Gemma 4 is

Made by `tools/gemma4_accuracy.py` from what the tests measure; not to be edited. Tiny random models of every shape, in every
format, against float32 transformers on the weights as the file's own rule dequantises them: {num_files} checkpoints of
{positions} tokens, a window and more. Random weights magnify rounding, so a file is compared with what its own program shows on
it. Published weights have not been run.

| column | is | bound |
| --- | --- | --- |
| kept | in the repository, so `ctest` measures it again and compares; the rest only where the full product is made | |
| traced | backend `ref`: the largest difference of any named intermediate ({fewest} to {most} of them, all positions), in units of the intermediate's rms | 2e-4 |
| logits | the same of the logits | 2e-4 |
| cpu | backend `cpu`: KL(float32 \\|\\| cpu), mean over positions, in nats | next column |
| bound | the file's own program's, 16-bit files; a tenth of it, quantised files; at least 1e-3 | |
| own | what the file's own program shows against the same logits: transformers in BF16, mlx-lm in the dtype of the file (float32 where it cannot multiply unquantised experts otherwise), llama.cpp | |
| equal | positions where the best id of `cpu` is that of float32 | |
| clear | positions where the two best are further apart than the bound allows; there all are equal | |

Largest of all: traced {ref_trace:.1e}, logits {ref_logits:.1e}, cpu {cpu_mean_kl:.1e}. Programs: {programs}.

How to make it again: the header of `tools/reference/make_tiny_gemma4_golden.py` makes the full product in a folder FULL (the
same bytes each time), then `tools/gemma4_accuracy.py build/ci/tests/test_runtime FULL`. Not there: shapes `text` and `odd` in
MLX and GGUF, which those programs do not know.

Where a row does not divide into a type's blocks, the program that writes the file leaves the tensor in another type: llama.cpp
in most tensors of K and IQ4_XS files of every shape but `e4b`, mlx-lm (unquantised) in many at groups of 64 and 128.
"""
COLUMNS = ["checkpoint", "kept", "traced", "logits", "cpu", "bound", "own", "equal", "clear"]


def measure(binary, full):
    """What the tests say of every checkpoint in `full`."""
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "lines"
        env = os.environ | {"MARKBASE_GEMMA4_GOLDENS": str(full), "MARKBASE_GEMMA4_TABLE": str(lines)}
        subprocess.run([binary, "--gtest_filter=Golden/Gemma4*", "--gtest_brief=1"], env=env, check=True)
        return [json.loads(line) for line in lines.read_text().splitlines()]


def shape_of(row):
    return row["golden"].split("-")[0]


def cells(row, kept):
    figures = [f"{row[key]:.1e}" for key in ("ref_trace", "ref_logits", "cpu_mean_kl")]
    bounds = [f"{row[key]:.2e}" for key in ("bound", "own_mean_kl")]
    counts = [str(row[key]) for key in ("equal_rows", "clear_rows")]
    return [row["golden"], "yes" if row["golden"] in kept else "no", *figures, *bounds, *counts]


def programs(rows):
    versions = {}
    for row in rows:
        for name in ("transformers", "mlx", "mlx-lm"):
            if name in row["versions"]:
                versions.setdefault(name, set()).add(row["versions"][name])
    listed = [f"{name} {', '.join(sorted(found))}" for name, found in versions.items()]
    return "; ".join([*listed, "llama.cpp of October 2026"])


def render(rows, kept):
    worst = {key: max(row[key] for row in rows) for key in ("ref_trace", "ref_logits", "cpu_mean_kl")}
    (positions,) = {row["rows"] for row in rows}
    counts = [row["intermediates"] for row in rows]
    text = HEAD.format(num_files=len(rows), positions=positions, programs=programs(rows),
                       fewest=min(counts), most=max(counts), **worst)  # fmt: skip
    for shape, meaning in SHAPES.items():
        text += f"\n## {shape}\n\n{meaning[0].upper()}{meaning[1:]}.\n\n"
        text += f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"
        for row in sorted((r for r in rows if shape_of(r) == shape), key=lambda r: r["golden"]):
            text += f"| {' | '.join(cells(row, kept))} |\n"
    return text


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rows = measure(sys.argv[1], pathlib.Path(sys.argv[2]).resolve())
    kept = {path.parent.name for path in ROOT.glob("tests/golden/gemma4/*/ids.npy")}
    missing = kept - {row["golden"] for row in rows}
    if missing:
        sys.exit(f"{sys.argv[2]} lacks {', '.join(sorted(missing))}, which the repository keeps")
    OUT.write_text(render(rows, kept))
    print(f"{OUT}: {len(rows)} checkpoints")


if __name__ == "__main__":
    main()
