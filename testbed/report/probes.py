"""The section on probes: what each measured, over time and by step, and what measuring cost."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from testbed.measure.reader import Event, RunReader, Sample
from testbed.measure.stats import Estimate, Time, bootstrap_median
from testbed.report import probe_figures as figures
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.compare_figures import OUTSIDE, condition
from testbed.report.history import finite
from testbed.report.numbers import NONE, estimate, number, plural, seconds
from testbed.report.timeline import step_at

_MOST_ROWS = 400
_RESAMPLED = 20_000_000
"""Values that are drawn in all for an interval: fewer resamples of many values, but never under 200."""
_FEWEST = 4
"""A series of fewer values needs no figure."""
_NOT_LISTED = {"ping", "availability"}
"""Probes whose calls are series of their own."""
_FRAME = {"probe", "target", "started", "ended", "cost", "outcome"}


@dataclass(frozen=True)
class Kind:
    """A series that probes record."""

    series: str
    title: str
    unit: str
    """Of the figures' axes."""
    scale: float
    """From the value to that unit."""
    form: Callable[[float], str]
    figure: str = ""
    """Name of its figure; none without."""


def _bits(value: float) -> str:
    text = number(value / 1e6)
    return text if text == NONE else f"{text} Mbit/s"


def _ms(value: float) -> str:
    return seconds(value) if not math.isfinite(value) else f"{number(1000 * value)} ms"


KINDS = (
    Kind("ping_rtt", "ping", "ms", 1e3, _ms, "probe-ping"),
    Kind("answer_seconds", "availability", "ms", 1e3, _ms),
    Kind("tcp_connect", "TCP connect", "ms", 1e3, _ms, "probe-tcp"),
    Kind("http_first_byte", "HTTP first byte", "ms", 1e3, _ms),
    Kind("http_total", "HTTP total", "ms", 1e3, _ms, "probe-http"),
    Kind("dns_seconds", "DNS", "ms", 1e3, _ms, "probe-dns"),
    Kind("throughput_bps", "throughput", "Mbit/s", 1e-6, _bits, "probe-throughput"),
)


