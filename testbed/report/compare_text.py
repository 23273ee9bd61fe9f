"""A comparison in words and tables, for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from testbed.measure.stats import Estimate
from testbed.measure.twosample import ALPHA
from testbed.report.blocks import Block, Preformatted, Table, Text
from testbed.report.compare import Change, Comparison, Side, repeats_needed
from testbed.report.compare_figures import Unit
from testbed.report.numbers import NONE, estimate, index, mebibytes, number, percent, plural, seconds

_MOST_NAMES = 5
_FORMS: dict[Unit, Callable[[float], str]] = {
    "s": seconds,
    "share": lambda value: percent(value) if abs(value) >= 0.1 or not value else f"{100 * value:.2g} %",
    "index": index,
    "bytes": mebibytes,
    "bit/s": lambda value: f"{number(value / 1e6)} Mbit/s",
    "count": number,
}


def blocks(comparison: Comparison) -> list[Block]:
    """What is to be shown, in order: INVALID runs first, then in what the runs differ, then the figures."""
    found: list[Block] = [
        Text(f"INVALID: {side.letter}: {reason}") for side in comparison.sides for reason in side.invalid
    ]
    found.append(_runs(comparison.sides))
    found.extend(_manifest(comparison))
    for side, changes, missing in zip(comparison.sides[1:], comparison.changes, comparison.missing, strict=True):
        found.append(_figures(comparison.sides[0], side, changes))
        if missing:
            names = ", ".join(missing[:_MOST_NAMES])
            more = f" and {len(missing) - _MOST_NAMES} more" if len(missing) > _MOST_NAMES else ""
            found.append(Text(f"In only one of {comparison.sides[0].letter} and {side.letter}: {names}{more}."))
    found.append(Text(_summary(comparison)))
    return found


def _runs(sides: Sequence[Side]) -> Table:
    rows = [
        (
            side.letter,
            side.run.path.name,
            str(side.run.manifest.get("started", ""))[:19].replace("T", " "),
            str(side.repeats),
            side.run.status,
            "INVALID" if side.invalid else "valid",
        )
        for side in sides
    ]
    return Table(("", "run", "started", "repeats", "status", "validity"), rows, text=(0, 1, 2, 4, 5))


def _manifest(comparison: Comparison) -> list[Block]:
    letters = [side.letter for side in comparison.sides]
    if not comparison.manifest and not comparison.topology:
        return [Text("The runs were made alike: same topology, seed, parameters, versions and machine.")]
    found: list[Block] = []
    if comparison.manifest:
        rows = [(key, *(_short(value) for value in values)) for key, values in comparison.manifest]
        found.append(
            Table(("differs", *letters), rows, text=range(len(letters) + 1), caption="In what the runs differ")
        )
    if comparison.topology:
        found.append(Preformatted("Topology", "\n".join(comparison.topology)))
    if len(comparison.manifest) > 1:
        found.append(Text("Whatever changed in the figures may come from any of these."))
    return found


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."


def _figures(first: Side, other: Side, changes: Sequence[Change]) -> Block:
    if not changes:
        return Text(f"{first.letter} and {other.letter} have no figure in common.")
    head = ("conditions", "figure", first.letter, other.letter, f"{other.letter} - {first.letter}", "repeats", "p", "")
    rows, before = [], None
    for change in sorted(changes, key=lambda change: _place(changes, change)):
        form = _FORMS[change.key.unit]
        rows.append(
            (
                change.key.condition if change.key.condition != before else "",
                change.key.name,
                estimate(change.first.estimate, form),
                estimate(change.other.estimate, form),
                _signed(change.difference, form),
                f"{len(change.first.repeats)}, {len(change.other.repeats)}",
                _p(change),
                change.verdict,
            )
        )
        before = change.key.condition
    caption = f"{other.letter} against {first.letter}: medians with 95 % intervals; p corrected for all figures"
    return Table(head, rows, text=(0, 1, 7), caption=caption)


def _place(changes: Sequence[Change], change: Change) -> int:
    """Where the first figure of the same conditions stands, so that those stay together."""
    return next(at for at, one in enumerate(changes) if one.key.condition == change.key.condition)


def _signed(difference: Estimate, form: Callable[[float], str]) -> str:
    if math.isnan(difference.value):
        return NONE

    def signed(value: float) -> str:
        text = form(abs(value))
        return text if not value else f"{'+' if value > 0 else '-'}{text}"

    return estimate(difference, signed)


def _p(change: Change) -> str:
    if math.isnan(change.corrected):
        return NONE
    return "< 0.001" if change.corrected < 0.001 else f"{change.corrected:.3f}"


def _summary(comparison: Comparison) -> str:
    counts = Counter(change.verdict for changes in comparison.changes for change in changes)
    total = counts.total()
    if not total:
        return "Nothing was compared."
    words = [f"{counts['changed']} of {plural(total, 'figure')} changed"]
    words += [f"{count} {word}" for word, count in counts.items() if word != "changed"]
    text = "; ".join(words) + f" (Mann-Whitney between repeats, Holm, {100 * ALPHA:.0f} %)."
    if counts["too few repeats"]:
        text += (
            f" With {plural(total, 'figure')}, {repeats_needed(comparison)} repeats of each run are needed to show "
            "that one of them changed."
        )
    return text
