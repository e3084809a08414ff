#!/usr/bin/env bash
# The engine under load for MINUTES (default 30): many clients, little memory, arrivals over time, the batch command,
# everything together. Prints a summary as JSON; fails on any fault: a wrong, lost, repeated or mixed-up token, a value
# that is no number, memory that grows.
#   scripts/stress.sh [MINUTES] [MODEL] [OPTION...]     (options: tests/stress/stress.cc)
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
source "$here/lib.sh"
need_packages "${BUILD_PACKAGES[@]}" libbenchmark-dev libgtest-dev
minutes="${1:-30}"
model="${2:-}"
[ $# -gt 1 ] && shift 2 || shift $#

cd "$root"
cmake --preset ci >/dev/null
cmake --build --preset ci -j "$(jobs)" --target stress markbase >&2
exec build/ci/tests/stress build/ci/markbase --minutes "$minutes" ${model:+--model "$model"} "$@"
