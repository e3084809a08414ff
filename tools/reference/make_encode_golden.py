"""Goldens for the encoders: rows of floats and the bytes that independent programs make of them.

GGUF block types and 16-bit floats: the `gguf` package's numpy quantiser. MLX affine: `mlx.core.quantize`
on the CPU, with rows, scales and biases in float32, bfloat16 or half.

Programs: gguf, numpy, mlx (versions in provenance.json). Seed: 20240804.
Rerun:    python -m venv v && v/bin/pip install numpy gguf 'mlx[cpu]'
          v/bin/python tools/reference/make_encode_golden.py tests/golden/quant_encode

Files, all little-endian and without any header:
  rows.f32                            [8, 256] float32, the input; every value is exact in bfloat16 as
                                      well as in half, so that all programs see the same numbers
  <type>.bin                          the blocks of all rows
  mlx_affine_b<B>_g<G>_<dtype>.words.u32, .scales.bin, .biases.bin   dtype f32, f16 or bf16
"""

import argparse
import pathlib

import gguf
import numpy as np

import provenance

SEED = 20240804
ROWS, COLUMNS = 8, 256
TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
AFFINE = [(2, 32), (3, 64), (4, 32), (4, 64), (5, 64), (6, 128), (8, 64)]


def short_mantissa(values):
    """values cut to eight significant bits and to half's normal range: exact in bfloat16 and half."""
    bits = values.astype("<f4").view(np.uint32) & np.uint32(0xFFFF0000)
    cut = bits.view(np.float32)
    return np.where(np.abs(cut) < 2.0**-14, np.float32(0), cut)


def make_rows(rng):
    rows = (rng.standard_normal((ROWS, COLUMNS)) * 0.05).astype(np.float32)
    rows[1, :128] += 0.4  # groups that do not straddle zero
    rows[1, 128:] -= 0.4
    rows[2, :64] = 0.0
    rows[2, 64:128] = 0.25  # groups of one value
    rows[2, 128:192] = -0.75
    rows[3, ::37] *= 20.0  # outliers of both signs
    rows[4] *= 200.0
    rows[5] = rng.integers(-4, 5, COLUMNS) * 0.125  # ties
    rows[6] = np.abs(rows[6])
    rows[7] = -np.abs(rows[7])
    return short_mantissa(rows)


def write_affine(out, rows):
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    dtypes = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
    for bits, group in AFFINE:
        for label, dtype in dtypes.items():
            parts = mx.quantize(mx.array(rows).astype(dtype), group_size=group, bits=bits)
            name = f"mlx_affine_b{bits}_g{group}_{label}"
            (out / f"{name}.words.u32").write_bytes(np.array(parts[0]).astype("<u4").tobytes())
            for part, array in zip(("scales", "biases"), parts[1:]):
                assert array.dtype == dtype
                raw = array if dtype == mx.float32 else array.view(mx.uint16)
                (out / f"{name}.{part}.bin").write_bytes(np.array(raw).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rows = make_rows(np.random.default_rng(SEED))
    (out / "rows.f32").write_bytes(rows.astype("<f4").tobytes())
    for name in TYPES:
        blocks = gguf.quantize(rows, gguf.GGMLQuantizationType[name])
        (out / f"{name.lower()}.bin").write_bytes(np.ascontiguousarray(blocks).tobytes())
    write_affine(out, rows)
    provenance.write(out, __file__, ["gguf", "numpy", "mlx"], seed=SEED)


if __name__ == "__main__":
    main()
