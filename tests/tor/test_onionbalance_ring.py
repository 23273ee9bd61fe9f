"""OnionBalance's choice of HSDirs, with what is changed in it, is the one of the specification on small rings too."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onionbalance.hs_v3 import hashring, onionbalance, params

from testbed.tor.balance.child import set_ring

places = st.lists(st.integers(0, 255), min_size=6, max_size=14, unique=True)


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change, for one test; and a network, of which only the ring is asked."""
    monkeypatch.setattr(hashring, "sorted", sorted, raising=False)
    set_ring()
    consensus = SimpleNamespace(is_live=lambda: True)
    monkeypatch.setattr(onionbalance, "my_onionbalance", SimpleNamespace(consensus=consensus, is_testnet=False))
    monkeypatch.setattr(params, "HSDIR_SPREAD_STORE", 3)


@pytest.mark.usefixtures("ring")
@given(places, st.integers(0, 255), st.integers(0, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_next_three_that_are_not_taken_yet(nodes: list[int], first: int, second: int) -> None:
    """rend-spec-v3 2.2.3: for each replica the nodes that follow its place, without those of the replica before."""
    by_place = {bytes([place]): SimpleNamespace(get_hex_fingerprint=lambda place=place: str(place)) for place in nodes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashring, "_get_hash_ring_for_descriptor", lambda first: by_place)
        patch.setattr(
            hashring, "_get_hidden_service_index", lambda key, replica, _: bytes([first if replica == 1 else second])
        )
        found = hashring.get_responsible_hsdirs(b"", True)
    wanted: list[int] = []
    for index in (first, second):
        following = sorted(nodes, key=lambda place: (place < index, place))
        wanted += [place for place in following if place not in wanted][:3]
    assert found == [str(place) for place in wanted]
