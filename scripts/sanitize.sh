#!/usr/bin/env bash
# The unit tests under AddressSanitizer + UndefinedBehaviorSanitizer, then under ThreadSanitizer.
#   scripts/sanitize.sh [asan] [tsan]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
source "$here/lib.sh"
need_packages "${BUILD_PACKAGES[@]}" libbenchmark-dev libgtest-dev python3-jsonschema

cd "$root"
[ $# -gt 0 ] || set -- asan tsan
for preset in "$@"; do
  say "$preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$(jobs)" >&2
  ctest --preset "$preset" -j "$(jobs)"
done
