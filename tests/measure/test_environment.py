"""What a manifest says of the machine: programs are found on the path, asked once, and again when they change."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testbed.measure.environment import start_ticks, versions, writer, writer_alive
from testbed.plan.types import Plan


def test_programs_are_asked_once_and_again_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    nginx = tmp_path / "nginx"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def install(version: str, changed: int) -> None:
        nginx.write_text(f"#!/bin/sh\necho asked >>{asked}\necho 'nginx version: nginx/{version}' >&2\n")
        nginx.chmod(0o755)
        os.utime(nginx, (changed, changed))

    install("1.2.3", 1000)
    assert [versions(Plan(name="x"))["nginx"] for _ in range(2)] == ["1.2.3"] * 2
    install("1.2.4", 2000)
    assert versions(Plan(name="x"))["nginx"] == "1.2.4"
    assert asked.read_text() == "asked\n" * 2


def test_a_program_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = versions(Plan(name="x"))
    assert (found["tor"], found["nginx"]) == ("", "")
    assert "pydantic" in found["packages"]


def test_a_zombie_writes_no_more() -> None:
    """A run whose writer was killed is `killed`, also while whoever started it has not heard of that."""
    child = subprocess.Popen(["sleep", "60"])
    record = {"pid": child.pid, "start_ticks": start_ticks(child.pid), "boot": writer()["boot"]}
    try:
        assert writer_alive(record)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not writer_alive(record)
    finally:
        child.wait()
