"""The tests of links with the kernel's netem, on a machine whose own kernel need not have it: under User-Mode-Linux.

Each function of tests/links is a test here too. All that are selected run in one boot, one after the other; what a test
shows when it fails is shown in full.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest
from inner import ENVIRONMENT, Report, kernel_tests, pytest_command, read_report, selected
from machine import PROJECT
from uml import run_in_uml, uml_lack

from testbed.errors import WaitTimeout

pytestmark = [pytest.mark.vm, pytest.mark.skipif(bool(uml_lack()), reason=uml_lack() or "-")]

SECONDS = 400


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One boot in which every selected test of this module runs."""
    job = tmp_path_factory.mktemp("uml")
    outcome = run_in_uml(pytest_command(job, selected(request)), job, seconds=SECONDS, environment=ENVIRONMENT)
    return read_report("User-Mode-Linux", outcome, job)


@pytest.mark.parametrize("function", kernel_tests())
def test_netem_link(report: Report, function: str) -> None:
    """It has passed inside, in all its variants."""
    report.judge(function)


def test_what_is_done_inside_stays_inside(tmp_path: Path) -> None:
    """Nothing is written outside the job's folder; exit status and output come out; netem is there."""
    trace = f"testbed-uml-{time.time_ns()}"
    script = f"touch /var/tmp/{trace} {PROJECT}/{trace} && modprobe sch_netem && echo hello >here; echo said; exit 7"
    outcome = run_in_uml(["sh", "-c", f"cd {tmp_path} && {script}"], tmp_path, seconds=60)
    assert (outcome.status, outcome.output) == (7, "said\n")
    assert (tmp_path / "here").read_text() == "hello\n"
    assert not Path("/var/tmp", trace).exists()  # noqa: S108 - only looked at
    assert not (PROJECT / trace).exists()


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """With all processes of the machine, of which User-Mode-Linux has one for each inside."""
    with pytest.raises(WaitTimeout, match="a command under User-Mode-Linux"):
        run_in_uml(["sh", "-c", f"echo begun >{tmp_path}/begun; sleep 600"], tmp_path, seconds=8)
    assert (tmp_path / "begun").exists()
    deadline = time.monotonic() + 30  # the kernel has been told to end them all, and takes its time on a busy machine
    while (left := _command_lines_with(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _command_lines_with(path: Path) -> list[bytes]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            found.append(entry.read_bytes())
    return [line for line in found if os.fsencode(path) in line]
