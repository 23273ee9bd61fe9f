"""Samplers against the real /proc, and against real namespaces."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from waiting import await_true

from testbed.errors import TestbedError
from testbed.measure.sampler import Counter, Sampler, _parse, link_counters
from testbed.measure.store import Run, RunReader
from testbed.net.namespace import inside
from testbed.plan.types import End, Link, Node, Plan

PROC_NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop ...
    lo:    100       1    0    0    0     0          0         0      200       2    0    0 0 0 0 0
odd:name-1: 12345678901 7 0 3 0 0 0 0 99 8 0 4 0 0 0 0
"""


def test_proc_net_dev_is_read_by_column() -> None:
    lines = dict(_parse(PROC_NET_DEV))
    assert list(lines) == ["lo", "odd:name-1"]
    assert (lines["lo"][0], lines["lo"][8]) == ("100", "200")
    assert (lines["odd:name-1"][0], lines["odd:name-1"][3], lines["odd:name-1"][11]) == ("12345678901", "3", "4")


def test_counters_stand_at_the_routers_side() -> None:
    def link(a: str, b: str) -> Link:
        return Link(
            a=End(node=a, interface=b, ifname=f"{a}-{b}", mac="x"),
            b=End(node=b, interface=a, ifname=f"{b}-{a}", mac="x"),
        )

    nodes = tuple(Node(name=name) for name in ("core", "shop1", "shop2"))
    plan = Plan(name="x", nodes=nodes, links=(link("core", "shop1"), link("shop2", "core")))
    assert link_counters(plan, "core", ["shop2", "shop1"]) == [
        Counter("core-shop2", "bytes_from", "shop2", "rx_bytes"),
        Counter("core-shop2", "bytes_to", "shop2", "tx_bytes"),
        Counter("core-shop1", "bytes_from", "shop1", "rx_bytes"),
        Counter("core-shop1", "bytes_to", "shop1", "tx_bytes"),
    ]


def test_samples_are_due_at_multiples_of_the_period(run: Run) -> None:
    period = 0.05
    with Sampler(run, period=period) as sampler:
        await_true(lambda: len(RunReader(run.path).samples("sampling_late")) > 20, "twenty samples")
    sampler.stop()  # idle
    run.close("passed")
    late = RunReader(run.path).samples("sampling_late")
    due = [sample.t - sample.value for sample in late]
    numbers = [(t - due[0]) / period for t in due[:-1]]  # the last was taken when told to stop
    assert numbers == pytest.approx([round(number) for number in numbers], abs=1e-6)
    assert all(later > earlier for earlier, later in pairwise(numbers))
    assert all(0 <= sample.value < 1 for sample in RunReader(run.path).samples("sampling_cost"))


def test_a_sampler_that_is_stopped_at_once_has_a_first_and_a_last_sample(run: Run) -> None:
    with Sampler(run, period=3600):
        pass
    run.close("passed")
    assert len(RunReader(run.path).samples("sampling_late")) == 2


def test_stopping_one_that_never_started_is_fine(run: Run) -> None:
    Sampler(run).stop()


def test_a_busy_machine_looks_busy(run: Run) -> None:
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        sampler = Sampler(run, period=0.3)
        sampler.process("spinner", spinners[0].pid)
        with sampler:
            await_true(lambda: len(RunReader(run.path).samples("cpu_busy")) >= 3, "three samples of the CPU")
            # The first samples may be of a program that has hardly been loaded.
            await_true(lambda: loaded(RunReader(run.path)), "the spinner to take the memory of a Python")
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    reader = RunReader(run.path)
    assert max(sample.value for sample in reader.samples("cpu_busy")) > 0.8
    assert all(0 <= sample.value <= 1 for sample in reader.samples("cpu_busy") + reader.samples("cpu_steal"))
    used = [sample.value for sample in reader.samples("cpu_seconds", "spinner")]
    assert used == sorted(used)
    assert used[-1] > used[0]


