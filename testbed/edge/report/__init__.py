"""Report sections of the edge's scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.edge.report import combined, compare, dns_faults, failover, flood, scale

if TYPE_CHECKING:
    from testbed.measure.reader import RunReader
    from testbed.report.blocks import Section

_EXPERIMENTS = (compare, failover, dns_faults, flood, scale, combined)


def sections(run: RunReader) -> list[Section]:
    """The sections of every experiment that the run has events of."""
    return [section for experiment in _EXPERIMENTS for section in experiment.sections(run)]
