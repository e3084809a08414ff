#!/usr/bin/env bash
# From a bare Debian 12 machine to an answer: installs what is missing, builds, fetches Gemma 3 270M, asks it.
# Run it as often as you like: what is there is not done again.
#   scripts/quickstart.sh ["a prompt"]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(dirname "$here")"
source "$here/lib.sh"
case "${1-}" in
  -h | --help) print_usage "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) usage_error "'$1': no such option; a prompt does not begin with -" ;;
esac
[ $# -le 1 ] || usage_error "'$2': expected one prompt, in quotes"
prompt="${1:-The three primary colours are}"

need_packages "${BUILD_PACKAGES[@]}"

say "building"
cd "$root"
cmake --preset release >/dev/null
cmake --build --preset release -j "$(jobs)" >&2

model="$("$here/fetch_model.sh")"
say "the model's licence notice (terms: $(dirname "$model")/gemma-3-270m.GEMMA_TERMS.html)"
cat "$(dirname "$model")/gemma-3-270m.NOTICE.md" >&2

markbase="$root/build/release/markbase"
say "$markbase run $model -p \"$prompt\" -n 48 --temperature 0"
"$markbase" run "$model" -p "$prompt" -n 48 --temperature 0
