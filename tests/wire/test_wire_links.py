"""What the links of both cores do to real packets."""

from __future__ import annotations

import hashlib
import os
import socket
import threading

import pytest
from rates import middle_rate
from waiting import await_true
from wire_traffic import ANY_CORE, MakeWorld, Stream, link_name, reaches, reference, round_trips

from bench.wire_world import World, pair, plan_of, star
from testbed.net.wire.model import behaviour
from testbed.net.wire.process import OVERHEAD
from testbed.net.wire.tap import VNET_HEADER

EARLY = 0.1
"""Milliseconds by which a packet may come too early: frames due almost together leave in one go."""
HEADERS = 14 + 20 + 8
"""Bytes of the Ethernet, IPv4 and UDP headers."""

pytestmark = pytest.mark.root


def test_c12_delay_is_one_way(make_world: MakeWorld) -> None:
    """C12: each direction has its own delay, the round trip is their sum, and no packet is ever early."""
    world = make_world(pair(forward={"delay": "20ms"}, backward={"delay": "50ms"}))
    times = round_trips(world)
    assert times[0] >= 70 - 2 * EARLY
    assert times[0] < 100
    for source, target, delay in (("a", "b", 20), ("b", "a", 50)):
        with Stream(world, source, target) as stream:
            stream.send(range(50), pause=0.002)
            delays = sorted(arrival.milliseconds for arrival in stream.receive(50))
        assert len(delays) == 50
        assert delays[0] >= delay - EARLY
        assert delays[0] < delay + 15


def test_two_links_add_up(make_world: MakeWorld) -> None:
    """A path over a router has the delays of both its links, also of links of different kinds."""
    topology = star(2, delay="20ms")
    topology["nodes"]["plain"] = None
    topology["links"].append(["core", "plain"])
    world = make_world(topology)
    assert 80 - EARLY <= round_trips(world, source="h1", target="h2")[0] < 110
    assert 40 - EARLY <= round_trips(world, source="h1", target="plain")[0] < 70


def test_jitter_keeps_order(make_world: MakeWorld) -> None:
    """Delays vary within their bounds, and no packet overtakes another."""
    world = make_world(pair(delay="40ms", jitter="20ms"))
    with Stream(world) as stream:
        stream.send(range(400), pause=0.001)
        found = stream.receive(400)
    assert [arrival.number for arrival in found] == list(range(400))
    delays = sorted(arrival.milliseconds for arrival in found)
    assert delays[0] >= 20 - EARLY
    assert delays[0] < 45
    assert delays[-1] - delays[0] > 5


def test_jitter_with_reordering(make_world: MakeWorld) -> None:
    """With reordering every packet comes, but not in the order in which it was sent."""
    world = make_world(pair(delay="40ms", jitter="20ms", reorder=True))
    with Stream(world) as stream:
        stream.send(range(400), pause=0.001)
        numbers = [arrival.number for arrival in stream.receive(400)]
    assert sorted(numbers) == list(range(400))
    assert numbers != sorted(numbers)


@pytest.mark.parametrize("burst", [None, 4])
def test_loss_is_the_model_s(make_world: MakeWorld, burst: int | None) -> None:
    """From the seed follows exactly which packets are lost; their statistics are those of the model's tests."""
    plan = plan_of({**pair(forward={"loss": "20%"}), "seed": 7})
    link = plan.links[0]
    forward = link.forward.model_copy(update={"loss_burst": burst})
    world = make_world(plan.model_copy(update={"links": (link.model_copy(update={"forward": forward}),)}))
    it = reference(world)
    assert it.now.burst is bool(burst)
    wanted = [number for number in range(3000) if it.arrive(number, HEADERS + 64)]
    with Stream(world) as stream:
        stream.send(range(3000), pause=0.001, burst=50)
        numbers = [arrival.number for arrival in stream.receive(len(wanted))]
    assert numbers == wanted
    with world.wire() as wire:
        counters = wire.statistics()[link_name(world)]["forward"].counters
    assert (counters.frames, counters.lost, counters.delivered) == (3000, 3000 - len(wanted), len(wanted))
    assert counters.bytes == 3000 * (HEADERS + 64)


def test_duplicates_are_the_model_s(make_world: MakeWorld) -> None:
    """From the seed follows exactly which packets come twice."""
    world = make_world({**pair(forward={"delay": "5ms", "duplicate": "10%"}), "seed": 8})
    it = reference(world)
    wanted = [number for number in range(1000) for _ in it.arrive(number, HEADERS + 64)]
    with Stream(world) as stream:
        stream.send(range(1000), pause=0.001, burst=20)
        assert [arrival.number for arrival in stream.receive(len(wanted))] == wanted
    assert len(wanted) > 1000


