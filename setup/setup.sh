#!/bin/bash
# Makes this machine ready: packages, Python environment, Docker engine, container image. What is there is left alone.
# Where no engine can run it warns and goes on: labs then run with --runtime process.
set -euo pipefail
# shellcheck source=setup/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root

# One set-up at a time; the lock is released when this process ends.
exec 9>/run/testbed-setup.lock
flock --wait 1200 9 || die "another set-up has been running for 20 minutes" "wait for it to end"

"$ROOT/setup/packages.sh"
"$ROOT/setup/venv.sh"
"$VENV/bin/python" -m testbed.net.wire.native >/dev/null
"$VENV/bin/python" -m testbed.pool.migrate.native >/dev/null

status=0
"$ROOT/setup/engine.sh" || status=$?
if [ $status = 0 ]; then
    "$VENV/bin/testbed" images build >/dev/null || status=$?
fi
if [ $status != 0 ]; then
    warn "this machine is ready for labs of plain processes only: run them with --runtime process"
fi
