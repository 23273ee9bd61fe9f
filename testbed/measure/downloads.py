"""The downloads of a run as they were recorded by ``load.recorder``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from testbed.measure.reader import Event, RunReader
from testbed.measure.stats import Time


@dataclass(frozen=True, slots=True)
class Recorded:
    """One download; times are seconds after the run's start. See ``fetch.Download`` for the fields."""

    step: str
    client: str
    started: float
    first_byte: float | None
    last_byte: float | None
    ended: float
    bytes: int
    outcome: str
    instance: str

    @property
    def ok(self) -> bool:
        """It came through whole."""
        return self.outcome == "ok"

    @property
    def cut(self) -> bool:
        """It was under way when the load ended; neither good nor bad."""
        return self.outcome == "unfinished"

    @property
    def failed(self) -> bool:
        """It ended otherwise."""
        return not (self.ok or self.cut)

    def to_last_byte(self) -> Time:
        """Start to last byte. Cut: longer than that. Failed: never."""
        return self._time(self.last_byte if self.ok else None)

    def to_first_byte(self) -> Time:
        """Start to the first byte of the answer, which a download may have got that failed later."""
        return self._time(self.first_byte)

    def _time(self, until: float | None) -> Time:
        if until is not None:
            return Time(until - self.started)
        return Time(self.ended - self.started if self.cut else math.inf, observed=False)


def downloads(run: RunReader) -> list[Recorded]:
    """All downloads in the order in which they ended."""
    return [_recorded(event) for event in run.events("download")]


def _recorded(event: Event) -> Recorded:
    detail = event.detail
    ended = _seconds(detail.get("ended"))
    return Recorded(
        step=str(detail.get("step", "")),
        client=event.node,
        started=_seconds(detail.get("started")) or 0.0,
        first_byte=_seconds(detail.get("first_byte")),
        last_byte=_seconds(detail.get("last_byte")),
        ended=event.t if ended is None else ended,
        bytes=int(detail.get("bytes") or 0),
        outcome=str(detail.get("outcome", "")),
        instance=str(detail.get("instance", "")),
    )


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)