def test_corruption_flips_one_bit(make_world: MakeWorld) -> None:
    """A damaged packet differs in exactly the model's bit; none reaches a program, the checksums see to that."""
    world = make_world({**pair(forward={"delay": "5ms", "corrupt": "40%"}), "seed": 9})
    it = reference(world)
    bits = [it.arrive(number, HEADERS + 64)[0][1] for number in range(500)]
    with Stream(world) as stream, world.inside("b", lambda: _packet_socket("eth0")) as tap:
        stream.send(range(500), size=64, pause=0.001, burst=20)
        good = [arrival.number for arrival in stream.receive(bits.count(-1))]
        frames = [tap.recv(2048) for _ in range(500)]
    assert good == [number for number, bit in enumerate(bits) if bit < 0]
    for number, frame in enumerate(frames):
        numbers = {int.from_bytes(frame[HEADERS : HEADERS + 8], "little")}
        bit = bits[number]
        if bit < 0:
            assert numbers == {number}
        elif bit // 8 in range(HEADERS, HEADERS + 8):
            flipped = bytearray(frame)
            flipped[bit // 8] ^= 1 << bit % 8
            assert int.from_bytes(flipped[HEADERS : HEADERS + 8], "little") == number
    snmp = world.run("b", "cat", "/proc/net/snmp")
    udp, ip = (_counters(snmp, name) for name in ("Udp:", "Ip:"))
    assert udp["InCsumErrors"] > 0
    assert ip["InHdrErrors"] + ip["InAddrErrors"] > 0


def _packet_socket(ifname: str) -> socket.socket:
    result = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    result.bind((ifname, 0))
    result.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    result.settimeout(5)
    return result


def _counters(snmp: str, name: str) -> dict[str, int]:
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith(name))
    return dict(zip(names, map(int, values), strict=True))