def loaded(reader: RunReader) -> bool:
    """Whether the last sample of the spinner's memory is more than a MiB."""
    return [sample.value for sample in reader.samples("rss_bytes", "spinner")][-1:] > [2**20]


def test_a_process_that_ends_stops_being_sampled(run: Run) -> None:
    child = subprocess.Popen(["sleep", "100"])
    sampler = Sampler(run, period=0.02, cpu=False)
    sampler.process("child", child.pid)
    sampler.process("nobody", 2**22 + 1)
    with sampler:
        await_true(lambda: bool(RunReader(run.path).samples("rss_bytes", "child")), "a sample of the child")
        child.kill()
        child.wait()
        seen = len(RunReader(run.path).samples("sampling_late"))
        await_true(
            lambda: len(RunReader(run.path).samples("sampling_late")) > seen + 3, "samples after the child's end"
        )
    assert not RunReader(run.path).samples("rss_bytes", "nobody")


def test_what_the_store_says_comes_out_at_stop(run: Run) -> None:
    sampler = Sampler(run, period=0.01)
    sampler.start()
    run.close("passed")
    assert sampler._done.wait(10)  # it has ended by itself
    with pytest.raises(TestbedError, match="closed"):
        sampler.stop()


def test_a_namespace_that_is_not_there(run: Run, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="cannot enter the network namespace"):
        Sampler(run).interfaces(tmp_path / "none", [Counter("eth0", "bytes", "a")])


@pytest.fixture
def pair() -> Iterator[tuple[Path, Path]]:
    """Two namespaces joined by a veth pair: ``left`` 10.9.9.1 and ``right`` 10.9.9.2."""
    names = [f"tbtest-{os.getpid()}-{side}" for side in ("left", "right")]
    commands = [f"ip netns add {name}" for name in names]
    commands += [f"ip -n {names[0]} link add left type veth peer name right netns {names[1]}"]
    for number, (name, ifname) in enumerate(zip(names, ("left", "right"), strict=True), 1):
        commands += [f"ip -n {name} addr add 10.9.9.{number}/24 dev {ifname}", f"ip -n {name} link set {ifname} up"]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        yield Path("/run/netns", names[0]), Path("/run/netns", names[1])
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.root
def test_counters_of_a_namespace(run: Run, pair: tuple[Path, Path]) -> None:
    left, right = pair
    root = os.stat("/proc/self/ns/net").st_ino
    sampler = Sampler(run, period=3600)  # a first and a last sample, nothing between
    sampler.interfaces(
        right, [Counter("right", "bytes_from", "left"), Counter("right", "packets", "left", "rx_packets")]
    )
    sampler.interfaces(left, [Counter("left", "sent", "left", "tx_bytes")])

    def udp() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    with inside(left, udp) as sender, inside(right, udp) as receiver, sampler:
        receiver.bind(("10.9.9.2", 0))
        receiver.settimeout(20)
        for _ in range(50):
            sender.sendto(b"x" * 1000, receiver.getsockname())
            assert len(receiver.recv(2000)) == 1000
    assert os.stat("/proc/self/ns/net").st_ino == root
    run.close("passed")
    reader = RunReader(run.path)
    for series, least in (("bytes_from", 50 * 1042), ("sent", 50 * 1042), ("packets", 50)):
        first, last = (sample.value for sample in reader.samples(series, "left"))
        assert least <= last - first < least + 10_000  # and some ARP and ND


@pytest.mark.root
def test_an_interface_that_is_not_there(run: Run, pair: tuple[Path, Path]) -> None:
    with pytest.raises(TestbedError, match="no interface nosuch"):
        Sampler(run).interfaces(pair[0], [Counter("nosuch", "bytes", "a")])


@pytest.mark.root
def test_a_sampled_namespace_is_let_go(run: Run, pair: tuple[Path, Path]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    sampler = Sampler(run)
    sampler.interfaces(pair[0], [Counter("left", "bytes", "a")])
    with sampler:
        pass
    assert len(os.listdir("/proc/self/fd")) == before
