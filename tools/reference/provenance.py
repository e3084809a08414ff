"""Writes the provenance.json that stands beside every golden: program, versions, seed, input hashes.

Used by the make_*_golden.py scripts of this folder; it reads nothing but the files it is given.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import platform


def sha256_of(path):
    """SHA-256 of a file in hex, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def versions(packages):
    """{package: version}, "python" included; a package that is not installed is an error."""
    found = {name: importlib.metadata.version(name) for name in packages}
    found["python"] = platform.python_version()
    return found


def write(out_dir, script, packages, seed=None, inputs=(), name="provenance.json", **extra):
    """Writes out_dir/name. inputs are paths; only their file names and hashes are kept."""
    out_dir = pathlib.Path(out_dir)
    record = {
        "script": f"tools/reference/{pathlib.Path(script).name}",
        "versions": versions(packages),
        "seed": seed,
        "inputs": {pathlib.Path(path).name: sha256_of(path) for path in inputs},
    }
    record.update(extra)
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / name).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
