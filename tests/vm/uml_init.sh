#!/bin/sh
# The first process inside User-Mode-Linux. The root file system is the host's, over hostfs and read-only; this puts an
# overlay in memory on it, mounts the job's folder, which alone is the host's and writable, and runs the job's command.
# /proc/cmdline has job=FOLDER. The folder's files: command (in), output and status (out).
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
read -r words </proc/cmdline
for word in $words; do
    case $word in job=*) JOB=${word#job=} ;; esac
done
KERNEL=$(uname -r)
MODULES=/usr/lib/uml/modules/$KERNEL
NEW=/mnt/root

insmod "$MODULES/kernel/fs/overlayfs/overlay.ko"
mount -t tmpfs -o size=75% memory /mnt
mkdir /mnt/upper /mnt/work $NEW
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay $NEW || echo "no overlay"
mount -t proc proc $NEW/proc
mount -t sysfs sys $NEW/sys
mount -t cgroup2 cgroup $NEW/sys/fs/cgroup
mount -t devtmpfs dev $NEW/dev
mkdir -p $NEW/dev/shm $NEW/dev/pts $NEW/dev/net
ln -sfn /proc/self/fd $NEW/dev/fd
for folder in /dev/shm /run; do
    mkdir -p $NEW$folder
    mount -t tmpfs memory $NEW$folder
done
mount -t devpts terminals $NEW/dev/pts
mkdir -p "$NEW$JOB"
mount -t hostfs -o "$JOB" job "$NEW$JOB"
mkdir -p $NEW/usr/lib/modules
ln -sfn "$MODULES" "$NEW/usr/lib/modules/$KERNEL"

# By exec, so that this stays process 1: the kernel looks for modprobe in that process's root.
# shellcheck disable=SC2016 # $1 and $? are for the inner shell
exec chroot $NEW /bin/sh -c '
    JOB=$1
    ip link set lo up
    modprobe tun
    [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
    cd "$JOB" || echo "no $JOB"
    sh ./command >output 2>&1 </dev/null
    echo $? >status
    sync
    echo o >/proc/sysrq-trigger
    sleep 9
' init "$JOB"
