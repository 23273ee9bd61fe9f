"""The shared record."""

from __future__ import annotations

from testbed.pool.agents.agent import free
from testbed.pool.agents.competition import Candidate
from testbed.pool.agents.machine import State
from testbed.pool.agents.store import DETECTIONS, Entry, MemoryStore, Record, Seen
from testbed.pool.agents.timing import Timing

READY = {name: Entry(State.READY, since, attacks=since, alive_until=100) for name, since in (("a", 3), ("b", 5))}


def test_a_change_of_an_older_version_is_refused() -> None:
    store = MemoryStore()
    first = store.read()
    assert store.swap(first.version, Record(epoch=1))
    assert not store.swap(first.version, Record(epoch=9))
    assert store.read().record.epoch == 1
    assert store.swap(store.read().version, Record(epoch=2))


def test_candidates_are_ready_counted_upon_and_not_the_holder() -> None:
    record = Record(holder="a", servers={**READY, "c": Entry(State.SUSPENDED, 0, alive_until=100)})
    assert record.candidates(99) == [Candidate("b", 5, 5)]
    assert record.candidates(100) == []


def test_the_elected_is_the_winner_as_long_as_it_can_take_over() -> None:
    record = Record(holder="c", winner="b", servers=READY)
    assert record.elected(99) == "b"
    assert record.elected(100) is None
    assert Record(holder="b", winner="b", servers=READY).elected(99) is None
    assert Record(servers=READY).elected(99) is None


def test_a_new_holder_begins_anew() -> None:
    record = Record(epoch=4, holder="c", since=1, lease=9, winner="b", attacks=3, detections=(2,), servers=READY)
    given = record.given("b", 20, lease=10, epoch=5)
    assert (given.epoch, given.holder, given.since, given.lease) == (5, "b", 20, 30)
    assert (given.winner, given.attacks, given.detections) == (None, 0, (2,))
    assert given.servers == {"a": READY["a"], "b": Entry(State.SERVICE, 20, 5, 100)}
    vacant = record.given(None, 20, lease=10, epoch=5)
    assert (vacant.epoch, vacant.holder, vacant.lease, vacant.winner, vacant.attacks) == (4, None, 0, None, 0)


def test_only_the_latest_detections_are_kept() -> None:
    record = Record()
    for at in range(DETECTIONS + 5):
        record = record.detected(at, 2)
    assert record.detections == tuple(range(5, DETECTIONS + 5))
    assert record.attacks == 2 * (DETECTIONS + 5)


def test_the_service_is_free_after_the_lease_and_the_margin_and_the_grace_of_a_store_that_was_away() -> None:
    timing = Timing(poll=1, lease=10, alive=10, margin=2)
    held = Record(holder="a", lease=50)
    assert [free(Seen(1, held, 0), now, timing) for now in (51, 52)] == [False, True]
    assert [free(Seen(1, held, 70), now, timing) for now in (81, 82)] == [False, True]
    assert free(Seen(1, Record(), 70), 70, timing), "nobody held it"
