#!/bin/bash
# Makes .venv from requirements.lock, unless it is there and made from the same lock by the same Python. Needs no root.
set -euo pipefail
# shellcheck source=setup/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

LOCK=$ROOT/requirements.lock

python_will_do() {
    "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# The distribution's Python first: it is the same for root and for everybody else.
find_python() {
    local candidate
    for candidate in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
        if python_will_do "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python 3.11 or newer with the modules venv and ensurepip was found" \
        "run \`sudo make setup\`, or install python3 and python3-venv"
}

# What .venv is made from: the interpreter, the place (its scripts name it) and the lock; then the project itself.
environment_of() {
    echo "$("$1" -c 'import sys; print(sys.executable, sys.version.split()[0])') $ROOT $(sha256sum <"$LOCK")"
}

project_of() {
    sha256sum <"$ROOT/pyproject.toml"
}

# stamped NAME VALUE: whether that step was done with these inputs
stamped() {
    [ -f "$VENV/.made-from-$1" ] && [ "$(cat "$VENV/.made-from-$1")" = "$2" ]
}

stamp() {
    printf '%s\n' "$2" >"$VENV/.made-from-$1"
    give_to_owner "$VENV/.made-from-$1"
}

pip_install() {
    "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps "$@"
}

make_environment() {
    local remedy="is the Python package index reachable? See pip's message above" builders
    say "making .venv with $1"
    rm -rf --one-file-system "$VENV"
    "$1" -m venv "$VENV"
    # The lock is complete, so nothing is resolved. What is built from source is built with the pinned setuptools.
    mapfile -t builders < <(grep -E '^(setuptools|wheel)==' "$LOCK")
    pip_install "${builders[@]}" || die "could not install ${builders[*]} in .venv" "$remedy"
    pip_install --use-pep517 --no-build-isolation --requirement "$LOCK" ||
        die "could not install the packages of requirements.lock" "$remedy"
}

install_project() {
    local complaints
    pip_install --no-build-isolation --editable "$ROOT" || die "could not install the testbed itself in .venv"
    complaints=$("$VENV/bin/python" -m pip check 2>&1) ||
        die "requirements.lock and pyproject.toml contradict each other: $complaints"
}

python=$(find_python)
environment=$(environment_of "$python")
project=$(project_of)
if ! stamped environment "$environment" || ! "$VENV/bin/python" -c 'import docker, stem' 2>/dev/null; then
    make_environment "$python"
    stamp environment "$environment"
fi
if ! stamped project "$project" || ! "$VENV/bin/python" -c 'import testbed' 2>/dev/null; then
    install_project
    give_to_owner "$VENV"
    stamp project "$project"
fi
