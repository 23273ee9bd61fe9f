"""Kernel names and hardware addresses."""

from __future__ import annotations

import contextlib
import re

from hypothesis import given
from hypothesis import strategies as st

from testbed.model.words import INTERFACE_PATTERN, check_endpoint, check_interface, check_name
from testbed.plan.names import MAX_IFNAME, kernel_ifname, mac_address

readable = st.from_regex(re.compile(INTERFACE_PATTERN), fullmatch=True).filter(lambda text: len(text) <= 80)


@given(readable)
def test_C1_a_kernel_name_fits_and_is_stable(name: str) -> None:
    assert 0 < len(kernel_ifname(name)) <= MAX_IFNAME
    assert kernel_ifname(name) == kernel_ifname(name)
    assert (kernel_ifname(name) == name) == (len(name) <= MAX_IFNAME)
    assert not set(kernel_ifname(name)) & set("/: \t\n")


@given(st.lists(readable, unique=True, min_size=2, max_size=50))
def test_C1_different_names_stay_different(names: list[str]) -> None:
    assert len({kernel_ifname(name) for name in names}) == len(names)


def test_C1_names_with_the_same_beginning_stay_different() -> None:
    names = [f"to-client-in-the-second-building-{number}" for number in range(5000)]
    assert len({kernel_ifname(name) for name in names}) == len(names)


@given(readable, readable)
def test_hardware_addresses_are_local_unicast(node: str, interface: str) -> None:
    mac = mac_address(node, interface)
    assert re.fullmatch(r"02(:[0-9a-f]{2}){5}", mac)
    assert mac == mac_address(node, interface)


@given(st.text(max_size=60))
def test_C2_what_passes_for_a_name_is_safe_everywhere(text: str) -> None:
    for check, pattern in (
        (check_name, r"[a-z0-9-]{1,40}"),
        (check_interface, r"[A-Za-z0-9_-]{1,40}"),
        (check_endpoint, r"[a-z0-9-]{1,40}(:[A-Za-z0-9_-]{1,40})?"),
    ):
        with contextlib.suppress(ValueError):
            assert re.fullmatch(pattern, check(text))
