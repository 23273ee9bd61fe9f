"""Whether a run's figures mean anything: was the machine the bottleneck, did the clients get to work?

A run is valid until something shows otherwise. What is only missing, such as CPU samples, is a note.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from testbed.measure.reader import Event, RunReader, Sample, Step

BUSY = 0.90
"""A machine as busy as this has work waiting: in a queue at 90 % load the mean wait is nine times the service time
(M/M/1), and Tor's many small processes feel it as delay that the topology did not ask for."""
BUSY_SHARE = 0.25
"""The share of a step's CPU samples that may be above ``BUSY``. A burst at the start, when all clients build
circuits at once, is part of the experiment; a quarter of a step is enough to move its median and its byte counts."""
FEWEST_SAMPLES = 3
"""A step with fewer CPU samples than this is not judged by them."""
ONE_CORE = 0.95
"""A process that used as much of one core over a whole step was a bottleneck by itself: tor relays cells in one
thread, so on a machine of many cores this happens long before the machine is busy."""
STARVED_SHARE = 0.10
"""The share of a step's clients that may have got nothing through. Above it the load was not the one asked for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``invalid``: reasons why the figures mean nothing. ``notes``: what a reader should know."""

    invalid: tuple[str, ...]
    notes: tuple[str, ...]


def verdict(run: RunReader) -> Verdict:
    """What the run's writer said and what its data shows, without repetition."""
    invalid, notes = list(run.invalid), list[str]()
    busy = run.samples("cpu_busy")
    processes = _by_node(run.samples("cpu_seconds"))
    downloads: dict[str, list[Event]] = defaultdict(list)
    for event in run.events("download"):
        downloads[str(event.detail.get("step", ""))].append(event)
    for step in run.steps():
        (notes if step.detail.get("counts_only") else invalid).extend(saturation(step, busy))
        invalid += [reason for name, samples in processes.items() for reason in one_core(step, name, samples)]
        if not step.detail.get("expect_failures"):
            reasons, remarks = starvation(step.name, downloads[step.name])
            invalid += reasons
            notes += remarks
        if not step.complete:
            notes.append(f"step {step.name} was cut after {step.seconds:.0f} s")
        if len(_within(step, busy)) < FEWEST_SAMPLES:
            notes.append(f"step {step.name}: too few CPU samples to tell whether the machine was the bottleneck")
    return Verdict(tuple(dict.fromkeys(invalid)), tuple(dict.fromkeys(notes)))


def saturation(step: Step, busy: list[Sample]) -> list[str]:
    """The reason if the machine's CPU was saturated in more than ``BUSY_SHARE`` of the step's samples."""
    values = [sample.value for sample in _within(step, busy)]
    high = [value for value in values if value >= BUSY]
    if len(values) < FEWEST_SAMPLES or len(high) <= BUSY_SHARE * len(values):
        return []
    return [
        f"CPU saturated in step {step.name}: at least {_percent(BUSY)} busy in {_percent(len(high) / len(values))} "
        f"of the samples (mean {_percent(sum(values) / len(values))}; allowed in {_percent(BUSY_SHARE)})"
    ]


def one_core(step: Step, name: str, cpu_seconds: list[Sample]) -> list[str]:
    """The reason if a process used a whole core over the step."""
    inside = _within(step, cpu_seconds)
    if len(inside) < FEWEST_SAMPLES or inside[-1].t <= inside[0].t:
        return []
    used = (inside[-1].value - inside[0].value) / (inside[-1].t - inside[0].t)
    if used < ONE_CORE:
        return []
    return [f"process {name} used {_percent(used)} of one core in step {step.name}: it was the bottleneck by itself"]


def starvation(step: str, downloads: list[Event]) -> tuple[list[str], list[str]]:
    """(reasons, notes): whether clients got nothing through in a step that had downloads."""
    if not downloads:
        return [], []
    ok = [event for event in downloads if event.detail.get("outcome") == "ok"]
    clients = {event.node for event in downloads}
    starved = sorted(clients - {event.node for event in ok})
    if not ok:
        return [f"no download came through in step {step} ({len(downloads)} tried by {len(clients)} clients)"], []
    if not starved:
        return [], []
    names = ", ".join(starved[:5]) + (f" and {len(starved) - 5} more" if len(starved) > 5 else "")
    text = f"clients starved in step {step}: nothing came through for {len(starved)} of {len(clients)} ({names})"
    return ([text], []) if len(starved) > STARVED_SHARE * len(clients) else ([], [text])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _within(step: Step, samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if step.start < sample.t <= step.end]


def _by_node(samples: list[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.node].append(sample)
    return found
