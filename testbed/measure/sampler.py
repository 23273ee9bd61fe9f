"""Regular samples: interface counters of a namespace, the machine's CPU, processes, and what sampling costs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from testbed.errors import TestbedError, WaitTimeout
from testbed.measure.environment import start_ticks
from testbed.net.namespace import inside

if TYPE_CHECKING:
    from testbed.measure.store import Run
    from testbed.plan.types import Plan

_COLUMNS = {"rx_bytes": 0, "rx_packets": 1, "rx_drop": 3, "tx_bytes": 8, "tx_packets": 9, "tx_drop": 11}
_TICKS = os.sysconf("SC_CLK_TCK")
_FEWEST_TICKS = 10
"""A share of fewer clock ticks is too coarse to be recorded; it is left to the next sample."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
Column = Literal["rx_bytes", "rx_packets", "rx_drop", "tx_bytes", "tx_packets", "tx_drop"]
Row = tuple[float, str, str, float]


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter of an interface, and the series and node that it is recorded as."""

    ifname: str
    """The kernel's name in the namespace that is read."""
    series: str
    node: str
    column: Column = "rx_bytes"


def link_counters(plan: Plan, router: str, nodes: Iterable[str]) -> list[Counter]:
    """Counters at ``router`` of its links to ``nodes``: what each sent (``bytes_from``) and got (``bytes_to``).

    They stand at the router's side so that a node that stops or dies keeps its figures. KeyError: no such link.
    """
    ends = {link.peer(router).node: link.end(router) for link in plan.links_of(router)}
    counters = []
    for node in nodes:
        counters.append(Counter(ends[node].ifname, "bytes_from", node, "rx_bytes"))
        counters.append(Counter(ends[node].ifname, "bytes_to", node, "tx_bytes"))
    return counters


class Sampler:
    """One thread that samples everything registered once a period, on the monotonic clock and without drift.

    Times of samples are ``start + k * period``; a time that was missed is left out, never made up for. Series:

    * those of the counters given to ``interfaces``; bytes and packets are cumulative
    * ``cpu_busy``: share of the machine's CPU time since the last sample that was not idle, 0 to 1, with the time that
      a hypervisor gave to others; that part alone is ``cpu_steal``
    * ``cpu_seconds`` (cumulative) and ``rss_bytes`` of each process given to ``process``
    * ``sampling_cost``: CPU seconds that the sampler itself used since the last sample; ``sampling_late``: seconds
      from when a sample was due to when it was taken
    """

    def __init__(self, run: Run, *, period: float = 0.5, cpu: bool = True) -> None:
        self._run = run
        self._period = period
        self._cpu = _Cpu() if cpu else None
        self._interfaces: list[_Interfaces] = []
        self._processes: list[_Process] = []
        self._sources: list[Callable[[], Iterable[Row]]] = []
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)

    def interfaces(self, namespace: Path, counters: Iterable[Counter]) -> None:
        """Sample these counters of the network namespace at ``namespace``. Before ``start``. Needs root."""
        self._interfaces.append(_Interfaces(namespace, list(counters)))

    def process(self, name: str, pid: int) -> None:
        """Sample CPU time and memory of a process under ``name`` for as long as it exists. Before ``start``."""
        self._processes.append(_Process(name, pid))

    def source(self, take: Callable[[], Iterable[Row]]) -> None:
        """Sample whatever ``take`` gives, such as ``probes.usage.UsageReader.take``. Before ``start``."""
        self._sources.append(take)

    def start(self) -> None:
        """Begin; the first sample has been taken when this returns."""
        self._thread.start()
        self._begun.wait()

    def stop(self, timeout: float = 10.0) -> None:
        """Take a last sample, end, and raise what went wrong meanwhile. A second call is idle."""
        self._stop.set()
        if self._thread.ident is not None and not self._done.wait(timeout):
            raise WaitTimeout("the last sample", timeout, "the sampler is still busy")
        for interfaces in self._interfaces:
            interfaces.close()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self) -> None:
        try:
            start, number = time.monotonic(), 0
            stopping = False
            cost = 0.0
            while True:
                before = time.thread_time()
                taken = time.monotonic()
                due = min(start + number * self._period, taken)
                rows = list(self._take())
                rows.append((taken, "sampling_late", "", taken - due))
                rows.append((taken, "sampling_cost", "", cost))
                self._run.samples(rows)
                self._begun.set()
                if stopping:
                    return
                cost = time.thread_time() - before
                number = max(number, int((time.monotonic() - start) / self._period)) + 1
                stopping = self._stop.wait(max(0.0, start + number * self._period - time.monotonic()))
        except BaseException as error:
            self._failure = error
        finally:
            self._begun.set()
            self._done.set()

    def _take(self) -> Iterator[Row]:
        for interfaces in self._interfaces:
            yield from interfaces.take()
        if self._cpu is not None:
            yield from self._cpu.take()
        for process in self._processes:
            yield from process.take()
        for take in self._sources:
            yield from take()


