"""The section on faults: what was injected when, whether it took, and what the availability probes saw meanwhile."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from testbed.measure.reader import RunReader, Step
from testbed.measure.stats import Estimate, mean_interval
from testbed.report import timeline_figures as figures
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.compare_figures import OUTSIDE, condition
from testbed.report.history import Course, Stop, courses, link_changes, wire_stops
from testbed.report.numbers import NONE, estimate, number, plural, seconds
from testbed.report.watches import Gap, Watch, watches

_MOST_ROWS = 400
_FEW = 12
"""Rows of a table that is not folded."""
EDGES = (
    "An outage is a row of questions without a good answer. It began between the last good question and the first "
    "failed one, and ended between the last failed one and the next good answer, so its length is known within "
    "the range given; what fits between two questions is not seen."
)


def sections(run: RunReader) -> list[Section]:
    """The section, for a run with faults, availability probes, or a wire that died; none for another."""
    events = run.events()
    faults = courses(event for event in events if event.kind == "fault")
    stops = wire_stops(event for event in events if event.kind.startswith("wire-"))
    watched, loose = watches(run)
    gaps = sorted([gap for watch in watched for gap in watch.gaps] + loose, key=lambda gap: gap.start)
    if not (faults or stops or watched or gaps):
        return []
    blocks: list[Block] = []
    if faults or stops or watched:
        by_label: dict[str, list[Watch]] = defaultdict(list)
        for watch in watched:
            by_label[watch.label].append(watch)
        lanes = figures.lanes(faults, run.end)
        scene = figures.Scene(run.steps(), dict(by_label), lanes, stops, link_changes(events), run.end)
        blocks.append(Figure("timeline", partial(figures.timeline, scene), _caption(scene, faults)))
    if watched:
        blocks.append(_availability(run.steps(), watched, gaps, console=bool(gaps)))
    if gaps:
        blocks += [Text(EDGES, kind="note"), _outages(run.steps(), gaps)]
    if faults:
        blocks += _faults(faults)
    if stops:
        blocks.append(_stops(stops))
    left_out = sum(event.kind == "timeline" and event.detail.get("phase") == "left-out" for event in events)
    if left_out:
        blocks.append(Text(f"{plural(left_out, 'fault')} of the timeline left out: another one was in the way."))
    title = "Faults and availability" if faults and watched else "Faults" if faults else "Availability"
    return [Section(title if faults or watched or gaps else "The wire", blocks)]


def _caption(scene: figures.Scene, faults: Sequence[Course]) -> str:
    parts = []
    if scene.watches:
        count = sum(len(watch.samples) for all_of in scene.watches.values() for watch in all_of)
        shown = min(len(scene.watches), figures.MOST_PANELS)
        words = "probe" if len(scene.watches) == 1 else "probes"
        of = f" of {len(scene.watches)}" if shown < len(scene.watches) else ""
        parts.append(
            f"Answers to {plural(count, 'question')} of {shown}{of} availability {words}, at the time of asking"
        )
    if faults:
        hidden = len(scene.lanes) - figures.MOST_LANES
        more = f" (the first {figures.MOST_LANES} of {len(scene.lanes)} lanes)" if hidden > 0 else ""
        parts.append(f"{plural(len(faults), 'injection')} of faults, a lane for each fault and what it is about{more}")
    if scene.stops:
        parts.append(plural(len(scene.stops), "stop") + " of the wire")
    if scene.changes:
        parts.append(plural(len(scene.changes), "change") + " of links")
    return "; ".join(parts) + ("." if not scene.steps else f". The {plural(len(scene.steps), 'step')} shaded.")


@dataclass
class _Seen:
    """What one probe saw in one step."""

    asked: int = 0
    lost: int = 0
    gaps: list[Gap] = field(default_factory=list)


def _availability(steps: Sequence[Step], watched: Sequence[Watch], gaps: Sequence[Gap], *, console: bool) -> Table:
    found: dict[tuple[str, str], dict[str, _Seen]] = defaultdict(lambda: defaultdict(_Seen))
    for watch in watched:
        for sample in watch.samples:
            seen = _cell(found, watch.label, step_at(steps, sample.t))
            seen.asked += 1
            seen.lost += not math.isfinite(sample.value)
    for gap in gaps:
        _cell(found, gap.label, step_at(steps, gap.start)).gaps.append(gap)
    rows = [(who.replace(">", " > ", 1), what, *_row(list(repeats.values()))) for (who, what), repeats in found.items()]
    head = (
        "who asks whom",
        "conditions",
        "asked",
        "lost",
        "outages",
        "out of service, a repeat",
        "repeats",
    )
    most = max((len(repeats) for repeats in found.values()), default=0)
    said = f"at most {plural(most, 'repeat')}; 95 % intervals" if most > 1 else "one repeat: no conclusion"
    missed = sum(watch.missed for watch in watched)
    caption = (
        f"What the availability probes saw, by step ({said}). Time out of service: of one repeat with what is certain "
        "of its outages in brackets, of more the mean and its interval."
    )
    if missed:
        caption += f" {plural(missed, 'question')} could not be asked in time: the machine was too busy."
    cut = sum(not watch.finished for watch in watched)
    if cut:
        caption += f" {plural(cut, 'probe')} cut with the run."
    return Table(head, rows, caption=caption, text=(0, 1), console=console)


def _cell(found: dict[tuple[str, str], dict[str, _Seen]], label: str, step: Step | None) -> _Seen:
    return found[label, condition(step) if step else OUTSIDE][step.name if step else ""]


def _row(repeats: Sequence[_Seen]) -> tuple[str, ...]:
    asked, lost = sum(seen.asked for seen in repeats), sum(seen.lost for seen in repeats)
    gaps = [gap for seen in repeats for gap in seen.gaps]
    out = mean_interval([sum(gap.seconds for gap in seen.gaps) for seen in repeats], bounds=(0.0, math.inf))
    told = estimate(out, seconds) if len(repeats) > 1 else _uncertain(gaps)
    said = str(len(repeats)) if len(repeats) > 1 else "1: no conclusion"
    share = f" ({100 * lost / asked:.3g} %)" if asked and lost else ""
    return str(asked), f"{lost}{share}", str(len(gaps)), told, said


def _uncertain(gaps: Sequence[Gap]) -> str:
    """The sum of outages with what is certain of it."""
    if not gaps:
        return seconds(0.0)
    longest = [gap.longest for gap in gaps]
    low = sum(gap.shortest for gap in gaps)
    high = math.fsum(value for value in longest if value is not None)
    if None in longest:
        return f"at least {seconds(low)}"
    return estimate(Estimate(sum(gap.seconds for gap in gaps), low, high), seconds)


def step_at(steps: Sequence[Step], t: float) -> Step | None:
    """The innermost step at ``t``: the one that began last."""
    return max((step for step in steps if step.start <= t <= step.end), key=lambda step: step.start, default=None)


def _outages(steps: Sequence[Step], gaps: Sequence[Gap]) -> Table:
    rows = []
    for gap in gaps[:_MOST_ROWS]:
        step = step_at(steps, gap.start)
        rows.append(
            (
                gap.label.replace(">", " > ", 1),
                step.name if step else NONE,
                _edge(gap.start, gap.start_range, "before the first question"),
                _edge(gap.end, gap.end_range, "not seen to end"),
                seconds(gap.seconds) if gap.longest is not None else f"at least {seconds(gap.shortest)}",
                seconds(gap.shortest),
                NONE if gap.longest is None else seconds(gap.longest),
                str(gap.lost),
            )
        )
    head = ("who asks whom", "step", "start", "end", "length", "at least", "at most", "questions lost")
    shown = f"the first {_MOST_ROWS} of {len(gaps)}" if len(gaps) > _MOST_ROWS else str(len(gaps))
    folded = f"Outages one by one ({shown})" if len(gaps) > _FEW else ""
    return Table(head, rows, caption=f"Outages ({shown}), times since the run's start.", text=(0, 1), folded=folded)


def _edge(t: float | None, within: tuple[float, float] | None, unseen: str) -> str:
    if t is None or within is None:
        return unseen
    return f"{t:.3f} \u00b1 {(within[1] - within[0]) / 2:.3f} s"


def _faults(faults: Sequence[Course]) -> list[Block]:
    verified = sum(course.verified is not None for course in faults)
    failed = sum(course.failed is not None for course in faults)
    open_ = sum(course.healed is None for course in faults)
    rows = [
        (
            course.id + (f" (of {course.parent})" if course.parent else ""),
            course.kind,
            course.subject or NONE,
            NONE if course.start is None else f"{course.start:.3f} s",
            _verified(course),
            _after(course.verified, course.healed),
            _healed(course),
            _what(course),
        )
        for course in faults[:_MOST_ROWS]
    ]
    head = ("fault", "kind", "about", "start", "verified after", "held for", "healed at", "what was seen")
    shown = f"the first {_MOST_ROWS} of {len(faults)}" if len(faults) > _MOST_ROWS else str(len(faults))
    caption = f"Faults ({shown}): {verified} verified, {failed} did not take, {open_} not healed within the run."
    return [Table(head, rows, caption=caption, text=(0, 1, 2, 7), folded=caption if len(faults) > 5 * _FEW else "")]


def _verified(course: Course) -> str:
    return "did not take" if course.failed is not None else _after(course.start, course.verified)


def _after(start: float | None, end: float | None) -> str:
    return NONE if start is None or end is None else seconds(max(0.0, end - start))


def _healed(course: Course) -> str:
    return "not healed" if course.healed is None else f"{course.healed:.3f} s"


def _what(course: Course) -> str:
    told = [course.seen] if course.seen else []
    told += [f"could not be healed at {t:.3f} s: {message}" for t, message in course.not_healed]
    return "; ".join(told)


def _stops(stops: Sequence[Stop]) -> Table:
    rows = [
        (f"{stop.start:.3f} s", NONE if stop.end is None else f"{number(1000 * (stop.end - stop.start))} ms", stop.why)
        for stop in stops[:_MOST_ROWS]
    ]
    caption = f"{plural(len(stops), 'stop')} of the wire; all links with a delay or the like carried nothing meanwhile."
    return Table(("died", "back after", "how"), rows, caption=caption, text=(2,))
