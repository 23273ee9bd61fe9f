"""The section ``timeline`` as a subsystem: checked with the topology, kept in the plan, run by who asks for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from testbed.errors import Problem
from testbed.faults.timeline import TimelineSpec, misfits, parse
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan
from testbed.progress import Progress

if TYPE_CHECKING:
    from testbed.faults.runner import Timeline
    from testbed.lab.lab import Lab


class TimelineSection:
    """Faults that a topology brings along. They begin when a scenario or `testbed fault timeline` says so."""

    name = "timeline"
    after: tuple[str, ...] = ()
    spec = TimelineSpec

    def check(self, spec: TimelineSpec, topology: Topology) -> Iterable[Problem]:
        """Whether the faults exist and have the right settings."""
        return parse(spec.root)[1]

    def check_plan(self, spec: TimelineSpec, plan: Plan) -> Iterable[Problem]:
        """Whether what the faults name exists."""
        return misfits(spec.root, plan)

    def expand(self, spec: TimelineSpec, topology: Topology, build: PlanBuilder) -> None:
        """No nodes and links; only the entries, as they are written."""
        build.section("timeline", {"entries": list(spec.root)})

    def start(self, lab: Lab, progress: Progress) -> Timeline:
        """The timeline, which has not begun."""
        return self.attach(lab)

    def attach(self, lab: Lab) -> Timeline:
        """The timeline, which has not begun."""
        from testbed.faults.runner import Timeline

        return Timeline.of(lab)


timeline = TimelineSection()
