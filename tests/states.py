"""State folders of tests' own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def own_state() -> Iterator[Path]:
    """A state folder, through which unprivileged programs may pass. Labs in it end with the block."""
    folder = Path(tempfile.mkdtemp(prefix="tbtest-", dir="/var/tmp"))
    folder.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", str(folder))
        try:
            yield folder
        finally:
            from testbed.lab.down import down_all

            patch.setenv("TESTBED_STATE", str(folder))  # another fixture may have come in between and put it back
            down_all()
            shutil.rmtree(folder)
