"""The Vagrantfile, where the programs that can judge it are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

VAGRANTFILE = Path(__file__).parents[2] / "Vagrantfile"


@pytest.mark.skipif(shutil.which("ruby") is None, reason="ruby is not installed")
def test_vagrantfile_is_ruby() -> None:
    done = subprocess.run(["ruby", "-c", str(VAGRANTFILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed")
def test_vagrantfile_is_valid(tmp_path: Path) -> None:
    """By vagrant itself, without a provider, and with its state in a folder of the test's own."""
    done = subprocess.run(
        ["vagrant", "validate", "--ignore-provider"],
        cwd=VAGRANTFILE.parent,
        env={**os.environ, "VAGRANT_HOME": str(tmp_path), "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_vagrantfile_is_the_recipe_that_is_promised() -> None:
    """The box, its size, and set-up as the only provisioning."""
    text = VAGRANTFILE.read_text()
    for promised in (
        '"debian/bookworm64"',
        "cpus = 2",
        "memory = 4096",
        "-C /vagrant setup",
        '"virtualbox"',
        '"libvirt"',
    ):
        assert promised in text
