#!/bin/sh
# The first process inside QEMU, in an initial RAM disk that has busybox and the modules for what follows. The root file
# system is the host's, over virtiofs, where all but the job's folder is read-only; this puts an overlay in memory on it
# and runs the job's command. /proc/cmdline has job=FOLDER. The folder's files: command (in), output and status (out).
set -u
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
read -r words </proc/cmdline
for word in $words; do
    case $word in job=*) JOB=${word#job=} ;; esac
done
NEW=/memory/root

while read -r module; do insmod "/modules/$module"; done </modules/order
mount -t virtiofs root /host
mount -t tmpfs -o size=75% memory /memory
mkdir /memory/upper /memory/work $NEW
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay $NEW || echo "no overlay"
mount -t proc proc $NEW/proc
mount -t sysfs sys $NEW/sys
mount -t cgroup2 cgroup $NEW/sys/fs/cgroup
mount -t devtmpfs dev $NEW/dev
mkdir -p $NEW/dev/shm $NEW/dev/pts
for folder in /dev/shm /run; do
    mkdir -p $NEW$folder
    mount -t tmpfs memory $NEW$folder
done
mount -t devpts terminals $NEW/dev/pts
mkdir -p "$NEW$JOB"
mount -o bind "/host$JOB" "$NEW$JOB"

# By exec, so that this stays process 1: the kernel looks for modprobe in that process's root.
# shellcheck disable=SC2016 # $1 and $? are for the inner shell
exec chroot $NEW /bin/sh -c '
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
    ip link set lo up
    modprobe tun
    cd "$1" || echo "no $1"
    sh ./command >output 2>&1 </dev/null
    echo $? >status
    sync
    echo o >/proc/sysrq-trigger
    sleep 9
' init "$JOB"
