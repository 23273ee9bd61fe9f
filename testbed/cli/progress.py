"""Showing progress: moving bars on a terminal, one line a finished stage elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from testbed.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID


class _Lines:
    """For logs and pipes: a line when a stage is over."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._lock = threading.Lock()

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        with self._lock:
            if done < total:
                self._started.setdefault(stage, now)
                return
            seconds = now - self._started.pop(stage, now)
        text = f"{stage} {done}/{total}" + (f" {note}" if note else "")
        print(f"{text} ({seconds:.1f} s)", file=sys.stderr, flush=True)


@contextmanager
def shown() -> Iterator[Progress]:
    """A listener that shows what it is told on stderr."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichBars

    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with RichBars(*columns, console=Console(stderr=True)) as bars:
        yield _Bars(bars)


class _Bars:
    def __init__(self, bars: RichBars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        with self._lock:
            if stage not in self._tasks:
                self._tasks[stage] = self._bars.add_task(stage, total=total, note=note)
            self._bars.update(self._tasks[stage], completed=done, total=total, note=note)
