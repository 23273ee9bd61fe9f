#!/bin/bash
# Starts a Docker engine where none answers: by systemd if this machine runs it, else directly.
#   engine.sh          start if needed; exit status 3: this machine has none or cannot run one
#   engine.sh --check  exit status 0 if one answers
set -euo pipefail
# shellcheck source=setup/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

SOCKET=${DOCKER_HOST:-unix:///var/run/docker.sock}
SOCKET=${SOCKET#unix://}
PIDFILE=/var/run/docker.pid
LOG=/var/log/testbed-dockerd.log
SECONDS_TO_START=${TESTBED_DOCKERD_SECONDS:-60}

# Without curl, docker's own client or Python, none of which need be there yet; perl-base always is (Essential).
answers() {
    perl -MIO::Socket::UNIX -e '
        alarm 10;
        my $socket = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit 1;
        print $socket "GET /_ping HTTP/1.0\r\n\r\n";
        exit(<$socket> =~ m{^HTTP/\S+ 200 } ? 0 : 1);' "$SOCKET" 2>/dev/null
}

alive() {
    local state
    state=$(awk '/^State:/ { print $2 }' "/proc/$1/status" 2>/dev/null) || return 1
    case $state in '' | Z | X) return 1 ;; esac
}

# A killed dockerd leaves these behind, and then takes a zombie, or a stranger with the number, for a running containerd.
remove_stale_pidfiles() {
    local file pid
    for file in "$PIDFILE" /var/run/docker/containerd/containerd.pid; do
        [ -f "$file" ] || continue
        pid=$(cat "$file")
        case $(alive "$pid" && cat "/proc/$pid/comm") in
            dockerd | containerd) ;;
            *) rm -f "$file" ;;
        esac
    done
}

# dockerd needs the memory, pids and devices controllers. Where no hierarchy is mounted at all, the unified one is
# mounted; if this kernel has bound the controllers to the old ones, those are.
mount_cgroups() {
    local top=/sys/fs/cgroup controller
    if mountpoint -q "$top"; then return; fi
    if mount -t cgroup2 cgroup2 "$top" 2>/dev/null; then
        if grep -qw memory "$top/cgroup.controllers" && grep -qw pids "$top/cgroup.controllers"; then return; fi
        umount "$top"
    fi
    mount -t tmpfs -o mode=755 cgroup "$top"
    awk '!/^#/ && $4 == 1 { print $1 }' /proc/cgroups | while read -r controller; do
        mkdir -p "$top/$controller"
        mount -t cgroup -o "$controller" cgroup "$top/$controller" || rmdir "$top/$controller"
    done
}

explain_failure() {
    warn "$1"
    if [ -n "${2:-}" ]; then printf '%s\n' "$2" | sed 's/^/  | /' >&2; fi
    exit 3
}

start_by_systemd() {
    local unit=docker.service
    systemctl start "$unit" 2>/dev/null ||
        explain_failure "systemd could not start $unit" "$(journalctl --no-pager --quiet -n 20 -u "$unit" 2>&1)"
}

# Labs give containers no network of Docker's, so this engine gets no bridge and touches no packet filter: the host's
# network stays as it is. But where docker0 exists it belongs to somebody, and --bridge=none would delete it.
start_directly() {
    local -a arguments=(--live-restore) more
    if [ -n "${DOCKER_HOST:-}" ]; then arguments+=(--host "$DOCKER_HOST"); fi
    if [ -n "${TESTBED_DOCKERD_ARGS:-}" ]; then
        read -r -a more <<<"$TESTBED_DOCKERD_ARGS"
        arguments+=("${more[@]}")
    elif ! [ -e /sys/class/net/docker0 ]; then
        arguments+=(--bridge=none --iptables=false --ip-masq=false --ip-forward=false)
    fi
    mount_cgroups || explain_failure "could not mount the control groups, so no Docker engine can run here"
    remove_stale_pidfiles
    LOG_FROM=$(($(wc -l 2>/dev/null <"$LOG" || echo 0) + 1)) # what came before is of no interest if this start fails
    setsid nohup dockerd "${arguments[@]}" >>"$LOG" 2>&1 </dev/null 9>&- &
    DOCKERD=$!
}

new_log() {
    if [ -n "${LOG_FROM:-}" ]; then tail -n "+$LOG_FROM" "$LOG" | tail -n 15; fi
}

wait_until_it_answers() {
    local deadline=$((SECONDS + SECONDS_TO_START))
    until answers; do
        if [ -n "${DOCKERD:-}" ] && ! alive "$DOCKERD"; then
            explain_failure "dockerd ended at once; the end of $LOG:" "$(new_log)"
        fi
        if [ $SECONDS -ge $deadline ]; then
            explain_failure "no Docker engine answered at $SOCKET within $SECONDS_TO_START s; the end of $LOG:" \
                "$(new_log)"
        fi
        sleep 0.1
    done
}

case ${1:-} in
    --check)
        answers
        exit
        ;;
esac
need_root
if answers; then exit 0; fi
command -v dockerd >/dev/null || explain_failure "there is no Docker engine on this machine"
say "starting a Docker engine"
if [ -d /run/systemd/system ]; then start_by_systemd; else start_directly; fi
wait_until_it_answers
