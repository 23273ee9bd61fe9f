# Shared by the scripts in this folder; sourced, not run.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export ROOT VENV PATH

say() { printf 'setup: %s\n' "$*" >&2; }
warn() { printf 'setup: warning: %s\n' "$*" >&2; }

# die WHAT [REMEDY]
die() {
    printf 'setup: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf '  %s\n' "$2" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" = 0 ] || die "this installs packages and starts a Docker engine, so it needs root" \
        "run as root: sudo make setup"
}

# What set-up makes in the project's folder belongs to whoever owns that folder, also when root made it with sudo.
give_to_owner() {
    [ "$(id -u)" != 0 ] || chown -R --no-dereference --reference="$ROOT" "$@"
}

# version_at_least HAVE WANTED, both dotted numbers
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}
