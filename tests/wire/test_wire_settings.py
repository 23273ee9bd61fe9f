"""What can be set, and what is refused with a clear word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import TestbedError
from testbed.net.wire.model import LEAST_QUEUE, ONE, behaviour
from testbed.net.wire.settings import Settings, settings_of
from testbed.plan.types import Impairment


def test_of_a_plan() -> None:
    """Every property of a plan's impairment arrives."""
    impairment = Impairment(
        delay_us=1, jitter_us=2, loss=0.3, loss_burst=4, duplicate=0.5, corrupt=0.6, reorder=True, rate_bps=7
    )
    assert settings_of(impairment).plain() == impairment.model_dump()


def test_one_property_changes_and_others_stay() -> None:
    """A change names what it changes."""
    old = Settings(delay_us=5000, loss=0.1, rate_bps=1000)
    assert old.changed({"delay_us": 80_000}) == Settings(delay_us=80_000, loss=0.1, rate_bps=1000)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"delay_us": -1}, "delay_us cannot be -1"),
        ({"delay_us": 2.5}, "delay_us cannot be 2.5"),
        ({"delay_us": True}, "delay_us cannot be True"),
        ({"delay_us": "80ms"}, "delay_us cannot be '80ms'"),
        ({"delay_us": 10**12}, "delay_us"),
        ({"jitter_us": None}, "jitter_us cannot be None"),
        ({"loss": 1.5}, "loss cannot be 1.5"),
        ({"loss": float("nan")}, "loss cannot be nan"),
        ({"duplicate": "much"}, "duplicate"),
        ({"corrupt": -0.1}, "corrupt"),
        ({"reorder": 1}, "reorder cannot be 1"),
        ({"rate_bps": 0}, "rate_bps cannot be 0"),
        ({"loss": 0.1, "loss_burst": 0.5}, "loss_burst cannot be 0.5"),
        ({"loss": 0.9, "loss_burst": 2}, "at least one packet passes between two bursts\n  bursts of at least 9 "),
        ({"delya_us": 1}, "no property 'delya_us'\n  did you mean 'delay_us'"),
        ({"x": 1}, "properties: delay_us, jitter_us"),
    ],
)
def test_refused(change: dict[str, object], named: str) -> None:
    """Impossible values name the property, the value and what would do."""
    with pytest.raises(TestbedError) as error:
        Settings().changed(change)
    assert named in str(error.value)


def test_c14_queue_from_rate_and_delay() -> None:
    """C14: the queue holds more than rate x delay, whatever they are; without a rate, ten gigabits a second."""
    for delay_us, rate in ((100_000, 10**9), (500_000, 10**8), (1, 10**6), (50_000, None)):
        limit = behaviour(Settings(delay_us=delay_us, jitter_us=delay_us // 2, rate_bps=rate)).limit_bytes
        in_flight = (rate or 10**10) / 8 * delay_us * 1.5 / 1e6
        assert limit >= 2 * in_flight * 0.999
        assert limit >= LEAST_QUEUE


@given(loss=st.floats(0.0001, 0.9), burst=st.floats(1, 1000))
def test_burst_parameters(loss: float, burst: float) -> None:
    """The chances to enter and leave a burst give the loss and the length that were asked for."""
    if burst < loss / (1 - loss):
        with pytest.raises(TestbedError, match="impossible"):
            Settings(loss=loss, loss_burst=burst)
        return
    it = behaviour(Settings(loss=loss, loss_burst=burst))
    assert it.enter / (it.enter + it.leave) == pytest.approx(loss, rel=1e-6)
    assert ONE / it.leave == pytest.approx(burst, rel=1e-6)
