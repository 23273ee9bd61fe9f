"""What came of a scenario."""

from __future__ import annotations

from testbed.measure.reader import RunReader
from testbed.pytest_plugin import EXIT_INVALID
from testbed.scenario import Outcome


def the_run(outcome: Outcome) -> RunReader:
    """Its one run, which passed (valid or not: the machine may be busy) and has all of its report."""
    assert outcome.status in (0, EXIT_INVALID)
    (path,) = outcome.runs
    run = RunReader(path)
    assert run.status == "passed", [event.detail for event in run.events("failure")]
    report = (path / "report.html").read_text()
    assert "Traceback" not in report
    assert "could not be made" not in report
    return run
