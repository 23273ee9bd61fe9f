"""The engine of a link test: each that works here, or those that the environment names.

``LINK_ENGINES=netem`` means these and no others, and is an error where one of them does not work: the tests under
User-Mode-Linux must not pass because nothing was tested.
"""

from __future__ import annotations

import functools
import os

import pytest
from link_engines import ENGINES, LinkEngine

_NAMED = os.environ.get("LINK_ENGINES", "").split()


@functools.cache
def _lack(name: str) -> str:
    return ENGINES[name]().lack()


def pytest_report_header() -> str:
    """Which engines are tried."""
    return f"link engines: {' '.join(_NAMED or ENGINES)}"


@pytest.fixture(params=_NAMED or ENGINES)
def engine(request: pytest.FixtureRequest) -> LinkEngine:
    """An engine that works on this machine."""
    name: str = request.param
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if lack := _lack(name):
        message = f"{name} does not work here: {lack}"
        if name in _NAMED:
            pytest.fail(message)
        pytest.skip(f"{message} (tests/vm tries it in a virtual machine)")
    return ENGINES[name]()
