"""Two runs or more beside each other: in what they differ, and which figures changed by more than chance.

The first run is what the others are compared with. A figure is tested between repeats (Mann-Whitney, exact where there
are few), all p-values are corrected together for their number (Holm), and of one repeat nothing is concluded.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from testbed.errors import TestbedError
from testbed.measure.reader import RunReader
from testbed.measure.stats import Estimate, bootstrap_difference
from testbed.measure.twosample import ALPHA, fewest_repeats, holm, least_p, mann_whitney
from testbed.measure.validity import verdict as validity
from testbed.report.compare_figures import Figure, Key, figures
from testbed.report.core import repeats

Verdict = Literal["changed", "not shown to differ", "too few repeats", "no conclusion: INVALID run"]
_UNTOLD = {"status", "invalid", "started", "ended", "clock", "writer", "plan", "topology", "title", "format"}
"""Keys of a manifest that differ in any two runs, or are told otherwise."""
_MOST_LINES = 60


@dataclass(frozen=True)
class Side:
    """One of the runs."""

    letter: str
    """A, B, C."""
    run: RunReader
    invalid: tuple[str, ...]

    @property
    def repeats(self) -> int:
        """Of the conditions that were repeated most often."""
        return repeats(self.run.steps())


@dataclass(frozen=True)
class Change:
    """A figure of the first run beside that of another."""

    key: Key
    first: Figure
    other: Figure
    difference: Estimate
    """Median of the other less that of the first."""
    p: float
    corrected: float
    """p, corrected for the number of figures that can show anything; NaN for one that cannot."""
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """What ``compare`` found. ``changes`` has the figures of each other run, in the order of the runs."""

    sides: tuple[Side, ...]
    manifest: tuple[tuple[str, tuple[str, ...]], ...]
    """What differs: its name, and what it is in each run."""
    topology: tuple[str, ...]
    """Lines of a unified diff of the topologies of the first two runs whose topologies differ."""
    changes: tuple[tuple[Change, ...], ...]
    missing: tuple[tuple[str, ...], ...]
    """Figures of the first that each other one does not have, and the other way round."""

    @property
    def invalid(self) -> bool:
        """Whether one of the runs is."""
        return any(side.invalid for side in self.sides)

    @property
    def tested(self) -> int:
        """How many figures could show a difference."""
        return sum(not math.isnan(change.corrected) for changes in self.changes for change in changes)


def compare(runs: Sequence[RunReader]) -> Comparison:
    """Compare the second and later runs with the first. TestbedError of fewer than two."""
    if len(runs) < 2:
        raise TestbedError("one run cannot be compared", remedy="name two runs or more; the first is the yardstick")
    sides = tuple(
        Side(chr(ord("A") + index) if index < 26 else f"R{index + 1}", run, validity(run).invalid)
        for index, run in enumerate(runs)
    )
    found = [figures(run) for run in runs]
    pairs = [[(key, found[0][key], other[key]) for key in found[0] if key in other] for other in found[1:]]
    changes = _judged(sides, pairs)
    missing = tuple(
        tuple(f"{key.name} ({key.condition})" for key in [*found[0], *other] if (key in found[0]) != (key in other))
        for other in found[1:]
    )
    manifests = [run.manifest for run in runs]
    return Comparison(sides, tuple(_differences(manifests)), tuple(_topology(manifests)), changes, missing)


def _judged(
    sides: Sequence[Side], pairs: Sequence[Sequence[tuple[Key, Figure, Figure]]]
) -> tuple[tuple[Change, ...], ...]:
    every = [
        (first, other, bool(side.invalid or sides[0].invalid))
        for side, of_run in zip(sides[1:], pairs, strict=True)
        for _, first, other in of_run
    ]
    p_values = [mann_whitney(first.by_repeat, other.by_repeat) for first, other, _ in every]
    # A figure with too few repeats cannot show anything whatever its values are, so it costs the others nothing. Nor
    # does one of which nothing will be concluded.
    least = [1.0 if invalid else least_p(len(first.repeats), len(other.repeats)) for first, other, invalid in every]
    corrected = holm([p if low <= ALPHA else math.nan for p, low in zip(p_values, least, strict=True)])
    tested = sum(not math.isnan(value) for value in corrected)
    results = iter(
        [
            _change(first, other, invalid, p, held, low, tested)
            for (first, other, invalid), p, held, low in zip(every, p_values, corrected, least, strict=True)
        ]
    )
    return tuple(tuple(islice(results, len(of_run))) for of_run in pairs)


def _change(
    first: Figure, other: Figure, invalid: bool, p: float, corrected: float, least: float, tested: int
) -> Change:
    word: Verdict = "not shown to differ"
    if invalid:
        word = "no conclusion: INVALID run"
    elif not math.isnan(corrected) and corrected <= ALPHA:
        word = "changed"
    elif least * max(1, tested) > ALPHA:
        word = "too few repeats"
    return Change(first.key, first, other, bootstrap_difference(other.repeats, first.repeats), p, corrected, word)


def repeats_needed(comparison: Comparison) -> int:
    """How many repeats each run needs so that any one of the figures could be shown to differ."""
    return fewest_repeats(max(1, sum(map(len, comparison.changes))))


def _differences(manifests: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    flat = [dict(_flat(manifest)) for manifest in manifests]
    for key in dict.fromkeys(key for one in flat for key in one):
        values = tuple(one.get(key, "") for one in flat)
        if len(set(values)) > 1:
            yield key, values


def _flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        name = f"{above}{key}"
        if name in _UNTOLD:
            continue
        if isinstance(item, Mapping):
            yield from _flat(item, f"{name}.")
        else:
            yield name, item if isinstance(item, str) else json.dumps(item, default=str)


def _topology(manifests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    first = str(manifests[0].get("topology") or "")
    for index, manifest in enumerate(manifests[1:], 1):
        other = str(manifest.get("topology") or "")
        if other == first:
            continue
        names = (f"topology of {chr(ord('A'))}", f"topology of {chr(ord('A') + index)}")
        lines = list(difflib.unified_diff(first.splitlines(), other.splitlines(), *names, n=1, lineterm=""))
        yield from lines[:_MOST_LINES]
        if len(lines) > _MOST_LINES:
            yield f"... and {len(lines) - _MOST_LINES} more lines"
        return


def as_data(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON. A number that there is not is null; an infinite one (it never ended) is "inf"."""
    return {
        "runs": [
            {
                "name": side.run.path.name,
                "scenario": side.run.manifest.get("scenario"),
                "started": side.run.manifest.get("started"),
                "status": side.run.status,
                "repeats": side.repeats,
                "invalid": list(side.invalid),
            }
            for side in comparison.sides
        ],
        "manifest": [{"key": key, "values": list(values)} for key, values in comparison.manifest],
        "topology": list(comparison.topology),
        "alpha": ALPHA,
        "tested": comparison.tested,
        "repeats_needed": repeats_needed(comparison),
        "comparisons": [
            {
                "first": comparison.sides[0].run.path.name,
                "other": side.run.path.name,
                "figures": [_change_data(change) for change in changes],
                "not_in_both": list(missing),
            }
            for side, changes, missing in zip(comparison.sides[1:], comparison.changes, comparison.missing, strict=True)
        ],
    }


def _change_data(change: Change) -> dict[str, Any]:
    return {
        "figure": change.key.name,
        "condition": change.key.condition,
        "unit": change.key.unit,
        "first": _estimate_data(change.first.estimate) | {"repeats": len(change.first.repeats)},
        "other": _estimate_data(change.other.estimate) | {"repeats": len(change.other.repeats)},
        "difference": _estimate_data(change.difference),
        "p": _number(change.p),
        "p_corrected": _number(change.corrected),
        "verdict": change.verdict,
    }


def _estimate_data(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": _number(estimate.value),
        "low": _number(estimate.low),
        "high": _number(estimate.high),
        "n": estimate.n,
    }


def _number(value: float | None) -> float | str | None:
    if value is None or math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
