"""The folders of nodes are spread over the disk, where it is one that gains by it."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path

import pytest

from testbed.lab.spread import spread


def flags_of(folder: Path) -> int:
    """The flags that lsattr(1) shows."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(descriptor, 0x80086601, bytes(struct.calcsize("l"))))
    finally:
        os.close(descriptor)
    return int(flags)


def test_ext4(tmp_path: Path) -> None:
    """The kernel keeps the flag T beside those that were there, and folders can be made as before."""
    stat = subprocess.run(["stat", "-f", "--format=%T", tmp_path], capture_output=True, text=True, check=True)
    if stat.stdout.strip() != "ext2/ext3":
        pytest.skip("the folder for temporary files is not on ext4")
    before = flags_of(tmp_path)
    spread(tmp_path)
    assert flags_of(tmp_path) == before | 0x20000
    (tmp_path / "node").mkdir()


def test_others_are_left_alone() -> None:
    """A file system that knows no such flag is no error."""
    spread(Path("/sys"))
