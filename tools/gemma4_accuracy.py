"""Makes docs/gemma4_accuracy.md from what the golden tests measure.

    tools/gemma4_accuracy.py build/ci/tests/test_runtime FULL [--add]

FULL: the full product of shapes and formats (tools/reference/make_tiny_gemma4_golden.py). The tests
run on it and write a line a checkpoint; nothing is made where one of them fails. --add: what FULL
lacks stays as the document has it.
"""

import json
import os
import pathlib
import re
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
| own | what the file's own program shows against the same logits: transformers in BF16, mlx-lm or mlx-vlm in the dtype of the file (float32 where it cannot multiply unquantised experts otherwise), llama.cpp | |
| equal | positions where the best id of `cpu` is that of float32 | |
| clear | positions where the two best are further apart than the bound allows; there all are equal | |

Largest of all: traced {ref_trace:.1e}, logits {ref_logits:.1e}, cpu {cpu_mean_kl:.1e}. Programs: {programs}.

How to make it again: the header of `tools/reference/make_tiny_gemma4_golden.py` makes the full product in a folder FULL (the
same bytes each time), then `tools/gemma4_accuracy.py build/ci/tests/test_runtime FULL`. Not there: shapes `text` and `odd` in
MLX and GGUF, which those programs do not know.

`mlx` files are of mlx-lm, `mlxvlm` files of mlx-vlm: the whole model with its towers, which are set aside. `old` is one with the
names that mlx-vlm's loader takes besides those that it writes. `e2b` files of mlx-vlm at groups of 32 are run by mlx-lm.

Where a row does not divide into a type's blocks, the program that writes the file leaves the tensor in another type: llama.cpp
in most tensors of K and IQ4_XS files of every shape but `e4b`, mlx-lm and mlx-vlm (unquantised) in many at groups of 64 and 128.
"""
COLUMNS = ["checkpoint", "kept", "traced", "logits", "cpu", "bound", "own", "equal", "clear"]


def measure(binary, full):
    """What the tests say of every checkpoint in `full`."""
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "lines"
        env = os.environ | {"MARKBASE_GEMMA4_GOLDENS": str(full), "MARKBASE_GEMMA4_TABLE": str(lines)}
        subprocess.run([binary, "--gtest_filter=Golden/Gemma4*", "--gtest_brief=1"], env=env, check=True)
        return [json.loads(line) for line in lines.read_text().splitlines()]


def cells(row, kept):
    figures = [f"{row[key]:.1e}" for key in ("ref_trace", "ref_logits", "cpu_mean_kl")]
    bounds = [f"{row[key]:.2e}" for key in ("bound", "own_mean_kl")]
    counts = [str(row[key]) for key in ("equal_rows", "clear_rows")]
    return [row["golden"], "yes" if row["golden"] in kept else "no", *figures, *bounds, *counts]


class Said:
    """What the document says, or is going to: the rows {checkpoint: cells}, the fewest and the most
    intermediates, {program: versions}."""

    def __init__(self):
        self.rows, self.intermediates, self.versions = {}, [], {}

    def read(self, text):
        for line in text.splitlines():
            row = [cell.strip() for cell in line.strip("|").split("|")]
            if len(row) == len(COLUMNS) and row[1] in ("yes", "no"):
                self.rows[row[0]] = row
        self.intermediates += map(int, re.search(r"\((\d+) to (\d+) of them", text).groups())
        for name, found in re.findall(r"(transformers|mlx|mlx-lm|mlx-vlm) ([\d., ]+)[;.]", text):
            self.versions[name] = set(found.split(", "))

    def add(self, rows, kept):
        for row in rows:
            self.rows[row["golden"]] = cells(row, kept)
            self.intermediates.append(row["intermediates"])
            for name in ("transformers", "mlx", "mlx-lm", "mlx-vlm"):
                if name in row["versions"]:
                    self.versions.setdefault(name, set()).add(row["versions"][name])

    def programs(self):
        listed = [f"{name} {', '.join(sorted(found))}" for name, found in self.versions.items()]
        return "; ".join([*listed, "llama.cpp of October 2026"])

    def render(self, positions):
        worst = {key: max(float(row[COLUMNS.index(name)]) for row in self.rows.values())
                 for key, name in (("ref_trace", "traced"), ("ref_logits", "logits"), ("cpu_mean_kl", "cpu"))}
        text = HEAD.format(num_files=len(self.rows), positions=positions, programs=self.programs(),
                           fewest=min(self.intermediates), most=max(self.intermediates), **worst)  # fmt: skip
        for shape, meaning in SHAPES.items():
            text += f"\n## {shape}\n\n{meaning[0].upper()}{meaning[1:]}.\n\n"
            text += f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"
            for name in sorted(name for name in self.rows if name.split("-")[0] == shape):
                text += f"| {' | '.join(self.rows[name])} |\n"
        return text


def main():
    adds = sys.argv[3:] == ["--add"]
    if len(sys.argv) != 3 and not adds:
        sys.exit(__doc__)
    rows = measure(sys.argv[1], pathlib.Path(sys.argv[2]).resolve())
    kept = {path.parent.name for path in ROOT.glob("tests/golden/gemma4/*/ids.npy")}
    said = Said()
    if adds:
        said.read(OUT.read_text())
    said.add(rows, kept)
    missing = kept - set(said.rows)
    if missing:
        sys.exit(f"{sys.argv[2]} lacks {', '.join(sorted(missing))}, which the repository keeps")
    (positions,) = {row["rows"] for row in rows}
    OUT.write_text(said.render(positions))
    print(f"{OUT}: {len(said.rows)} checkpoints, {len(rows)} of them measured")


if __name__ == "__main__":
    main()
