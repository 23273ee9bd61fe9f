"""The section on links as they were measured before the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.measure.fidelity import DELAY_SECONDS, DELAY_SHARE, RATE_SHARE
from testbed.measure.reader import Event, RunReader
from testbed.report.blocks import Section, Table
from testbed.report.history import finite
from testbed.report.numbers import NONE, number, percent, plural, seconds

_MOST_ROWS = 200


def sections(run: RunReader) -> list[Section]:
    """The section, for a run whose links were tried."""
    tried, checks = run.events("fidelity"), run.events("fidelity-check")
    if not tried:
        return []
    rows = [_row(event) for event in tried[:_MOST_ROWS]]
    head = ("link", "direction", "delay wanted", "measured", "rate wanted", "measured", "frames", "verdict", "why")
    return [Section("Links as measured", [Table(head, rows, caption=_caption(tried, checks), text=(0, 1, 7, 8))])]


def _row(event: Event) -> tuple[str, ...]:
    detail = event.detail
    said = [str(word) for name in ("reasons", "notes") for word in _list(detail.get(name))]
    sent = finite(detail.get("sent"))
    return (
        str(detail.get("link", "")),
        f"{event.node} > {detail.get('target', '')}",
        _ms(detail.get("delay_wanted")),
        _ms(detail.get("delay_seen")),
        _mbit(detail.get("rate_wanted")),
        _mbit(detail.get("rate_seen")),
        f"{finite(detail.get('received')) or 0:.0f} of {sent:.0f}" if sent else NONE,
        "right" if detail.get("ok") is True else "WRONG",
        "; ".join(said),
    )


def _caption(tried: Sequence[Event], checks: Sequence[Event]) -> str:
    wrong = sum(event.detail.get("ok") is not True for event in tried)
    last: Mapping[str, Any] = checks[-1].detail if checks else {}
    words = [
        "Each direction for itself, one-way delays (medians) and rates with all headers: "
        f"{plural(len(tried), 'direction')} tried, {wrong} wrong. A delay may be off by "
        f"{number(1000 * DELAY_SECONDS)} ms or {percent(DELAY_SHARE)}, the greater of the two, "
        f"a rate by {percent(RATE_SHARE)}."
    ]
    if unchecked := finite(last.get("unchecked")):
        words.append(f"{plural(int(unchecked), 'link')} with a delay or a rate not tried.")
    if (took := finite(last.get("seconds"))) is not None and (cost := finite(last.get("cost"))) is not None:
        words.append(f"The check took {seconds(took)} and {seconds(cost)} of CPU.")
    if len(tried) > _MOST_ROWS:
        words.append(f"The first {_MOST_ROWS} are shown.")
    return " ".join(words)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _ms(value: object) -> str:
    found = finite(value)
    return NONE if found is None else f"{number(1000 * found)} ms"


def _mbit(value: object) -> str:
    found = finite(value)
    return NONE if found is None else f"{number(found / 1e6)} Mbit/s"
