"""The tests of links with the kernel's netem under a distribution's kernel in QEMU. Minutes; ``make test-qemu``.

The processor is emulated, so packets are late more often than under User-Mode-Linux.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from inner import ENVIRONMENT, Report, kernel_tests, pytest_command, read_report, selected
from qemu import qemu_lack, run_in_qemu

_ASKED = os.environ.get("TESTBED_QEMU") == "1"
_LACK = qemu_lack() if _ASKED else "only with `make test-qemu`"
pytestmark = [pytest.mark.vm, pytest.mark.skipif(bool(_LACK), reason=_LACK or "-")]

SECONDS = 600


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One boot in which every selected test of this module runs."""
    job = tmp_path_factory.mktemp("qemu")
    environment = {**ENVIRONMENT, "LINK_LATE_MS": "15"}
    outcome = run_in_qemu(pytest_command(job, selected(request)), job, seconds=SECONDS, environment=environment)
    return read_report("QEMU", outcome, job)


@pytest.mark.parametrize("function", kernel_tests())
def test_netem_link(report: Report, function: str) -> None:
    """It has passed inside, in all its variants."""
    report.judge(function)


def test_this_kernel_has_all_that_labs_use(tmp_path: Path) -> None:
    """netem and nftables among them."""
    outcome = run_in_qemu(["python", "-m", "testbed.lab.kernel"], tmp_path, seconds=SECONDS)
    assert outcome.status == 0, outcome.output
    answers = json.loads(outcome.output)
    assert {name for name, reason in answers.items() if reason} == set()
    assert {"netem", "nft"} <= set(answers)
