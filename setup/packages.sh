#!/bin/bash
# Installs the packages of packages.txt that this machine lacks, and nothing else. Starts no service but Docker's.
set -euo pipefail
# shellcheck source=setup/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root

LIST=$ROOT/setup/packages.txt
LOG=/var/log/testbed-setup.log
LEAST_TOR=0.4.8
LEAST_PYTHON=3.11
POLICY=/usr/sbin/policy-rc.d
SAVED=$POLICY.before-testbed

present() {
    case $1 in
        ensurepip) /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null ;;
        /*) compgen -G "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

# missing GROUP: the packages of a group whose program is absent
missing() {
    local group package shown
    while read -r group package shown; do
        if [ "$group" = "$1" ] && ! present "$shown"; then echo "$package"; fi
    done <"$LIST"
}

# offered PACKAGE...: whether there are any, and the package lists that are here have them all. Some architectures and
# distributions do not, and would otherwise fetch new lists at every set-up.
offered() {
    [ $# -gt 0 ] && command -v apt-cache >/dev/null || return 1
    local package
    for package; do apt-cache show "$package" >/dev/null 2>&1 || return 1; done
}

# The installation of a package must start no tor, nginx and so on beside those of the labs, and Docker is left to
# engine.sh, which can also start it where the package's own script fails. Debian asks policy-rc.d before it starts a
# service (invoke-rc.d(8)); ours says no to these and asks the one that was there about all others.
forbid_services() {
    if [ -e "$POLICY" ]; then mv "$POLICY" "$SAVED"; fi
    cat >"$POLICY" <<POLICY
#!/bin/sh
# made by testbed's set-up for the time of one installation
for word; do
    case \${word%.*} in --*) ;; tor|tor@*|nginx|knot|bird|haproxy|docker|containerd) exit 101 ;; *) break ;; esac
done
if [ -x $SAVED ]; then exec $SAVED "\$@"; fi
exit 0
POLICY
    chmod 755 "$POLICY"
}

restore_policy() {
    if [ -e "$POLICY" ] && grep -q "made by testbed's set-up" "$POLICY"; then rm -f "$POLICY"; fi
    if [ -e "$SAVED" ]; then mv "$SAVED" "$POLICY"; fi
}

# Nor may they start at the next boot. Only called for packages that were not there before.
disable_service() {
    if command -v systemctl >/dev/null; then
        systemctl --quiet disable "$1.service" >/dev/null 2>&1 || warn "could not disable the service $1"
    elif command -v update-rc.d >/dev/null; then
        update-rc.d "$1" disable >/dev/null 2>&1 || warn "could not disable the service $1"
    fi
}

# disable_new PACKAGE...: the services of those packages that bring one
disable_new() {
    local package
    for package; do
        case $package in
            tor | knot | haproxy) disable_service "$package" ;;
            nginx-light) disable_service nginx ;;
            bird2) disable_service bird ;;
        esac
    done
}

# What apt says goes to a log, of which the end is shown if it fails.
apt_get() {
    printf '\n%s apt-get %s\n' "$(date --iso-8601=seconds)" "$*" >>"$LOG"
    DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -o DPkg::Lock::Timeout=300 \
        -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold "$@" >>"$LOG" 2>&1 </dev/null || {
        tail -n 15 "$LOG" | sed 's/^/  | /' >&2
        return 1
    }
}

# install_packages PACKAGE...: all or nothing; never at the price of removing something
install_packages() {
    say "installing $*"
    apt_get install --yes --no-install-recommends --no-remove "$@"
}

tor_version() {
    tor --version | sed -n 's/^Tor version \([0-9.]*[0-9]\).*/\1/p' | head -n 1
}

check_versions() {
    local python tor offered
    python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    version_at_least "$python" "$LEAST_PYTHON" ||
        die "/usr/bin/python3 is $python; $LEAST_PYTHON or newer is needed" "use Debian 12, Ubuntu 24.04 or newer"
    tor=$(tor_version)
    if ! version_at_least "${tor:-0}" "$LEAST_TOR"; then
        offered=$(apt-cache madison tor 2>/dev/null | awk -F'|' -v least="$LEAST_TOR" \
            '{ gsub(/ /, "", $2); if (system("dpkg --compare-versions " $2 " ge " least) == 0) { print $2; exit } }')
        if [ -n "$offered" ]; then
            die "tor is ${tor:-of unknown version}; $LEAST_TOR or newer is needed" "run: apt-get install tor=$offered"
        fi
        die "tor is ${tor:-of unknown version}; $LEAST_TOR or newer is needed, and no configured package source has it" \
            "add your distribution's backports, or the Tor Project's own package repository, and run set-up again"
    fi
}

restore_policy # of a set-up that was killed
mapfile -t base < <(missing base)
mapfile -t engine < <(missing engine)
# A running engine of any make is enough; installing another beside it could fight with it.
if [ ${#engine[@]} -gt 0 ] && [ -S /var/run/docker.sock ] && "$ROOT/setup/engine.sh" --check; then
    engine=()
    present mmdebstrap || engine=(mmdebstrap)
fi
# Debian 13 has the profile loader, which an engine needs where AppArmor is on, in a package of its own.
if [ ${#engine[@]} -gt 0 ] && [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ]; then
    present apparmor_parser || engine+=(apparmor)
fi

mapfile -t extra < <(missing extra)

if [ ${#base[@]} -gt 0 ] || [ ${#engine[@]} -gt 0 ] || offered "${extra[@]}"; then
    command -v apt-get >/dev/null ||
        die "there is no apt-get here, and these are missing: ${base[*]} ${engine[*]}" "install them by hand"
    trap restore_policy EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    forbid_services
    apt_get update || warn "apt-get update failed; going on with the package lists that are here"
    if [ ${#base[@]} -gt 0 ]; then
        install_packages "${base[@]}" || die "could not install ${base[*]}" "see above, and $LOG"
        disable_new "${base[@]}"
    fi
    if [ ${#engine[@]} -gt 0 ] && ! install_packages "${engine[@]}"; then
        warn "could not install ${engine[*]}: no containers; labs can run with --runtime process"
    fi
    if offered "${extra[@]}" && install_packages "${extra[@]}"; then disable_new "${extra[@]}"; fi
fi
mapfile -t extra < <(missing extra)
if [ ${#extra[@]} -gt 0 ]; then
    warn "${extra[*]} could not be had: without gcc delayed links cost more CPU; without user-mode-linux their tests by netem and without haproxy and wrk one bench are left out"
fi
check_versions
