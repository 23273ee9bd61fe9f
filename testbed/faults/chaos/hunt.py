"""From a seed to a verdict, and from a failure to the smallest schedule that reproduces it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.faults.chaos.draw import draw
from testbed.faults.chaos.shrink import Trials, shrink
from testbed.faults.chaos.trial import Bench, Verdict, trial
from testbed.faults.timeline import Planned, parse, schedule, timeline_text
from testbed.lab.up import with_runtime
from testbed.model.document import parse_document

if TYPE_CHECKING:
    from testbed.measure.measure import Measure

_SHOWN = 20
"""Violations in a message."""


class Broken(AssertionError):
    """After these faults, something is not as it was."""


class Hunt:
    """Trials of one run: every one is an event, and what fails is shrunk."""

    def __init__(self, bench: Bench, measure: Measure, *, trials: int, seconds: float) -> None:
        """``trials`` and ``seconds`` bound the shrinking."""
        self._bench = bench
        self._measure = measure
        self._most = trials
        self._seconds = seconds
        self._number = 0

    def draw(self, seed: int, *, seconds: float, kinds: Iterable[str], most: int) -> Verdict:
        """Draw a schedule by ``seed`` and try it. Raises as ``go``."""
        plan = with_runtime(self._bench.plan, self._bench.runtime)
        return self.go(f"seed-{seed}", draw(plan, seed, seconds=seconds, kinds=kinds, most=most))

    def go(self, name: str, planned: Sequence[Planned]) -> Verdict:
        """Try a schedule. ``Broken`` tells what is wrong afterwards, with the smallest timeline that does it."""
        text = timeline_text(planned)
        print(f"{name}: {len(planned)} faults\n{text}", flush=True)
        (self._measure.path / f"schedule-{name}.yaml").write_text(text)
        self._measure.event("chaos", phase="schedule", name=name, timeline=text)
        with self._measure.step(name, faults=len(planned)):
            verdict = self._try(planned)
        if verdict.violations:
            raise Broken(self._explain(name, planned, verdict))
        return verdict

    def _try(self, planned: Sequence[Planned]) -> Verdict:
        self._number += 1
        self._measure.progress.update("trials", self._number - 1, self._number, f"{len(planned)} faults")
        verdict = trial(self._bench, planned)
        taken = sum(one.injected is not None for one in verdict.done)
        self._measure.event(
            "chaos",
            phase="trial",
            number=self._number,
            faults=len(planned),
            taken=taken,
            left_out=len(verdict.done) - taken,
            violations=[str(violation) for violation in verdict.violations],
        )
        self._measure.progress.update("trials", self._number, self._number)
        return verdict

    def _explain(self, name: str, planned: Sequence[Planned], verdict: Verdict) -> str:
        """What is wrong, and the smallest schedule that fails in a way that this one failed in."""
        last = verdict

        def fails(part: Sequence[Planned]) -> bool:
            nonlocal last
            found = self._try(part)
            if failed := bool(found.kinds & verdict.kinds):
                last = found
            return failed

        trials = Trials(fails, self._most, self._seconds)
        # Those that were left out too: one that was tried and did not take may have left something.
        reproduced = self._most > 0 and trials(planned)
        small = shrink(planned, trials) if reproduced else planned
        text = timeline_text(small)
        (self._measure.path / "timeline.yaml").write_text(text)
        kind = "minimal" if reproduced else "not-reproduced"
        self._measure.event("chaos", phase=kind, name=name, trials=trials.number, timeline=text)
        how = (
            f"{len(small)} of {len(planned)} faults are enough, found in {trials.number} trials"
            if reproduced
            else "it did not happen again when the same faults were injected once more"
            if self._most > 0
            else "it was not shrunk"
        )
        if reproduced and not small:
            how = "it happens without any fault"
        shown = last.violations[:_SHOWN]
        words = "\n".join(f"  {violation}" for violation in shown)
        print(f"{name} failed; {how}:\n{text}", flush=True)
        return f"after the faults of {name}:\n{words}\n{how}:\n{text}"


def read_timeline(file: Path) -> list[Planned]:
    """The schedule in a file with a section ``timeline`` that has nothing random. TestbedError if it has none.

    As when it was drawn, a fault that another one is in the way of is left out.
    """
    try:
        document = parse_document(file.read_text())
    except OSError as error:
        raise TestbedError(f"{file} cannot be read: {error.strerror}") from error
    data = document.data if isinstance(document.data, dict) else {}
    written = data.get("timeline")
    entries, problems = parse(written if isinstance(written, list) else [])
    if document.problems or problems or not entries:
        said = "; ".join([one.message for one in document.problems] + [one.message for one in problems])
        raise TestbedError(f"{file} is no timeline: {said or 'it has no entry'}", remedy="see docs/faults.md")
    return [replace(one, drawn=True) for one in schedule(entries, 0)]
