"""What can be wrong with a pool although each of its keys is right. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.errors import Path, Problem, halves
from testbed.model.quantities import format_duration_us
from testbed.pool.schedule.lfsr import Lfsr
from testbed.pool.spec import PoolSpec, PoolsSpec, SequenceSpec, feedback_polynomial


def problems(pools: PoolsSpec) -> Iterator[Problem]:
    """Everything, with paths from the root of the topology."""
    if not pools.root:
        yield Problem(("pool",), "no pool is named", "name one, such as `dns: {servers: 3}`")
    for name, spec in pools.root.items():
        yield from _of_times(("pool", name), spec)
        if spec.sequence is not None:
            yield from _of_register(("pool", name, "sequence"), spec.sequence)
        if spec.drain is not None and spec.connections != "drain":
            yield Problem(
                ("pool", name, "drain"),
                f"connections are not drained: `connections` is {spec.connections}",
                "remove it, or write `connections: drain`",
                at_key=True,
            )


def _of_times(path: Path, spec: PoolSpec) -> Iterator[Problem]:
    """Re-initialisation must be over before the service moves again, also in a pool whose time runs fast."""
    if spec.scheduler == "none":
        return
    lengths: list[tuple[Path, str, int]] = [((*path, "timer"), "`timer`", spec.timer)]
    if spec.sequence is not None:
        lengths.append(((*path, "sequence", "period"), "`period` of `sequence`", spec.sequence.period))
    if spec.detection is not None:
        lengths.append(((*path, "detection", "period"), "`period` of `detection`", spec.detection.period))
    for where, name, length in lengths:
        if length < spec.reinitialise:
            yield Problem(
                where,
                f"{name} is {_time(length)}, shorter than making a server anew, which takes {_time(spec.reinitialise)}",
                "make it longer, or `reinitialise` shorter",
            )
    where, name, length = min(lengths, key=lambda item: item[2])
    if spec.reinitialise <= length < spec.reinitialise * spec.speed:
        yield Problem(
            (*path, "speed"),
            f"at {spec.speed} times the speed, making a server anew for {_time(spec.reinitialise)} takes "
            f"{_time(spec.reinitialise * spec.speed)} of the pool's time, longer than {name}, {_time(length)}",
            f"at most {length // spec.reinitialise}",
        )


def _of_register(path: Path, spec: SequenceSpec) -> Iterator[Problem]:
    if spec.state is None:
        return
    try:
        register = Lfsr.from_text(feedback_polynomial(spec.feedback), spec.state)
    except ValueError as error:
        message, remedy = halves(error)
        yield Problem((*path, "state"), f"`state`: {message}", remedy)
        return
    if register.width <= 64 and register.period() == 1:
        yield Problem(
            (*path, "state"),
            "the register never leaves this state: every bit is 1",
            "start it with another one",
        )


def _time(microseconds: int) -> str:
    return format_duration_us(microseconds)
