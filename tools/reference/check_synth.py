"""Opens what `markbase synth` writes with the formats' own programs and compares what they compute.

Programs: transformers, torch, safetensors, gguf, mlx-lm, llama.cpp (see make_tiny_gemma4_golden.py).
Run:      v/bin/python tools/reference/check_synth.py build/release/markbase SCRATCH

Every tiny size of Gemma 4 is written as hf-bf16, as MLX and as GGUF files. transformers must find
every tensor and no other, its float32 logits must be finite and spread, and mlx-lm's and llama.cpp's
logits of the same file may differ from those of float32 transformers by as much as their rounding
does on any random model: a mean KL of 0.05, 0.5 with experts, where a near tie takes another one.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np

import gemma4_convert as convert
import gemma4_reference as reference
import make_tiny_gemma4_golden as golden

SIZES = ["e2b", "e4b", "12b", "26b-a4b", "31b"]
MLX = ["mlx-bf16", "mlx-2bit-g32", "mlx-3bit-g128", "mlx-4bit-g64", "mlx-5bit-g64", "mlx-6bit-g32", "mlx-8bit-g64"]
GGUF = ["gguf-f32", "gguf-f16", "gguf-bf16", "gguf-q4_0", "gguf-q4_1", "gguf-q5_0", "gguf-q5_1", "gguf-q8_0",
        "gguf-q4_k_s", "gguf-q4_k_m", "gguf-q5_k_m", "gguf-q6_k"]  # fmt: skip
VOCAB = 512
IDS = [2] + [(37 * i) % 400 + 60 for i in range(40)]


def check(name, model, runtime, limit):
    logits = reference.logits(model, IDS).numpy()
    assert np.isfinite(logits).all() and logits.std() > 1, name
    shown = golden.compare(logits, runtime()[0]) if runtime else {"mean_kl": 0.0}
    print(f"{name}: std {logits.std():.2f}, mean KL {shown['mean_kl']:.2g}", flush=True)
    assert shown["mean_kl"] < limit, name


def main():
    binary, scratch = sys.argv[1], pathlib.Path(sys.argv[2])

    def synth(size, kind, out):
        subprocess.run([binary, "synth", f"tiny-{size}", out, "--to", kind, "-q"], check=True, capture_output=True)
        return out

    for size in SIZES:
        limit = 0.5 if "26b" in size else 0.05
        folder = synth(size, "hf-bf16", scratch / f"{size}-hf")
        check(f"{size} hf-bf16", reference.load_hf(folder), None, limit)
        text = reference.text_of(json.loads((folder / "config.json").read_text()))
        for kind in MLX:
            path = synth(size, kind, scratch / f"{size}-{kind}")
            check(f"{size} {kind}", reference.load_mlx(path), lambda: convert.mlx_logits(path, IDS, VOCAB), limit)
        for kind in GGUF:
            path = synth(size, kind, scratch / f"{size}-{kind}.gguf")
            check(f"{size} {kind}", reference.load_gguf(path, text), lambda: convert.gguf_logits(path, IDS), limit)


if __name__ == "__main__":
    main()