class _Interfaces:
    """The counters of one namespace, read from a file that was opened inside and stays with it."""

    def __init__(self, namespace: Path, counters: list[Counter]) -> None:
        self._counters: dict[str, list[Counter]] = {}
        for counter in counters:
            self._counters.setdefault(counter.ifname, []).append(counter)
        self._fd = _open_in(namespace, "/proc/thread-self/net/dev")
        missing = self._counters.keys() - {name for name, _ in _parse(self._read())}
        if missing:
            self.close()
            raise TestbedError(f"no interface {', '.join(sorted(missing))} to sample", where=str(namespace))

    def take(self) -> Iterator[Row]:
        text, now = self._read(), time.monotonic()
        for name, values in _parse(text):
            for counter in self._counters.get(name, ()):
                yield now, counter.series, counter.node, float(values[_COLUMNS[counter.column]])

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> str:
        os.lseek(self._fd, 0, os.SEEK_SET)
        parts = []
        while part := os.read(self._fd, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode(errors="replace")


def _parse(text: str) -> Iterator[tuple[str, list[str]]]:
    """(interface, its 16 counters) of each line of /proc/net/dev after the two of the heading; see proc(5)."""
    for line in text.splitlines()[2:]:
        name, _, values = line.rpartition(":")
        yield name.strip(), values.split()


def _open_in(namespace: Path, path: str) -> int:
    """A file descriptor of ``path`` as opened by a thread inside ``namespace``. The caller stays where it is."""
    try:
        return inside(namespace, lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise TestbedError(
            f"cannot enter the network namespace: {error.strerror}",
            where=str(namespace),
            remedy="is the lab up, and are you root?",
        ) from error


class _Cpu:
    """Busy and stolen share of the whole machine between two samples, from the first line of /proc/stat."""

    def __init__(self) -> None:
        self._last: tuple[int, int, int] | None = None

    def take(self) -> Iterator[Row]:
        current, now = _cpu_ticks(), time.monotonic()
        if self._last is None:
            self._last = current
            return
        total, idle, steal = (new - old for new, old in zip(current, self._last, strict=True))
        if total >= _FEWEST_TICKS:
            self._last = current
            yield now, "cpu_busy", "", min(1.0, max(0.0, 1 - idle / total))  # the kernel's idle time may go back a bit
            yield now, "cpu_steal", "", steal / total


def _cpu_ticks() -> tuple[int, int, int]:
    """(all, idle or waiting for the disk, stolen) clock ticks since boot; guest time is part of user time: proc(5)."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4], ticks[7]


class _Process:
    def __init__(self, name: str, pid: int) -> None:
        self._name = name
        self._pid = pid
        self._born = start_ticks(pid)

    def take(self) -> Iterator[Row]:
        """Nothing once the process is gone, also when its number has been given to another."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
            resident = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return
        if int(fields[19]) != self._born:
            return
        now = time.monotonic()
        yield now, "cpu_seconds", self._name, (int(fields[11]) + int(fields[12])) / _TICKS
        yield now, "rss_bytes", self._name, float(resident * _PAGE)
