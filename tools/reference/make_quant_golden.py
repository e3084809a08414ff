"""Goldens for the block decoders: random valid blocks and their values by independent programs.

GGUF block types: the bytes are random (scales finite, zeros and subnormals among them), the values
are those of the `gguf` package's numpy dequantiser. MLX affine: `mlx.core.quantize` on random
float32 rows and `mlx.core.dequantize` of the result, on the CPU, in float32. MLX float modes: random
words and scale bytes (every finite E4M3 code, exponents from subnormal to 2^116), and their values by
`mlx.core.dequantize` in float32.

Programs: gguf, numpy, mlx (versions in provenance.json). Seed: 20240803.
Rerun:    python -m venv v && v/bin/pip install numpy gguf 'mlx[cpu]'
          v/bin/python tools/reference/make_quant_golden.py tests/golden/quant

Files, all little-endian and without any header; sizes are listed in manifest.json:
  <type>.bin                          the blocks, one after the other
  <type>.f32                          their values, float32
  mlx_affine_b<B>_g<G>.words.u32      [rows, columns * B / 32] uint32
  mlx_affine_b<B>_g<G>.scales.f32     [rows, columns / G] float32, same for .biases.f32
  mlx_affine_b<B>_g<G>.values.f32     [rows, columns] float32
  mlx_<mode>.words.u32                [rows, columns * bits / 32] uint32
  mlx_<mode>.scales.u8                [rows, columns / group] uint8
  mlx_<mode>.values.f32               [rows, columns] float32
"""

import argparse
import json
import pathlib

import gguf
import numpy as np

import provenance

SEED = 20240803
# Offsets of the half-precision fields inside a block (scale and, where there is one, minimum).
HALF_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0],
}  # fmt: skip
PLAIN = ["F16", "BF16"]
# 6 * 2^(252-127) is the largest MXFP4 value that float32 holds.
MLX_EXPONENTS = [0, 1, 2, 3, 60, 100, 113, 119, 126, 127, 128, 135, 200, 243]
MXFP4_EXPONENTS = [0, 1, 2, 3, 100, 119, 126, 127, 128, 135, 200, 252]


def half_scales(rng, count):
    """Finite halves: mostly weights' usual size, both signs, then zero, subnormals, large ones."""
    values = (rng.standard_normal(count) * 0.02).astype(np.float16)
    special = np.array([0.0, -0.0, 6e-8, -3e-6, 5.9e-5, 1.0, -24.5, 300.0], dtype=np.float16)
    values[: min(count, len(special))] = special[:count]
    rng.shuffle(values)
    return values


def random_blocks(rng, name, count):
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    blocks = rng.integers(0, 256, size=(count, size), dtype=np.uint8)
    for offset in HALF_FIELDS.get(name, []):
        blocks[:, offset : offset + 2] = half_scales(rng, count).view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        blocks[:, 0] = np.resize(np.array(MXFP4_EXPONENTS, dtype=np.uint8), count)
    return blocks


def random_plain(rng, name, count):
    """count 16-bit floats with every finite exponent; exponent all ones (inf, NaN) is left out."""
    bits = rng.integers(0, 1 << 16, size=4 * count, dtype=np.uint16)
    mask = {"F16": 0x7C00, "BF16": 0x7F80}[name]
    bits = bits[(bits & mask) != mask][:count]
    bits[:4] = [0x0000, 0x8000, 0x0001, 0x8001]
    return bits.view(np.uint8).reshape(1, -1)


def write_gguf_types(out, rng):
    manifest = {}
    for name in PLAIN + list(HALF_FIELDS) + ["MXFP4"]:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = 512 if name in PLAIN else (16 if elements == 256 else 24)
        raw = random_plain(rng, name, count) if name in PLAIN else random_blocks(rng, name, count)
        values = np.ascontiguousarray(gguf.dequantize(raw, kind), dtype="<f4").reshape(-1)
        assert values.size == elements * count and np.isfinite(values).all(), name
        (out / f"{name.lower()}.bin").write_bytes(raw.tobytes())
        (out / f"{name.lower()}.f32").write_bytes(values.tobytes())
        manifest[name] = {"blocks": count, "block_bytes": size, "block_elements": elements}
    return manifest


def write_mlx_affine(out, rng):
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    manifest = {}
    rows, columns = 3, 256
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            weights = (rng.standard_normal((rows, columns)) * 0.05).astype(np.float32)
            weights[0, :group] += 0.3  # a group that does not straddle zero
            weights[1, :group] = 0.0  # a group of one value
            words, scales, biases = mx.quantize(mx.array(weights), group_size=group, bits=bits)
            values = mx.dequantize(words, scales, biases, group_size=group, bits=bits)
            name = f"mlx_affine_b{bits}_g{group}"
            assert scales.dtype == mx.float32 and values.dtype == mx.float32
            (out / f"{name}.words.u32").write_bytes(np.array(words).astype("<u4").tobytes())
            for part, array in (("scales", scales), ("biases", biases), ("values", values)):
                (out / f"{name}.{part}.f32").write_bytes(np.array(array).astype("<f4").tobytes())
            manifest[name] = {"bits": bits, "group": group, "rows": rows, "columns": columns}
    return manifest


def finite_e4m3(rng, count):
    codes = rng.integers(0, 256, size=count, dtype=np.uint8)
    codes[: min(count, 256)] = np.arange(256, dtype=np.uint8)[:count]
    codes[(codes & 0x7F) == 0x7F] = 0
    rng.shuffle(codes)
    return codes


def write_mlx_float(out):
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    rng = np.random.default_rng(SEED + 1)
    manifest = {}
    rows, columns = 4, 512
    for mode, bits, group in (("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)):
        codes = finite_e4m3(rng, rows * columns * bits // 8)
        if bits == 4:
            codes = rng.integers(0, 256, size=codes.size, dtype=np.uint8)
        words = codes.view("<u4").reshape(rows, columns * bits // 32)
        count = rows * columns // group
        scales = finite_e4m3(rng, count) if mode == "nvfp4" else np.resize(MLX_EXPONENTS, count)
        scales = scales.astype(np.uint8).reshape(rows, columns // group)
        values = mx.dequantize(mx.array(words), mx.array(scales), group_size=group, bits=bits, mode=mode,
                               dtype=mx.float32)  # fmt: skip
        values = np.array(values).astype("<f4")
        assert np.isfinite(values).all(), mode
        (out / f"mlx_{mode}.words.u32").write_bytes(words.tobytes())
        (out / f"mlx_{mode}.scales.u8").write_bytes(scales.tobytes())
        (out / f"mlx_{mode}.values.f32").write_bytes(values.tobytes())
        manifest[mode] = {"bits": bits, "group": group, "rows": rows, "columns": columns}
    return manifest


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    manifest = {"gguf": write_gguf_types(out, rng), "mlx_affine": write_mlx_affine(out, rng)}
    manifest["mlx_float"] = write_mlx_float(out)
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    provenance.write(out, __file__, ["gguf", "numpy", "mlx"], seed=SEED)


if __name__ == "__main__":
    main()