def transfer(world: World, size: int) -> bytes:
    """SHA-256 of what arrives when ``a`` sends ``size`` random bytes to ``b`` by TCP; compared with what was sent."""
    data = os.urandom(size)
    listener = world.inside("b", lambda: socket.create_server((world.address("b"), 5002)))
    sender = world.inside("a", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    with listener, sender:
        sender.settimeout(60)
        listener.settimeout(60)
        sender.connect((world.address("b"), 5002))
        connection, _ = listener.accept()
        thread = threading.Thread(target=lambda: (sender.sendall(data), sender.shutdown(socket.SHUT_WR)))
        thread.start()
        digest = hashlib.sha256()
        with connection:
            connection.settimeout(60)
            while piece := connection.recv(1 << 20):
                digest.update(piece)
        thread.join()
    assert digest.digest() == hashlib.sha256(data).digest()
    return digest.digest()


def test_joined_segments(make_world: MakeWorld) -> None:
    """On a link that only delays, TCP passes in runs of segments; where packets have fates of their own they are
    single, and that changes back and forth on a live link."""
    world = make_world(pair(delay="1ms"))
    name = link_name(world)
    with world.wire() as wire:

        def mean_length() -> float:
            before = wire.statistics()[name]["forward"].counters
            transfer(world, 8_000_000)
            after = wire.statistics()[name]["forward"].counters
            return (after.bytes - before.bytes) / (after.frames - before.frames)

        assert mean_length() > 3000
        wire.change(name, forward={"loss": 0.001})
        assert mean_length() <= 1514
        wire.change(name, forward={"loss": 0})
        assert mean_length() > 3000


def test_tcp_survives_it_all(make_world: MakeWorld) -> None:
    """Data arrive whole over a link that loses, doubles, damages and reorders."""
    settings = {"delay": "2ms", "jitter": "1ms", "loss": "1%", "duplicate": "1%", "corrupt": "1%", "reorder": True}
    world = make_world(pair(**settings))
    transfer(world, 500_000)
    with world.wire() as wire:
        counters = wire.statistics()[link_name(world)]["forward"].counters
    assert counters.lost > 0
    assert counters.duplicated > 0
    assert counters.corrupted > 0


@ANY_CORE
def test_c16_one_mtu(make_world: MakeWorld) -> None:
    """C16: a packet of exactly the MTU passes unfragmented, one byte more does not; also of a jumbo link."""
    world = make_world(
        {
            "nodes": {"a": None, "b": None, "c": None},
            "links": [
                {"endpoints": ["a", "b"], "mtu": 1400, "delay": "1ms"},
                {"endpoints": ["b", "c"], "mtu": 9000, "delay": "1ms"},
            ],
        }
    )
    for source, target, mtu in (("a", "b", 1400), ("c", "b", 9000)):
        peer = world.plan.links_of(source)[0].peer(source)
        assert peer.node == target
        words = ["ping", "-c1", "-M", "do", str(peer.addresses[0].ip)]
        assert "1 received" in world.run(source, *words, "-W2", "-s", str(mtu - 28))
        assert "1 received" not in world.run(source, *words, "-W0.3", "-s", str(mtu - 27))


def test_c14_no_drop_at_high_rate_and_delay(make_world: MakeWorld) -> None:
    """C14: thousands of packets in flight at once, and all arrive in order."""
    world = make_world(pair(delay="1500ms"))
    count = 8000
    with Stream(world) as stream:
        stream.send(range(count), size=1000, pause=0.001, burst=100)
        found = stream.receive(count, timeout=30)
    assert [arrival.number for arrival in found] == list(range(count))
    with world.wire() as wire:
        counters = wire.statistics()[link_name(world)]["forward"].counters
        overflowed = wire.statistics()[link_name(world)]["forward"].overflowed
    assert (counters.full, counters.refused, counters.in_flight, overflowed) == (0, 0, 0, 0)


def test_full_queue_drops_and_counts(make_world: MakeWorld) -> None:
    """A queue has an end, and what does not fit is counted; what is in it is not affected."""
    world = make_world(pair(delay="1ms"))
    name = link_name(world)
    with world.wire() as wire, Stream(world) as stream:
        settings = wire.change(name, forward={"delay_us": 600_000_000, "rate_bps": 1000}).forward
        room = behaviour(settings).limit_bytes // (HEADERS + 1400 + VNET_HEADER + OVERHEAD)
        stream.send(range(room + 500), size=1400, pause=0.001, burst=100)
        await_true(lambda: wire.statistics()[name]["forward"].counters.frames == room + 500, "frames")
        counters = wire.statistics()[name]["forward"].counters
        assert (counters.full, counters.in_flight) == (500, room)
        wire.change(name, forward={"rate_bps": 10**9})
        stream.send([1])
        await_true(lambda: wire.statistics()[name]["forward"].counters.in_flight == room + 1, "a frame")


@ANY_CORE
def test_rate(make_world: MakeWorld) -> None:
    """A token bucket at the TAP limits a delayed link: bytes by the receiver's clock, 15 % either way."""
    rate_mbit = 8
    world = make_world(pair(delay="5ms", rate=f"{rate_mbit}mbit"))
    listener = world.inside("b", lambda: socket.create_server((world.address("b"), 5002)))
    sender = world.inside("a", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    over = threading.Event()

    def send() -> None:
        while not over.is_set():
            try:
                sender.send(bytes(65536))
            except OSError:
                return

    with listener, sender:
        sender.settimeout(30)
        listener.settimeout(30)
        sender.connect((world.address("b"), 5002))
        connection, _ = listener.accept()
        connection.settimeout(30)
        thread = threading.Thread(target=send)
        thread.start()
        try:
            warm = 0
            while warm < rate_mbit * 40_000:
                warm += len(connection.recv(65536))
            rate = middle_rate(connection)
        finally:
            over.set()
            connection.close()
            sender.close()
            thread.join()
    assert rate == pytest.approx(rate_mbit * 1e6 * 1448 / 1514, rel=0.15)


@ANY_CORE
def test_ipv6(make_world: MakeWorld) -> None:
    """Frames are carried whatever is in them."""
    world = make_world(
        {
            "nodes": {"a": None, "b": None},
            "links": [{"endpoints": ["a", "b"], "addresses": ["fd00::1/64", "fd00::2/64"], "delay": "5ms"}],
        }
    )
    assert reaches(world)


@ANY_CORE
def test_switch(make_world: MakeWorld) -> None:
    """A delayed link may end in a switch."""
    world = make_world(
        {
            "nodes": {"s": {"kind": "switch", "subnet": "10.9.0.0/24"}, "a": None, "b": None},
            "links": [{"endpoints": ["a", "s"], "delay": "20ms"}, ["b", "s"]],
        }
    )
    assert round_trips(world)[0] >= 40 - 2 * EARLY


def test_many_links(make_world: MakeWorld) -> None:
    """Each of forty links carries its own traffic with its own delay."""
    count = 40
    topology = star(count)
    for number, link in enumerate(topology["links"]):
        link["delay"] = f"{5 + number}ms"
    world = make_world(topology)
    for number in (1, 20, 40):
        times = round_trips(world, 5, source=f"h{number}", target="core")
        assert times == [] or times[0] >= 2 * (4 + number) - EARLY
    assert all(reaches(world, f"h{number}", f"h{count + 1 - number}") for number in range(1, 9))
