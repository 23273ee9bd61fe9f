"""A state folder of a benchmark's own, so that its labs and those of others do not meet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_state() -> Iterator[Path]:
    """Labs in the block have their state in a folder that is removed afterwards."""
    before = os.environ.get("TESTBED_STATE")
    with tempfile.TemporaryDirectory(prefix="tbbench-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        path.chmod(0o711)  # unprivileged programs pass
        os.environ["TESTBED_STATE"] = folder
        try:
            yield path
        finally:
            os.environ.pop("TESTBED_STATE")
            if before is not None:
                os.environ["TESTBED_STATE"] = before
