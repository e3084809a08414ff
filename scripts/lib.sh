# Shared by the scripts here: sourced, not run.

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
usage_error() { printf 'error: %s\n' "$*" >&2; exit 2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# `--help` prints the comment at the head of the script.
print_usage() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$1"; }

# Installs the Debian packages that are missing, as root; otherwise prints the one line that does.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    printf 'These Debian packages are missing. Install them and run this script again:\n\n' >&2
    printf '  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n\n' "${missing[*]}" >&2
    exit 1
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

BUILD_PACKAGES=(ca-certificates cmake g++ git libcli11-dev libfmt-dev libspdlog-dev libxxhash-dev ninja-build nlohmann-json3-dev
                python3 python3-pip)

jobs() { nproc; }

# The models folder, and the 270M model in it (fetched once, checked always).
models_dir() {
  local models="${MARKBASE_MODELS:-${HOME:+$HOME/.local/share/markbase/models}}"
  [ -n "$models" ] || die "neither MARKBASE_MODELS nor HOME is set: one of them says where models are"
  printf '%s' "$models"
}
