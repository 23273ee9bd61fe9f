"""Writing files of a run so that a reader, a crash or a full disk never meets half of one."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from testbed.errors import TestbedError

_REMEDY = {
    True: "free some space or choose another folder for runs; what was recorded before is kept",
    False: "look at the folder and its permissions; what was recorded before is kept",
}


class StoreError(TestbedError):
    """The run folder cannot be written any more."""


def store_error(error: Exception, where: Path) -> StoreError:
    """The one message for a folder that takes no more data."""
    full = "disk is full" in str(error) or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT))
    what = "the disk is full" if full else f"cannot write: {error}"
    return StoreError(what, where=str(where), remedy=_REMEDY[full])


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``: a reader sees the old file or the new one. Raises ``StoreError``."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise store_error(error, path) from error


def give_to_invoker(*paths: Path) -> None:
    """Hand what root made under sudo to the user who called it, so that a report can be rebuilt without root."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not (user.isdigit() and group.isdigit()):
        return
    for path in paths:
        with contextlib.suppress(OSError):
            os.chown(path, int(user), int(group), follow_symlinks=False)
