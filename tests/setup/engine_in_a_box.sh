#!/bin/bash
# Run by test_scripts.py in mount, network and pid namespaces that end with this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mount -t proc proc /proc
for folder in /run /var/lib/docker /var/log; do
    mkdir -p "$folder"
    mount -t tmpfs tmpfs "$folder"
done
unset DOCKER_HOST
fail() {
    echo "failed: $*"
    tail -n 30 /var/log/testbed-dockerd.log || true
    exit 1
}

status=0
words=$(TESTBED_DOCKERD_ARGS=--no-such-option setup/engine.sh 2>&1) || status=$?
[ $status = 3 ] || fail "a dockerd that cannot start gave status $status: $words"
[[ $words == *"dockerd ended at once"*no-such-option* ]] || fail "the reason is not in: $words"
echo "step refused: status 3, says why"

setup/engine.sh || fail "first start"
setup/engine.sh --check || fail "no answer"
first=$(cat /run/docker.pid)
[ ! -e /sys/class/net/docker0 ] || fail "docker0 was made"
echo "step first: an engine answers, docker0 was not made"

setup/engine.sh || fail "second call"
[ "$(cat /run/docker.pid)" = "$first" ] || fail "a second dockerd was started"
echo "step second: the same process"

kill -9 "$first" "$(cat /run/docker/containerd/containerd.pid)"
while setup/engine.sh --check; do sleep 0.1; done
sleep 1000 &
printf %s $! >/run/docker/containerd/containerd.pid # the number has gone to a stranger
setup/engine.sh || fail "start after a crash"
setup/engine.sh --check || fail "no answer after a crash"
[ "$(cat /run/docker.pid)" != "$first" ] || fail "the pid file is still the old one"
echo "step crash: another process, stale pid file ignored"
