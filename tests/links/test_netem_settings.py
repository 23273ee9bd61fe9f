"""What netem is asked for, computed without a kernel."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import TestbedError
from testbed.net import netem, qdisc
from testbed.net.netlink import Request, attributes
from testbed.plan.types import Impairment

SHARES = st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1))
IMPAIRMENTS = st.builds(
    Impairment,
    delay_us=st.integers(0, 10**8),
    jitter_us=st.integers(0, 2_147_483),
    loss=SHARES,
    duplicate=SHARES,
    corrupt=SHARES,
    reorder=st.booleans(),
    rate_bps=st.none() | st.integers(8, 10**12),
)


def options_of(request: Request) -> tuple[str, bytes]:
    """Kind and options in a request, as the kernel finds them."""
    parts = attributes(bytes(request.data), 16 + 20)
    return parts[1].rstrip(b"\0").decode(), parts[2]


@given(IMPAIRMENTS, st.integers(68, 65535))
def test_requests_say_what_was_settled(impairment: Impairment, mtu: int) -> None:
    """Encoding and decoding are each other's inverse; a bucket's burst to within what 64 ns carry."""
    wanted = netem.settings(impairment, mtu)
    split, delay, rate = (options_of(request) for request in netem.requests(7, "eth0", wanted))
    assert (split[0], delay[0], rate[0]) == ("tbf", "netem", "tbf")
    assert qdisc.decode_netem(delay[1]) == wanted.netem
    for options, bucket in ((split[1], wanted.split), (rate[1], wanted.rate)):
        found = qdisc.decode_tbf(options)
        assert (found.rate, found.limit) == (bucket.rate, bucket.limit)
        assert struct.unpack("=I", attributes(options, 0)[6])[0] == bucket.burst


@given(st.floats(0.001, 0.9), st.floats(1, 1000))
def test_bursts_lose_the_share_that_was_asked_for(loss: float, burst: float) -> None:
    """In the model's long run p / (p + r) of the packets are lost, 1 / r at a time."""
    impairment = Impairment(loss=loss, loss_burst=burst)
    if loss > burst / (1 + burst):
        with pytest.raises(TestbedError, match="cannot be lost in bursts"):
            netem.settings(impairment, 1500)
        return
    found = netem.settings(impairment, 1500).netem
    assert found.loss == 0
    assert found.gilbert is not None
    begin, end = (value / (2**32 - 1) for value in found.gilbert)
    assert begin / (begin + end) == pytest.approx(loss, rel=1e-3)
    assert 1 / end == pytest.approx(burst, rel=1e-3)


def test_all_or_nothing_needs_no_bursts() -> None:
    assert netem.settings(Impairment(loss=1, loss_burst=5), 1500).netem.loss == 2**32 - 1
    assert netem.settings(Impairment(loss=0, loss_burst=5), 1500).netem.gilbert is None


@given(IMPAIRMENTS)
def test_c14_limit_holds_the_link_full_of_small_packets(impairment: Impairment) -> None:
    """C14: never less than the default, never more than the machine has memory for, else rate x delay."""
    found = netem.limit(impairment)
    assert 1000 <= found <= 1_000_000
    per_second = min((impairment.rate_bps or 10**12) / 8 / 64, 1_500_000)
    assert found >= min(per_second * impairment.delay_us / 1e6, 1_000_000)


def test_order_is_kept_unless_it_need_not_be() -> None:
    assert netem.settings(Impairment(delay_us=9, jitter_us=3), 1500).netem.rate > 2**32
    assert netem.settings(Impairment(delay_us=9, jitter_us=3, reorder=True), 1500).netem.rate == 0


@pytest.mark.parametrize("change", [{"loss": 0.1}, {"duplicate": 0.1}, {"corrupt": 0.1}, {"rate_bps": 10**6}])
def test_frames_are_cut_where_packets_are_treated_one_by_one(change: dict[str, float]) -> None:
    whole = netem.settings(Impairment(delay_us=1000), 1500).split.burst
    assert whole > 2**16
    assert 1514 <= netem.settings(Impairment(delay_us=1000, **change), 1500).split.burst < 2 * 1500


def test_a_tiny_share_is_not_nothing() -> None:
    assert qdisc.fraction(1e-15) == 1
    assert qdisc.fraction(0) == 0
    assert qdisc.fraction(1) == 2**32 - 1


def test_what_netem_cannot_do_is_refused() -> None:
    with pytest.raises(TestbedError, match="jitter of 3000000 us"):
        netem.settings(Impairment(delay_us=4_000_000, jitter_us=3_000_000), 1500)
    with pytest.raises(TestbedError, match="is none"):
        netem.settings(Impairment(loss=0.1, loss_burst=0.5), 1500)
