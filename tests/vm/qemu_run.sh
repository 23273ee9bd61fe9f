#!/bin/sh
# qemu_run.sh FOLDER VIRTIOFSD QEMU ARGUMENT...: serves this mount namespace's root over FOLDER/root.sock and starts QEMU.
set -eu
folder=$1 server=$2
shift 2
"$server" --socket-path="$folder/root.sock" -o source=/ -o sandbox=chroot -o cache=always -o no_posix_lock \
    --thread-pool-size=2 >"$folder/virtiofsd" 2>&1 &
tries=0
until [ -S "$folder/root.sock" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 200 ]; then
        echo "virtiofsd has made no socket:"
        cat "$folder/virtiofsd"
        exit 1
    fi
    sleep 0.05
done
exec "$@"
