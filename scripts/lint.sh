#!/usr/bin/env bash
# clang-format on every source, clang-tidy on every source that changed since REV (all without a REV).
#   scripts/lint.sh [REV]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
source "$here/lib.sh"
need_packages "${BUILD_PACKAGES[@]}" clang-format clang-tidy libbenchmark-dev libgtest-dev

cd "$root"
say "clang-format"
git ls-files -z '*.h' '*.cc' | xargs -0 clang-format --dry-run --Werror

[ -f build/ci/compile_commands.json ] || cmake --preset ci >/dev/null
if [ $# -gt 0 ]; then
  mapfile -d '' sources < <(git diff -z --name-only --diff-filter=d "$1" -- 'src/*.cc')
else
  mapfile -d '' sources < <(git ls-files -z 'src/*.cc')
fi
# Kernel units are compiled once per instruction set; one of each is enough.
kept=()
for source in "${sources[@]}"; do
  case "$source" in *_avx2.cc | *_avxvnni.cc | *_avx512.cc | *_avx512vnni.cc | *_amx.cc) ;; *) kept+=("$source") ;; esac
done
[ ${#kept[@]} -eq 0 ] && exit 0
say "clang-tidy on ${#kept[@]} files"
printf '%s\0' "${kept[@]}" | xargs -0 -n 4 -P "$(jobs)" clang-tidy -p build/ci --quiet --warnings-as-errors='*'
