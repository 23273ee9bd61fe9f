"""Processor time and memory of processes (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def processor_seconds(pids: Iterable[int]) -> float:
    """User and system time that living processes have had."""
    return sum(_processor(pid) for pid in pids)


def proportional_mib(pids: Iterable[int]) -> float:
    """Proportional set size: a page that several processes share counts once for all."""
    return sum(_rollup(pid, "Pss") for pid in pids) / 1024


def resident_mib(pids: Iterable[int]) -> float:
    """Resident set size: a page that several processes share counts for each."""
    return sum(_rollup(pid, "Rss") for pid in pids) / 1024


def _rollup(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def _processor(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
