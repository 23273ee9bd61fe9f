"""The hash ring of HSDirs. That it is tor's own ring is tested with a real network, in test_onion_network."""

from __future__ import annotations

import base64
import hashlib
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.tor.protocol.blinding import blinded_key, blinding_factor
from testbed.tor.protocol.hsdir import (
    Consensus,
    Router,
    parse_consensus,
    parse_microdescriptors,
    responsible_hsdirs,
)
from testbed.tor.protocol.keys import Ed25519Key

VALID_AFTER = 1_767_225_600 + 3600
KEY = Ed25519Key(b"k" * 32).public

CONSENSUS = """\
network-status-version 3 microdesc
vote-status consensus
valid-after 2026-01-01 01:00:00
fresh-until 2026-01-01 02:00:00
valid-until 2026-01-01 04:00:00
params hsdir_spread_store=3 other=-1
shared-rand-previous-value 9 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=
dir-source auth1 {identity} 10.0.0.1 10.0.0.1 7000 9001
r relay1 AAAAAAAAAAAAAAAAAAAAAAAAAAA 2026-01-01 00:59:00 10.0.0.2 9001 0
m {digest}
s Fast Guard HSDir Running V2Dir Valid
v Tor 0.4.9.11
w Bandwidth=0
r relay2 AQEBAQEBAQEBAQEBAQEBAQEBAQE 2026-01-01 00:59:00 10.0.0.3 9001 0
m BBBB
s Running Valid
directory-footer
"""
MICRODESCRIPTOR = "onion-key\nntor-onion-key abc\nid ed25519 " + "A" * 43 + "\n"


def network(count: int, spread: int = 3) -> tuple[Consensus, dict[str, bytes]]:
    """A consensus of ``count`` HSDirs and their identities."""
    flags = frozenset({"HSDir", "Running"})
    routers = tuple(Router(f"r{number}", f"{number:040X}", flags, f"m{number}") for number in range(count))
    identities = {f"m{number}": hashlib.sha256(bytes([number])).digest() for number in range(count)}
    consensus = Consensus(VALID_AFTER, VALID_AFTER + 3600, {"hsdir_spread_store": spread}, None, None, routers)
    return consensus, identities


def test_documents_are_read() -> None:
    """A consensus and its microdescriptors find each other by digest."""
    digest = base64.b64encode(hashlib.sha256(MICRODESCRIPTOR.encode()).digest()).decode().rstrip("=")
    consensus = parse_consensus(CONSENSUS.format(identity="A" * 40, digest=digest))
    assert consensus.valid_after == VALID_AFTER
    assert consensus.periods.interval == 3600
    assert consensus.params == {"hsdir_spread_store": 3, "other": -1}
    assert consensus.previous_srv == bytes(31) + b"\1"
    assert consensus.current_srv is None
    assert [router.nickname for router in consensus.routers] == ["relay1", "relay2"]
    assert consensus.routers[1].fingerprint == "01" * 20
    identities = parse_microdescriptors(MICRODESCRIPTOR * 2)
    assert identities[consensus.routers[0].microdescriptor] == bytes(32)
    ring = responsible_hsdirs(consensus, identities, KEY)
    assert [router.nickname for router in ring.fetched.hsdirs] == ["relay1"], "relay2 is no HSDir"


@pytest.mark.parametrize("missing", ["valid-after", "fresh-until", "m BBBB"])
def test_a_damaged_consensus_is_refused(missing: str) -> None:
    """ValueError, and not a ring of something else."""
    text = "\n".join(line for line in CONSENSUS.splitlines() if not line.startswith(missing))
    with pytest.raises(ValueError, match="consensus"):
        parse_consensus(text.format(identity="A" * 40, digest="CCCC"))


@settings(deadline=None, max_examples=20)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**40), st.integers(1, 2**20))
def test_blinding_agrees_with_another_implementation(seed: bytes, period: int, length: int) -> None:
    """stem has one, as a private function."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from stem.descriptor.hidden_service import _blinded_pubkey

    public = Ed25519Key(seed).public
    theirs = _blinded_pubkey(Ed25519PublicKey.from_public_bytes(public), blinding_factor(public, period, length))
    assert blinded_key(public, period, length) == theirs


def test_what_is_no_key_is_not_blinded() -> None:
    """Not every 32 bytes are a point of the curve."""
    with pytest.raises(ValueError, match="curve"):
        blinded_key(b"\xff" * 32, 1, 1440)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.randoms(use_true_random=False))
def test_each_replica_has_its_own_hsdirs(count: int, spread: int, order: random.Random) -> None:
    """Two replicas of ``spread`` HSDirs, none twice, fewer only where there are not more; order does not matter."""
    consensus, identities = network(count, spread)
    ring = responsible_hsdirs(consensus, identities, KEY)
    for responsible in (ring.current, ring.next):
        names = [router.nickname for router in responsible.hsdirs]
        assert len(names) == len(set(names)) == min(count, 2 * spread)
    shuffled = list(consensus.routers)
    order.shuffle(shuffled)
    again = responsible_hsdirs(replace(consensus, routers=tuple(shuffled)), identities, KEY)
    assert [router.nickname for router in again.current.hsdirs] == [router.nickname for router in ring.current.hsdirs]


def test_the_shared_random_value_moves_everything() -> None:
    """Current goes by the previous value, next by the current one."""
    consensus, identities = network(40)
    plain = responsible_hsdirs(consensus, identities, KEY)
    previous = responsible_hsdirs(replace(consensus, previous_srv=b"p" * 32), identities, KEY)
    assert previous.current.hsdirs != plain.current.hsdirs
    assert previous.next == plain.next
    current = responsible_hsdirs(replace(consensus, current_srv=b"c" * 32), identities, KEY)
    assert current.current == plain.current
    assert current.next.hsdirs != plain.next.hsdirs


def test_in_the_other_half_clients_fetch_next() -> None:
    """Twelve intervals later the periods are the same, but it is the second descriptor that clients ask for."""
    consensus, identities = network(40)
    first = responsible_hsdirs(consensus, identities, KEY)
    assert first.fetched is first.current
    later = replace(consensus, valid_after=VALID_AFTER + 12 * 3600, fresh_until=VALID_AFTER + 13 * 3600)
    second = responsible_hsdirs(later, identities, KEY)
    assert second.fetched is second.next
    assert (second.current.period, second.next.period) == (first.current.period, first.next.period)
    assert first.current.blinded_key == second.current.blinded_key
