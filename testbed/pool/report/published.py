"""What the paper of 2016 (article number 2095-0020(2016)01-0032-06) publishes of its two experiments."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.pool.agents.clock import SECOND
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import Combined, Given, How, Stream

SERVERS = ("A", "B", "C")
HORIZON = 3600 * SECOND
TIMER = 250 * SECOND
DETECTION = "000001101001010101101100111110"
DETECTION_PERIOD = 120 * SECOND
PSEUDO_RANDOM = "010001111010101101100000010001010001110100000100110001111110"
PSEUDO_RANDOM_PERIOD = 60 * SECOND
OUTPUT = "010001111011111101100001010101010001110101010100110101111110"
"""Of experiment 2."""
SWEEP_PERIODS = tuple(seconds * SECOND for seconds in (10, 60, 90, 120, 300, 600, 900))


@dataclass(frozen=True, slots=True)
class Experiment:
    """Inputs and printed results. Times in microseconds, but for texts as they are printed."""

    name: str
    pseudo_random: bool
    migrations: int
    intervals: int
    cost: int
    """Of all migrations together."""
    service: str
    """Seconds."""
    efficiency: str
    """Per cent."""
    exposure: str
    """Mean seconds of an interval."""
    times: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    """Of A, B and C."""

    def schedule(self, how: How = "or") -> Schedule:
        """Its sequences and timer."""
        streams: dict[str, Stream] = {"detection": Given(map(int, DETECTION), DETECTION_PERIOD)}
        if self.pseudo_random:
            streams["pseudo-random"] = Given(map(int, PSEUDO_RANDOM), PSEUDO_RANDOM_PERIOD)
        return Schedule(Combined(streams, how), TIMER)


EXPERIMENT_1 = Experiment(
    name="experiment 1",
    pseudo_random=False,
    migrations=19,
    intervals=20,
    cost=141_900_000,
    service="3458.1",
    efficiency="96.06",
    exposure="172.9",
    times=tuple(
        seconds * SECOND
        for seconds in (
            *(250, 500, 720, 840, 1080, 1330, 1440, 1680, 1920, 2160),
            *(2280, 2520, 2640, 2890, 3000, 3120, 3240, 3360, 3480),
        )
    ),
    leaves=(7, 6, 6),
)
EXPERIMENT_2 = Experiment(
    name="experiment 2",
    pseudo_random=True,
    migrations=35,
    intervals=36,
    cost=252_900_000,
    service="3347.1",
    efficiency="92.98",
    exposure="93.0",
)
MIGRATION_COST = round((EXPERIMENT_1.cost + EXPERIMENT_2.cost) / (EXPERIMENT_1.migrations + EXPERIMENT_2.migrations))
"""Mean of one migration over both experiments, 7.3 s."""
