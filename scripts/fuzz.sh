#!/usr/bin/env bash
# Builds the libFuzzer targets and runs each for SECONDS (default 60) under ASan and UBSan.
#   scripts/fuzz.sh [SECONDS] [TARGET...]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
source "$here/lib.sh"
need_packages "${BUILD_PACKAGES[@]}" clang-16 libclang-rt-16-dev
seconds="${1:-60}"
[ $# -gt 0 ] && shift

cd "$root"
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$(jobs)" >&2
mapfile -t targets < <(find build/fuzz -name 'fuzz_*' -type f -executable | sort)
for target in "${targets[@]}"; do
  name="$(basename "$target")"; name="${name#fuzz_}"
  [ $# -gt 0 ] && [[ " $* " != *" $name "* ]] && continue
  say "$name, $seconds s"
  mkdir -p "build/fuzz/work/$name" "build/fuzz/findings"
  seeds=(); [ -d "fuzz/corpus/$name" ] && seeds=("fuzz/corpus/$name")
  "$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=25 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$name-" "build/fuzz/work/$name" "${seeds[@]}" 2>&1 | tail -n 12
done
