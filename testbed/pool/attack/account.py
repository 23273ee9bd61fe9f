"""What happened to a pool under attack, read from its events and its servers' logs of requests."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.pool.attack.model import Interval
from testbed.pool.lab.fileserver import LOG

if TYPE_CHECKING:
    from testbed.pool.lab.pools import Pool

EXPLOIT = "/cgi-bin/status"
"""Path of the request by which the intruder comes in."""


def intervals_of(
    events: Iterable[Mapping[str, Any]],
    requests: Mapping[str, Sequence[float]],
    until: float,
    since: float = float("-inf"),
) -> list[Interval]:
    """Stretches of service from a pool's events (``t`` in any unit, rising) and the times of each server's requests.

    A stretch ends when another server gets the clients, when nobody does, or at ``until``; those that end before
    ``since`` do not count, and the one that stands then counts from then on. Of its server's requests those count
    that were begun from its start to the start of the server's next stretch.
    """
    stretches: list[dict[str, Any]] = []
    for event in sorted(events, key=lambda event: event["t"]):
        if event["t"] >= until:
            break
        open_one = stretches[-1] if stretches and stretches[-1]["end"] is None else None
        match event["what"]:
            case "assigned" | "nobody":
                if open_one is not None:
                    open_one["end"] = event["t"]
                if event["what"] == "assigned":
                    found = {"server": event["node"], "epoch": event["epoch"], "start": event["t"], "end": None}
                    stretches.append({**found, "compromised": None, "detected": None})
            case "compromised":
                if open_one is not None and open_one["server"] == event["node"] and open_one["compromised"] is None:
                    open_one["compromised"] = event["t"]
            case "detected":
                if open_one is not None and open_one["server"] == event["node"] and open_one["detected"] is None:
                    open_one["detected"] = event["t"]
    kept = [stretch for stretch in stretches if stretch["end"] is None or stretch["end"] > since]
    for stretch in kept[:1]:
        stretch["start"] = max(stretch["start"], since)
    return [_counted(stretch, kept[number + 1 :], requests, until) for number, stretch in enumerate(kept)]


def _counted(
    stretch: dict[str, Any], later: list[dict[str, Any]], requests: Mapping[str, Sequence[float]], until: float
) -> Interval:
    server = stretch["server"]
    again = next((other["start"] for other in later if other["server"] == server), until)
    times = requests.get(server, ())
    first, last = bisect.bisect_left(times, stretch["start"]), bisect.bisect_left(times, again)
    leaked = 0
    if stretch["compromised"] is not None:
        leaked = last - max(first, bisect.bisect_left(times, stretch["compromised"]))
    end = until if stretch["end"] is None else stretch["end"]
    return Interval(**{**stretch, "end": end}, requests=last - first, leaked=leaked)


def request_times(pool: Pool) -> dict[str, list[float]]:
    """When (monotonic seconds) each server began to answer a request, the intruder's own left out; in order."""
    found: dict[str, list[float]] = {}
    for server in pool.servers:
        files = [*(pool.world.folder / "kept").glob(f"{server}-*/{LOG}"), pool.lab.node_folder(server) / LOG]
        times = [entry["t"] for file in files for entry in read_log(file) if not entry["path"].startswith(EXPLOIT)]
        found[server] = sorted(times)
    return found


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log of requests; empty if there is none."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def account(pool: Pool, until: float, *, since: float = float("-inf")) -> list[Interval]:
    """The stretches of service of a pool between two moments of the monotonic clock, in seconds of its own time."""
    real = intervals_of(pool.events(), request_times(pool), until, since)

    def pool_time(moment: float | None) -> float | None:
        return None if moment is None else pool.at(moment) / 1e6

    return [
        Interval(
            interval.server,
            interval.epoch,
            pool.at(interval.start) / 1e6,
            pool.at(interval.end) / 1e6,
            pool_time(interval.compromised),
            pool_time(interval.detected),
            interval.requests,
            interval.leaked,
        )
        for interval in real
    ]
