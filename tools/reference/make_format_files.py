#!/usr/bin/env python3
"""Writes small checkpoint files with the `gguf` and `safetensors` PyPI packages, for the readers' tests.

Program: gguf 0.19.0, safetensors 0.8.0, numpy 2.4.6, ml_dtypes 0.6.0. Seed: none, values are counters.
Run: make_format_files.py tests/golden/formats
"""

import json
import pathlib
import sys

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file


def write_gguf(path: pathlib.Path) -> dict:
    w = gguf.GGUFWriter(path, "gemma3")
    w.add_uint8("k.u8", 200)
    w.add_int8("k.i8", -100)
    w.add_uint16("k.u16", 60000)
    w.add_int16("k.i16", -30000)
    w.add_uint32("k.u32", 4000000000)
    w.add_int32("k.i32", -2000000000)
    w.add_uint64("k.u64", 2**63 + 5)
    w.add_int64("k.i64", -(2**62))
    w.add_float32("k.f32", 0.5)
    w.add_float64("k.f64", 1e-300)
    w.add_bool("k.bool", True)
    w.add_string("k.string", "ein Wörtchen ▁")
    w.add_array("k.strings", ["a", "", "▁the"])
    w.add_array("k.ints", [1, -2, 3])
    w.add_array("k.floats", [0.25, -0.5])
    w.add_array("k.bools", [True, False, True])
    tensors = {}

    def add(name, array, qtype=None):
        data = array if qtype is None else gguf.quants.quantize(array, qtype)
        w.add_tensor(name, data, raw_dtype=qtype)
        tensors[name] = {"shape": list(array.shape), "type": qtype.name if qtype else None,
                         "bytes": data.tobytes().hex()}

    base = (np.arange(4 * 256, dtype=np.float32).reshape(4, 256) - 500) / 64
    add("f32", base[:2, :3].copy())
    add("f16", base[:3, :2].astype(np.float16))
    add("stack", np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4))
    add("i32", np.arange(5, dtype=np.int32))
    for q in ("BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        add(q.lower(), base[:2, :64].copy(), getattr(gguf.GGMLQuantizationType, q))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return tensors


def write_safetensors(path: pathlib.Path) -> dict:
    kinds = {
        "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
        "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
        "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_,
    }
    arrays = {"t." + name: np.arange(6).reshape(2, 3).astype(kind) for name, kind in kinds.items()}
    arrays["scalar"] = np.array(1.5, dtype=np.float32)
    arrays["empty"] = np.zeros((0, 4), dtype=np.float32)
    save_file(arrays, path, metadata={"format": "pt"})
    return {name: {"shape": list(a.shape), "type": name[2:] if name.startswith("t.") else "F32",
                   "bytes": a.tobytes().hex()} for name, a in arrays.items()}


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    expected = {"gguf": write_gguf(out / "package.gguf"),
                "safetensors": write_safetensors(out / "package.safetensors")}
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
