"""Runs a program for which the whole file system is read-only but for one folder: ``confine.py FOLDER PROGRAM...``

Meant to be started in a mount namespace of its own (``unshare --mount``), as root. ``/dev/shm`` and ``/run`` are fresh
ones in memory, which end with the namespace.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys

_MOUNT_SETATTR = 442  # the number is the same on all architectures
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1  # linux/mount.h
_MS_BIND = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, doing: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{doing}: {os.strerror(ctypes.get_errno())}")


def _read_only(path: str, yes: bool, recursive: bool) -> None:
    """mount_setattr(2), Linux 5.12."""
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_RDONLY if yes else 0, 0 if yes else _MOUNT_ATTR_RDONLY, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    done = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, attributes, len(attributes))
    _check(done, f"make {path} {'read-only' if yes else 'writable'}")


def main(folder: str, argv: list[str]) -> int:
    """Confine this process, run the program and return its exit status."""
    _check(_libc.mount(os.fsencode(folder), os.fsencode(folder), None, _MS_BIND, None), f"bind {folder}")
    _read_only("/", True, recursive=True)
    _read_only(folder, False, recursive=False)
    for fresh in ("/dev/shm", "/run"):  # noqa: S108 - mount points
        _check(_libc.mount(b"memory", os.fsencode(fresh), b"tmpfs", 0, None), f"mount {fresh}")
    return subprocess.run(argv, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
