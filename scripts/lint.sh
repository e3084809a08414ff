#!/usr/bin/env bash
# clang-format and clang-tidy.
#   scripts/lint.sh [format] [tidy [REV]]     both without arguments; tidy REV: only what changed since REV
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
source "$here/lib.sh"
cd "$root"

check_format() {
  need_packages clang-format git
  say "clang-format"
  git ls-files -z '*.h' '*.cc' '*.c' | xargs -0 clang-format --dry-run --Werror
}

check_tidy() {
  need_packages "${BUILD_PACKAGES[@]}" clang-tidy libbenchmark-dev libgtest-dev
  [ -f build/ci/compile_commands.json ] || cmake --preset ci >/dev/null
  local sources=() kept=() source
  if [ $# -gt 0 ]; then
    mapfile -d '' sources < <(git diff -z --name-only --diff-filter=d "$1" -- 'src/*.cc')
  else
    mapfile -d '' sources < <(git ls-files -z 'src/*.cc')
  fi
  # Kernel units are compiled once per instruction set; one of each is enough.
  for source in "${sources[@]}"; do
    case "$source" in *_avx2.cc | *_avxvnni.cc | *_avx512.cc | *_avx512vnni.cc | *_amx.cc) ;; *) kept+=("$source") ;; esac
  done
  [ ${#kept[@]} -eq 0 ] && return 0
  say "clang-tidy on ${#kept[@]} files"
  printf '%s\0' "${kept[@]}" | xargs -0 -n 4 -P "$(jobs)" clang-tidy -p build/ci --quiet --warnings-as-errors='*'
}

[ $# -gt 0 ] || set -- format tidy
while [ $# -gt 0 ]; do
  case "$1" in
    format) check_format; shift ;;
    tidy)
      shift
      if [ $# -gt 0 ]; then check_tidy "$1"; shift; else check_tidy; fi ;;
    *) die "expected format or tidy, got $1" ;;
  esac
done