@dataclass
class Series:
    """What one probe measured, all in all and by conditions and step."""

    label: str
    """Who asked whom: ``a>b``."""
    samples: list[Sample] = field(default_factory=list)
    conditions: dict[str, dict[str, list[Sample]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Conditions to steps, which are their repeats, to what was measured in them."""


def sections(run: RunReader) -> list[Section]:
    """The section, for a run in which something was probed."""
    calls = run.events("probe")
    blocks: list[Block] = []
    rows: list[tuple[str, ...]] = []
    most = 0
    for kind in KINDS:
        found = _series(run, kind.series)
        rows += [row for series in found for row in _rows(kind, series)]
        most = max([most, *(len(repeats) for series in found for repeats in series.conditions.values())])
        drawn = [series for series in found if len(series.samples) >= _FEWEST]
        if kind.figure and drawn:
            blocks.append(Figure(kind.figure, partial(_draw, kind, drawn), _caption(kind, drawn)))
    if rows:
        blocks.insert(0, _table(rows, most))
    listed = [call for call in calls if call.detail.get("probe") not in _NOT_LISTED]
    if listed:
        blocks.append(_calls(listed))
    if blocks:
        blocks.append(Text(_cost(run, calls)))
    return [Section("Probes", blocks)] if blocks else []


def _series(run: RunReader, name: str) -> list[Series]:
    steps = run.steps()
    names = {step.name: condition(step) for step in steps}
    found: dict[str, Series] = {}
    for sample in run.samples(name):
        series = found.setdefault(sample.node, Series(sample.node))
        step = step_at(steps, sample.t)
        series.samples.append(sample)
        series.conditions[names[step.name] if step else OUTSIDE][step.name if step else ""].append(sample)
    return list(found.values())


def _rows(kind: Kind, series: Series) -> list[tuple[str, ...]]:
    return [
        (kind.title, series.label.replace(">", " > ", 1), what, *_figures(kind, list(repeats.values())))
        for what, repeats in series.conditions.items()
    ]


def _figures(kind: Kind, repeats: Sequence[Sequence[Sample]]) -> tuple[str, ...]:
    values = [sample.value for repeat in repeats for sample in repeat]
    lost = sum(not math.isfinite(value) for value in values)
    share = f"{lost} ({100 * lost / len(values):.3g} %)" if lost else "0"
    is_time = kind.series != "throughput_bps"  # of a rate, what failed is left out, as in comparisons
    times = [[_time(sample.value) for sample in repeat if is_time or math.isfinite(sample.value)] for repeat in repeats]
    resamples = max(200, min(2000, _RESAMPLED // max(1, len(values))))
    middle = bootstrap_median(times, resamples=resamples) if any(times) else Estimate(math.nan)
    if sum(map(len, times)) < 2:  # of one value there is no spread to speak of
        middle = Estimate(middle.value)
    most = kind.form(_quantile(times, 0.9)) if is_time else NONE
    said = str(len(repeats)) if len(repeats) > 1 else "1: no conclusion"
    told = estimate(middle, kind.form) if middle.low != middle.high else kind.form(middle.value)
    return str(len(values)), share, told, most, said


def _time(value: float) -> Time:
    return Time(value) if math.isfinite(value) else Time(math.inf, observed=False)


def _quantile(times: Sequence[Sequence[Time]], share: float) -> float:
    """The least time within which this share was answered; infinite if it never was, NaN of nothing."""
    ordered = sorted(time.seconds for repeat in times for time in repeat)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def _table(rows: Sequence[tuple[str, ...]], most: int) -> Table:
    head = ("probe", "who asks whom", "conditions", "asked", "no answer", "median [95 %]", "90 % within", "repeats")
    said = f"at most {plural(most, 'repeat')}" if most > 1 else "one repeat: no conclusion"
    caption = (
        f"What the probes measured, by step ({said}). Medians with 95 % bootstrap intervals; of one repeat these speak "
        "of the spread within it alone. What was not answered counts as never."
    )
    if len(rows) > _MOST_ROWS:
        caption += f" The first {_MOST_ROWS} of {len(rows)} rows are shown."
    return Table(head, rows[:_MOST_ROWS], caption=caption, text=(0, 1, 2), console=True)


def _draw(kind: Kind, found: Sequence[Series]) -> figures.Drawing:
    panels = [
        figures.Panel(
            series.label,
            {
                what: [sample for repeat in repeats.values() for sample in repeat]
                for what, repeats in series.conditions.items()
            },
        )
        for series in found
    ]
    return figures.over_time(panels, f"{kind.title} ({kind.unit})", kind.scale)


def _caption(kind: Kind, found: Sequence[Series]) -> str:
    count = sum(len(series.samples) for series in found)
    lost = sum(not math.isfinite(sample.value) for series in found for sample in series.samples)
    repeats = max(len(steps) for series in found for steps in series.conditions.values())
    words = [
        f"{kind.title[:1].upper()}{kind.title[1:]}: {plural(count, 'value')}, {lost} without an answer (strokes at the "
        "bottom). Left over time, right the share that was answered within a time, by conditions; a curve that ends "
        "below 1 has questions without an answer."
        if kind.series != "throughput_bps"
        else f"Throughput of payload: {plural(count, 'value')}, {lost} failed (strokes at the bottom). Left over time, "
        "right the share of values up to a rate, by conditions.",
        "One repeat: no conclusion." if repeats == 1 else f"At most {repeats} repeats together.",
    ]
    if len(found) > figures.MOST_PANELS:
        words.append(f"The first {figures.MOST_PANELS} of {len(found)} pairs.")
    if max(len(series.conditions) for series in found) > figures.MOST_CURVES:
        words.append(f"The first {figures.MOST_CURVES} conditions of a pair have a curve.")
    return " ".join(words)


def _calls(listed: Sequence[Event]) -> Table:
    rows = [
        (
            f"{_number(call.detail.get('started'), call.t):.3f} s",
            str(call.detail.get("probe", "")),
            call.node,
            str(call.detail.get("target", "")),
            str(call.detail.get("outcome", call.detail.get("failed", ""))),
            _say(call),
        )
        for call in listed[:_MOST_ROWS]
    ]
    shown = f"the first {_MOST_ROWS} of {len(listed)}" if len(listed) > _MOST_ROWS else str(len(listed))
    head = ("time", "probe", "from", "to", "outcome", "")
    return Table(head, rows, text=(1, 2, 3, 4, 5), folded=f"Single calls of probes ({shown})")


def _number(value: object, default: float) -> float:
    found = finite(value)
    return default if found is None else found


def _say(call: Event) -> str:
    told = {key: value for key, value in call.detail.items() if key not in _FRAME and value not in (None, [], "")}
    return ", ".join(f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in told.items())


def _cost(run: RunReader, calls: Sequence[Event]) -> str:
    """What measuring itself used of the CPU, in a line."""
    by_probe: dict[str, list[float]] = defaultdict(list)
    for call in calls:
        by_probe[str(call.detail.get("probe", ""))].append(_number(call.detail.get("cost"), 0.0))
    parts = [f"{probe} {seconds(sum(costs))} in {plural(len(costs), 'call')}" for probe, costs in by_probe.items()]
    sampled = [sample.value for sample in run.samples("sampling_cost") if math.isfinite(sample.value)]
    if sampled:
        parts.append(f"samplers {seconds(sum(sampled))} in {plural(len(sampled), 'sample')}")
    total = sum(map(sum, by_probe.values())) + sum(sampled)
    length = run.end
    share = f", {100 * total / length:.2g} % of one processor over the run" if length > 0 else ""
    return f"Measuring itself used {seconds(total)} of CPU{share}: {'; '.join(parts) or 'nothing recorded'}."
