#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test. Arguments go to ctest (-L unit, -R name).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
source "$here/lib.sh"

need_packages "${BUILD_PACKAGES[@]}" libbenchmark-dev libgtest-dev python3-jsonschema

model="$("$here/fetch_model.sh")"
say "building with tests"
cd "$root"
cmake --preset ci >/dev/null
cmake --build --preset ci -j "$(jobs)" >&2

say "running the tests"
MARKBASE_TEST_MODEL="$model" ctest --preset ci -j "$(jobs)" "$@"
