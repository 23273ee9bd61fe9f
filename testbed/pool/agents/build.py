"""From the section of a topology to what runs: schedule, policy and patience. The same for virtual and real pools."""

from __future__ import annotations

from pathlib import Path

from testbed.pool.agents.clock import SECOND
from testbed.pool.agents.competition import CentralController, Competition, NoRotation, Policy, RandomChoice, RoundRobin
from testbed.pool.agents.timing import Timing
from testbed.pool.schedule.lfsr import Lfsr
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import Combined, Given, Live, PseudoRandom, Stream, check_bits, read_bits
from testbed.pool.spec import BitsSpec, PoolSpec, feedback_polynomial

SEQUENCE = "pseudo-random"
DETECTION = "detection"


def schedule_of(spec: PoolSpec, seed: int, folder: Path) -> tuple[Schedule, Live | None]:
    """The schedule, and its live stream if it has one. Files are looked for in ``folder``.

    Raises TestbedError if a file cannot be read or has other characters than 0 and 1.
    """
    streams: dict[str, Stream] = {}
    live: Live | None = None
    if spec.sequence is not None:
        sequence = spec.sequence
        if sequence.bits is not None or sequence.file is not None:
            streams[SEQUENCE] = _given(sequence, sequence.period, folder)
        else:
            polynomial = feedback_polynomial(sequence.feedback)
            register = (
                Lfsr.seeded(polynomial, seed) if sequence.state is None else Lfsr.from_text(polynomial, sequence.state)
            )
            streams[SEQUENCE] = PseudoRandom(register, sequence.period, sequence.first)
    if spec.detection is not None:
        if spec.detection.live:
            streams[DETECTION] = live = Live(spec.detection.period, spec.detection.first)
        else:
            streams[DETECTION] = _given(spec.detection, spec.detection.period, folder)
    return Schedule(Combined(streams, spec.combine), spec.timer), live


def with_bits(spec: PoolSpec, folder: Path) -> PoolSpec:
    """The section with the bits of files, looked for in ``folder``, in it. TestbedError as from ``schedule_of``."""
    update = {}
    for key in ("sequence", "detection"):
        part = getattr(spec, key)
        if part is not None and part.file is not None:
            bits = "".join(map(str, read_bits(folder / part.file).tolist()))
            update[key] = part.model_copy(update={"bits": bits, "file": None})
    return spec.model_copy(update=update)


def policy_of(spec: PoolSpec, servers: list[str], seed: int) -> Policy:
    """How the next server is chosen."""
    if spec.scheduler == "round-robin":
        return RoundRobin(servers)
    if spec.scheduler == "random":
        return RandomChoice(seed)
    if spec.scheduler == "central":
        return CentralController()
    return NoRotation() if spec.scheduler == "none" else Competition()


def timing_of(spec: PoolSpec) -> Timing:
    """Patience for the pool's speed: real time that fits servers on one machine."""
    limit = spec.timer if spec.suspended is None else spec.suspended
    real = Timing(
        poll=SECOND // 5,
        lease=SECOND,
        alive=SECOND,
        patience=SECOND,
        suspended_limit=limit,
        without_store=spec.without_store,
    )
    return real.scaled(spec.speed)


def _given(spec: BitsSpec, period: int, folder: Path) -> Given:
    bits = read_bits(folder / spec.file) if spec.file is not None else check_bits(spec.bits or "")
    return Given(bits.tolist(), period, spec.first)
