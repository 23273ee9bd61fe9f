"""Changing a link that carries traffic."""

from __future__ import annotations

import pytest
from waiting import await_true
from wire_traffic import (
    ANY_CORE,
    MakeWorld,
    Stream,
    addresses_and_routes,
    has_carrier,
    link_name,
    reaches,
    reference,
    round_trips,
)

from bench.wire_world import pair, star
from testbed.errors import TestbedError
from testbed.net.wire.model import behaviour
from testbed.net.wire.settings import Settings

pytestmark = pytest.mark.root


@ANY_CORE
def test_one_property_of_one_direction(make_world: MakeWorld) -> None:
    """A change is in force at once, is what is read back, and leaves the rest of the link and other links alone."""
    world = make_world(star(2, delay="20ms", jitter="1ms"))
    first, second = (link.name for link in world.plan.links)
    with world.wire() as wire:
        before = wire.links()
        after = wire.change(first, forward={"delay_us": 60_000})
        assert after.forward == Settings(delay_us=60_000, jitter_us=1000)
        assert after.backward == before[first].backward
        assert wire.links() == {first: after, second: before[second]}
    times = round_trips(world, source="h1", target="core")
    assert 78 - 0.2 <= times[len(times) // 2] < 120


def test_c11_no_packet_is_lost_or_overtaken_by_changes(make_world: MakeWorld) -> None:
    """C11: while delay, jitter and the handling of single packets change to and fro, a stream arrives whole and in
    order."""
    world = make_world(pair(delay="80ms"))
    name = link_name(world)
    changes: list[dict[str, object]] = [
        {"delay_us": 10_000},
        {"delay_us": 60_000, "jitter_us": 5000},
        {"delay_us": 0, "jitter_us": 0},
        {"delay_us": 100_000, "corrupt": 1e-12},
        {"corrupt": 0},
        {"delay_us": 5_000},
        {"jitter_us": 20_000},
        {"jitter_us": 0, "duplicate": 1e-12},
    ]
    with world.wire() as wire, Stream(world) as stream:
        for number, change in enumerate(changes):
            stream.send(range(number * 100, number * 100 + 100), pause=0.001)
            wire.change(name, forward=change)
        stream.send(range(800, 900), pause=0.001)
        found = stream.receive(900)
    assert [arrival.number for arrival in found] == list(range(900))


def test_shorter_delay_keeps_order(make_world: MakeWorld) -> None:
    """A packet sent after a change does not overtake those that were sent before it, unless reordering is allowed."""
    world = make_world(pair(delay="400ms"))
    name = link_name(world)
    with world.wire() as wire, Stream(world) as stream:
        for reorder, wanted in ((False, [*range(11)]), (True, [10, *range(10)])):
            wire.change(name, forward={"delay_us": 400_000, "reorder": reorder})
            stream.send(range(10))
            await_true(lambda: wire.statistics()[name]["forward"].counters.in_flight == 10, "packets in flight")
            wire.change(name, forward={"delay_us": 0})
            stream.send([10])
            assert [arrival.number for arrival in stream.receive(11)] == wanted


def test_loss_set_live_is_the_model_s(make_world: MakeWorld) -> None:
    """The generator does not start anew with a change."""
    world = make_world({**pair(delay="1ms", forward={"loss": "10%"}), "seed": 3})
    it = reference(world)
    wanted = [number for number in range(500) if it.arrive(number, 100)]
    it.change(behaviour(Settings(delay_us=1000, loss=0.5)))
    wanted += [number for number in range(500, 1000) if it.arrive(number, 100)]
    with world.wire() as wire, Stream(world) as stream:
        stream.send(range(500), pause=0.001, burst=10)
        await_true(lambda: wire.statistics()[link_name(world)]["forward"].counters.frames == 500, "frames")
        wire.change(link_name(world), forward={"loss": 0.5})
        stream.send(range(500, 1000), pause=0.001, burst=10)
        assert [arrival.number for arrival in stream.receive(len(wanted))] == wanted


@ANY_CORE
def test_impossible_changes_change_nothing(make_world: MakeWorld) -> None:
    """A refused change names its reason, and the link is as before, also in the direction that was all right."""
    world = make_world(pair(delay="20ms"))
    name = link_name(world)
    with world.wire() as wire:
        before = wire.links()
        with pytest.raises(TestbedError, match="delay_us cannot be -5"):
            wire.change(name, forward={"delay_us": 7}, backward={"delay_us": -5})
        with pytest.raises(TestbedError, match=f"no link 'nowhere'\n.*{name}"):
            wire.change("nowhere", forward={})
        assert wire.links() == before


def test_down_and_up(make_world: MakeWorld) -> None:
    """A pulled cable: no carrier at either end, nothing passes, frames in flight are gone; addresses, routes stay."""
    world = make_world(pair(delay="10ms"))
    name = link_name(world)
    kept = {node: addresses_and_routes(world, node) for node in "ab"}
    with world.wire() as wire, Stream(world) as stream:
        wire.change(name, forward={"delay_us": 3_000_000})
        stream.send(range(20))
        await_true(lambda: wire.statistics()[name]["forward"].counters.in_flight == 20, "packets in flight")
        assert not wire.set_up(name, False).up
        assert not has_carrier(world, "a")
        assert not has_carrier(world, "b")
        assert not reaches(world, within=0.3)
        assert wire.statistics()[name]["forward"].counters.in_flight == 0
        wire.change(name, forward={"delay_us": 10_000})
        assert wire.set_up(name, True).up
        await_true(lambda: reaches(world), "the link")
        assert has_carrier(world, "a")
        assert {node: addresses_and_routes(world, node) for node in "ab"} == kept
        stream.send([100])
        assert [arrival.number for arrival in stream.receive(1)] == [100]


def test_remove_and_add(make_world: MakeWorld) -> None:
    """A link can be let go, and taken up again with other settings; the other one never notices."""
    world = make_world(star(2, delay="5ms"))
    name = world.plan.links[0].name
    from testbed.net.wire import engine

    link = engine.wire_link(world.plan.links[0], world.path, world.plan.seed)
    with world.wire() as wire:
        wire.remove(name)
        assert list(wire.links()) == [world.plan.links[1].name]
        await_true(lambda: not has_carrier(world, "h1"), "the loss of the carrier")
        assert not reaches(world, "h1", "core")
        wire.add(link.with_settings("forward", Settings(delay_us=40_000)))
        assert wire.links()[name].forward.delay_us == 40_000
        wire.add(link.with_settings("forward", Settings(delay_us=50_000)))
        assert wire.statistics(name)[name]["forward"].counters.frames == 0
        await_true(lambda: reaches(world, "h1", "core"), "the link")
        assert round_trips(world, 5, "h1", "core")[0] >= 55 - 0.2
        with pytest.raises(TestbedError, match="there is no interface eth7"):
            wire.add(link.__class__("other", link.a.__class__(link.a.namespace, "eth7"), link.b))
        assert sorted(wire.links()) == sorted(link.name for link in world.plan.links)
        assert wire.status().starts == 1
