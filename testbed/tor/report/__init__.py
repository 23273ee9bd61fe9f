"""Report sections of the same-key onion experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.tor.report import coverage, failover, hsdir_loss, outage, split
from testbed.tor.report import sections as load
from testbed.tor.report.sections import summary_table

if TYPE_CHECKING:
    from testbed.measure.reader import RunReader
    from testbed.report.blocks import Section

__all__ = ["sections", "summary_table"]

_EXPERIMENTS = (split, load, failover, outage, hsdir_loss, coverage)


def sections(run: RunReader) -> list[Section]:
    """The sections of every experiment that the run has steps of."""
    return [section for experiment in _EXPERIMENTS for section in experiment.sections(run)]
