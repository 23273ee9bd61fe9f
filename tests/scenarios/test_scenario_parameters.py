"""Parameters of the onion scenarios: what does not fit is refused in words."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.measure.measure import Measure
from testbed.measure.store import Run
from testbed.plan.types import Plan
from testbed.progress import Silent
from testbed.tor.measure.experiment import fitting, one_number, signals, traffics


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., Measure]:
    """A recorder with these parameters."""

    def make(**parameters: str) -> Measure:
        run = Run.create(tmp_path, "parameters", Plan(name="one"), seed=1)
        run.close("passed")
        return Measure(run, repeats=1, seed=1, parameters=parameters, progress=Silent())

    return make


def test_what_fits(measure: Callable[..., Measure]) -> None:
    """Numbers that the topology has no instances for are left out, as long as one fits."""
    given = measure(instances="2,3,60", fresh="7", signal="SIGKILL, int", traffic="none,500ms")
    assert fitting(given, "instances", 6, least=2) == [2, 3]
    assert one_number(given, "fresh") == 7
    assert signals(given) == {"SIGKILL": signal.SIGKILL, "int": signal.SIGINT}
    assert traffics(given, "other") == {"none": ("", 0.0), "500ms": ("other", 0.5)}
    assert traffics(given, "") == {"none": ("", 0.0)}


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda given: fitting(given, "instances", 3, least=2), "the topology allows for 2 to 3, instances is 1,60"),
        (lambda given: one_number(given, "instances"), "parameter instances: '1,60' is not one whole number above 0"),
        (lambda given: one_number(given, "fresh"), "parameter fresh: '0' is not one whole number above 0"),
        (lambda given: signals(given), "there is no signal 'SIGNAL'"),
        (lambda given: traffics(given, "other"), "parameter traffic: "),
    ],
)
def test_what_does_not(measure: Callable[..., Measure], look: Callable[[Measure], Any], message: str) -> None:
    """The message names the parameter and what it is, the remedy what it may be."""
    with pytest.raises(TestbedError, match=message) as raised:
        look(measure(instances="1,60", fresh="0", signal="SIGNAL", traffic="5"))
    assert raised.value.remedy
