"""Rates are kept, alone and with a delay, and what is within the rate is not dropped."""

from __future__ import annotations

import socket
import threading
import time
from bisect import bisect_right

import pytest
from link_engines import LinkEngine
from link_traffic import (
    FRAME_HEADERS,
    IP_AND_UDP,
    Arrival,
    Flow,
    Late,
    assert_delay,
    assert_rate,
    repeated_if_late,
)
from link_world import ImpairedLink, impaired_link

from testbed.net import namespace
from testbed.plan.types import Impairment

pytestmark = pytest.mark.root

MTU = 1500
FULL = MTU - IP_AND_UDP
"""Bytes of the largest datagram."""
RATE = 2_000_000
"""A full packet takes 6 ms. At higher rates a busy or virtual machine would be measured: a token bucket makes up
for one packet that goes late, not for two."""


def overload(link: ImpairedLink, source: str = "a", seconds: float = 1.5) -> list[Arrival]:
    """What arrives of some seconds of traffic at twice the rate."""
    every = (FULL + FRAME_HEADERS) * 8 / RATE / 2
    with Flow(link, source) as flow:
        flow.send(round(seconds / every), size=FULL, every=every)
        arrivals = flow.arrivals()
        assert source == "a" or len(arrivals) == len(flow.sent)
        return arrivals


@repeated_if_late
def test_rate_in_one_direction(engine: LinkEngine) -> None:
    with impaired_link(engine, forward=Impairment(rate_bps=RATE, loss=1e-6)) as link:
        assert_rate(overload(link), FULL, RATE)
        assert_delay([arrival.delay for arrival in overload(link, "b", 0.3)], 0)


@repeated_if_late
def test_rate_with_delay(engine: LinkEngine) -> None:
    """Both hold at once: for datagrams exactly, and TCP can make use of the link."""
    delay = 0.020
    impairment = Impairment(rate_bps=RATE, delay_us=round(delay * 1e6))
    with impaired_link(engine, forward=impairment, backward=impairment) as link:
        arrivals = overload(link)
        received = tcp_rate(link, skip=100_000, seconds=1.5)
    assert_rate(arrivals, FULL, RATE, delay)
    assert_delay([arrivals[0].delay], delay)
    of_a_frame = (MTU - 52) / (MTU + 14)  # what IP and TCP with timestamps leave
    assert received < 1.05 * RATE * of_a_frame
    if received < 0.7 * RATE * of_a_frame:
        raise Late(f"TCP reached only {received / 1e6:.3f} Mbit/s")


def tcp_rate(link: ImpairedLink, *, skip: int, seconds: float) -> float:
    """Bits a second that a TCP connection from ``a`` delivers once ``skip`` bytes have come."""
    listener = namespace.inside(link.namespaces["b"], lambda: socket.create_server((link.address("b"), 5002)))
    sender = namespace.inside(link.namespaces["a"], lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    sender.settimeout(30)
    over = threading.Event()

    def send() -> None:
        block = bytes(65536)
        try:
            sender.connect((link.address("b"), 5002))
            while not over.is_set():
                sender.send(block)
        except OSError:
            return

    thread = threading.Thread(target=send)
    thread.start()
    try:
        connection, _ = listener.accept()
        connection.settimeout(30)
        total = 0
        while total < skip:
            total += len(connection.recv(65536))
        start, total = time.monotonic(), 0
        while time.monotonic() - start < seconds:
            total += len(connection.recv(65536))
        passed = time.monotonic() - start
    finally:
        over.set()
        connection.close()
        sender.close()
        listener.close()
        thread.join()
    return total * 8 / passed


@pytest.mark.parametrize("rate", [None, 200_000_000], ids=["no-rate", "200mbit"])
def test_c14_a_clean_link_drops_nothing(engine: LinkEngine, rate: int | None) -> None:
    """C14: thousands of packets under way at once all arrive; netem's default is to hold 1000."""
    count, delay = 4000, 0.8
    impairment = Impairment(delay_us=round(delay * 1e6), rate_bps=rate)
    for _ in range(3):
        with impaired_link(engine, forward=impairment) as link, Flow(link) as flow:
            flow.send(count, size=500, every=1 / 10_000)
            arrivals = flow.arrivals(quiet=3)
        assert [arrival.number for arrival in arrivals] == list(range(count))
        under_way = max(index - bisect_right(flow.sent, moment - delay) for index, moment in enumerate(flow.sent))
        if under_way > 1200:
            return
    pytest.skip(f"this machine is too busy to send fast: only {under_way} packets were under way at once")
