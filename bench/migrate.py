"""Moving live connections: how long a busy client hears nothing, and how long 500 connections take."""

from __future__ import annotations

import time
from typing import Any

from bench.figure import Figure
from bench.pool_world import PoolWorld

MOVES = 15
RATE = 20_000_000
"""Bytes a second of the busy connection."""
SPACING = 0.5


def measure(name: str) -> list[Figure]:
    """Milliseconds; each move is one value."""
    return gap(name) if name == "migrate-gap" else many(name)


def gap(name: str) -> list[Figure]:
    """The longest pause of one download in each half second, with moves and without."""
    with PoolWorld(rate=RATE, files={"big": 240 << 20}) as world:
        still = pauses(world, 0)
        moved = pauses(world, MOVES)
    return [
        Figure(name, "ms", 20.0, tuple(moved)),
        Figure(f"{name}-without-moves", "ms", 20.0, tuple(still)),
        Figure(f"{name}-ratio", "", 0.0, tuple(value / sorted(still)[len(still) // 2] for value in moved)),
    ]


def pauses(world: PoolWorld, moves: int) -> list[float]:
    """The longest pause, ms, of each half second of a paced download; in each of which there is one move."""
    clients = world.client(path="/big", seconds=60, trace=SPACING)
    for number in range(MOVES):
        if number < moves:
            rotate(world, 1)
        time.sleep(SPACING)
    found = clients.break_off()
    fail_if_wrong(found)
    return [value * 1000 for value in found["trace"][:MOVES]]


def many(name: str, connections: int = 500) -> list[Figure]:
    """All of 500 connections that make a request a second, moved to the other server and back."""
    with PoolWorld() as world:
        clients = world.client(pause=1, connections=connections, seconds=60)
        results = []
        for _ in range(MOVES):
            results.append(rotate(world, connections))
            time.sleep(SPACING)
        found = clients.break_off()
    fail_if_wrong(found)
    times = tuple(result.seconds * 1000 for result in results)
    gaps = sorted(value * 1000 for value in found["gaps"])
    return [Figure(name, "ms", 50.0, times), Figure(f"{name}-client-gap", "ms", 0.0, tuple(gaps))]


def rotate(world: PoolWorld, connections: int) -> Any:
    """The other server takes over all connections."""
    dispatcher = world.dispatcher
    assert dispatcher is not None
    old = dispatcher.serving
    assert old is not None
    new = next(name for name in world.names if name != old)
    dispatcher.assign(dispatcher.epoch + 1, new)
    result = dispatcher.move(old, new, "migrate", 10)
    if (result.moved, result.failed, result.left) != (connections, (), 0):
        raise SystemExit(f"not all of {connections} connections were moved: {result}")
    return result


def fail_if_wrong(found: dict[str, Any]) -> None:
    """A benchmark of moves that lose something measures nothing."""
    if found["errors"] or found["wrong"]:
        raise SystemExit(f"clients saw errors: {found['errors'][:3]} {found['wrong'][:3]}")
