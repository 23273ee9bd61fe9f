#!/bin/bash
# Removes what set-up and use have made in this folder and on this machine, but for runs, packages and the engine.
set -euo pipefail
# shellcheck source=setup/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ -x "$VENV/bin/testbed" ]; then
    if [ "$(id -u)" = 0 ]; then
        "$VENV/bin/testbed" down --all >&2 || warn "some labs could not be taken down"
        if "$ROOT/setup/engine.sh" --check; then
            "$VENV/bin/testbed" images remove || warn "some images could not be removed"
        fi
    else
        warn "labs and images belong to root and stay; \`sudo make clean\` removes them too"
    fi
fi
cd "$ROOT"
rm -rf --one-file-system .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build ./*.egg-info
find . -name __pycache__ -type d -not -path './.git/*' -not -path './runs/*' -prune -exec rm -rf --one-file-system {} +
