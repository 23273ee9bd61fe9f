"""Where a file system puts the folders of a lab's nodes.

ext4 does not use an inode again within minutes of its removal, and looks for one that it may use from the beginning of
a block group, one by one (fs/ext4/ialloc.c, ``recently_deleted``). After some labs, all in one group, a new file costs
half a millisecond, and a lab of 70 nodes has a thousand. So their folders are spread over groups, as those at the top
of a file system are.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

_GETFLAGS, _SETFLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS (linux/fs.h)
_TOPDIR = 0x00020000  # FS_TOPDIR_FL; ``T`` of chattr(1)
_FLAGS = struct.Struct("l")


def spread(folder: Path) -> None:
    """Have the folders in ``folder`` spread over the disk, where its file system can do that; others do not need it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            (flags,) = _FLAGS.unpack(fcntl.ioctl(descriptor, _GETFLAGS, bytes(_FLAGS.size)))
            fcntl.ioctl(descriptor, _SETFLAGS, _FLAGS.pack(flags | _TOPDIR))
    finally:
        os.close(descriptor)
