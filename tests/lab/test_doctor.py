"""What the doctor says, of this machine and of machines that lack something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.lab import kernel, programs
from testbed.lab.doctor import Check, diagnose


def named(checks: list[Check]) -> dict[str, Check]:
    found = {check.name: check for check in checks}
    assert len(found) == len(checks)
    return found


def network() -> str:
    return subprocess.run(["ip", "-oneline", "addr"], capture_output=True, text=True, check=True).stdout + str(
        sorted(path.name for path in Path("/proc/sys/net/ipv4/conf").iterdir())
    )


def test_doctor_leaves_nothing_behind() -> None:
    before = network()
    checks = named(diagnose())
    assert network() == before
    for name in ("root", "tor", "nginx", "nsenter", "Python", "clock source", "file limit", "memory", "disk"):
        assert name in checks
    assert all(check.found for check in checks.values())
    assert all(check.remedy for check in checks.values() if check.state != "ok" and "could not" not in check.found)


@pytest.mark.root
def test_kernel_features_are_really_tried() -> None:
    answers = kernel.ask()
    assert answers["namespaces"] == ""
    for feature in ("veth", "bridge", "tbf", "forwarding", "nft", "synproxy"):
        assert answers[feature] == "", feature
    assert "netem" in answers


def test_lack_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "SEARCH_PATH", str(tmp_path))
    checks = named(diagnose())
    assert checks["tor"].state == "lack"
    assert "apt-get install tor" in checks["tor"].remedy
    assert "`tor`" in checks["tor"].found
    assert checks["nginx"].state == "lack"


def test_lack_of_an_engine_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    engine = named(diagnose())["Docker engine"]
    assert engine.state == "warn"
    assert "make setup" in engine.remedy


def test_check_that_fails_becomes_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.lab import doctor

    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: 1 / 0)
    checks = [check for check in diagnose() if check.name == "disk"]
    assert [check.state for check in checks] == ["warn"]


@pytest.mark.root
def test_doctor_without_root() -> None:
    """As another user, where this Python may be read by others."""
    command = [sys.executable, "-c", "from testbed.cli import main; raise SystemExit(main(['doctor', '--json']))"]
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "HOME": "/nonexistent"},
    )
    if "Permission denied" in done.stderr or "No module named" in done.stderr:
        pytest.skip("another user may not read this Python environment")
    checks = {item["name"]: item for item in json.loads(done.stdout)}
    assert checks["root"]["state"] == "warn"
    assert checks["tor"]["state"] == "ok"
    assert done.returncode == (1 if any(item["state"] == "lack" for item in checks.values()) else 0)
