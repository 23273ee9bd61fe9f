"""A lab's containers outlive the engine's restart, where the engine was started by our set-up."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BOX = Path(__file__).with_name("engine_restart_box.py")


@pytest.mark.root
@pytest.mark.engine
@pytest.mark.skipif(shutil.which("dockerd") is None, reason="there is no dockerd on this machine")
def test_containers_outlive_the_engine() -> None:
    """An engine of the test's own, in namespaces that end with it, is ended and killed under a lab: programs run on, no
    packet is lost, and what the engine is needed for works again once it is back."""
    isolated = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
    done = subprocess.run(
        [*isolated, sys.executable, str(BOX)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert done.returncode == 0, done.stdout + done.stderr
    assert steps == [
        "step up",
        "step graceful: program, packets and links go on; exec and new programs work",
        "step kill: the same",
        "step down: nothing is left",
    ]
