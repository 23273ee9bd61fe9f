"""Moving a batch of connections: dump, restore, lead the packets there, go. Each whole, or back where it was."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from testbed.errors import TestbedError
from testbed.net.conntrack import Conntrack, FourTuple
from testbed.pool.migrate import tcp
from testbed.pool.migrate.capture import Capture
from testbed.pool.migrate.packets import Injector, plain_address
from testbed.pool.migrate.peer import Given, Peer, PeerError
from testbed.pool.migrate.sockets import Core, Failed, Sockets, reason

Hook = Callable[[str], None]
"""Called before each step with its name; what it raises makes the step fail (for tests)."""
STEPS = ("check", "dump", "refresh", "restore", "hold", "flip", "go", "run")


@dataclass(frozen=True, slots=True)
class Failure:
    """A connection that was not moved."""

    connection: FourTuple | None
    reason: str
    lost: bool = False
    """Whether it ended; otherwise it goes on where it was."""


@dataclass
class Outcome:
    """What became of one or more batches."""

    moved: int = 0
    failed: list[Failure] = field(default_factory=list)
    state_bytes: int = 0
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds in each step."""

    def add(self, other: Outcome) -> None:
        """Count another batch in."""
        self.moved += other.moved
        self.failed += other.failed
        self.state_bytes += other.state_bytes
        for name, seconds in other.steps.items():
            self.steps[name] = self.steps.get(name, 0.0) + seconds


@dataclass(frozen=True)
class Side:
    """Where connections come from or go to: the server, and the mark that leads packets to it."""

    peer: Peer
    mark: int
    capture: Capture
    """Of what arrives there."""
    delay_s: float = 0.0
    """How long a packet is under way from where the mark is looked at to the server."""


@dataclass(eq=False)  # each is only like itself
class _Item:
    given: Given
    name: FourTuple
    place: int
    frozen: bool = False
    reason: str = ""

    def close(self) -> None:
        """Let go of the old socket; what is not frozen and nobody else has ends with a word to the client."""
        self.given.connection.close()
        self.given.close_files()


class _Batch:
    """A batch under way: ``ready`` are those with which nothing has failed."""

    def __init__(self, items: list[_Item], core: Core, hook: Hook | None) -> None:
        self.items = items
        self.ready = list(items)
        self.sockets = core([item.given.connection for item in items])
        self.steps: dict[str, float] = {}
        self._hook = hook

    def run(self, name: str, work: Callable[[], None]) -> None:
        """One step of all."""
        start = time.perf_counter()
        try:
            if self._hook is not None:
                self._hook(name)
            work()
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + time.perf_counter() - start

    def each(self, name: str, work: Callable[[Sequence[int]], Failed]) -> None:
        """One step of each."""

        def step() -> None:
            failed = work([item.place for item in self.ready])
            for item in [item for item in self.ready if item.place in failed]:
                self.out(item, failed[item.place])

        self.run(name, step)

    def mark(self, name: str, table: Conntrack, value: int) -> None:
        """Change the mark of all."""

        def step() -> None:
            failed = table.set_marks([item.name for item in self.ready], value)
            for item, number in [(self.ready[place], number) for place, number in failed.items()]:
                self.out(item, f"the dispatcher has lost track of it (error {number})")

        self.run(name, step)

    def hold(self, peer: Peer) -> None:
        """Hand the new sockets to the next server, which does not touch them yet."""

        def step() -> None:
            answers = peer.hold([(self.sockets.made(item.place), item.given) for item in self.ready])
            for item, answer in zip(list(self.ready), answers, strict=True):
                if answer is not None:
                    self.out(item, f"{peer.server} does not take it: {answer}")

        if self.ready:
            self.run("hold", step)

    def out(self, item: _Item, reason: str) -> None:
        """One has failed."""
        item.reason = reason
        self.ready.remove(item)

    def fail(self, reason: str) -> None:
        """All have failed."""
        for item in list(self.ready):
            self.out(item, reason)


def carry(
    given: Sequence[Given],
    source: Side,
    target: Side,
    table: Conntrack,
    core: Core,
    ahead: Callable[[list[FourTuple]], None],
    hook: Hook | None = None,
) -> Outcome:
    """Move connections that ``source`` has let go to ``target``; the calling thread is in the target's namespace.

    ``ahead`` is called, with those that go back to ``source``, as soon as the next connections can be asked for without
    having to wait long; not at all if nothing comes so far.

    A connection whose move fails before the last step is given back to ``source`` as it was. What failed is in the
    outcome, with the reason, and is not raised.
    """
    for side in (source, target):
        side.capture.of(())
    items, strange = _named(given)
    batch = _Batch(items, core, hook)
    with closing(batch.sockets), closing(Injector()) as injector:
        unexpected = _prepare(batch, target, table, None if source.delay_s else lambda: ahead([]))
        going = set(batch.ready)
        back = [item for item in items if item not in going]
        batch.each("thaw", lambda places: _go(batch.sockets, places, injector))
        _deliver(batch, (source, target), injector)
        try:
            if batch.ready:
                batch.run("run", target.peer.run)
        except (OSError, TestbedError) as error:
            batch.fail(reason(error))
        kept = _give_back(batch, back, source, table)
        if batch.ready and source.delay_s:
            time.sleep(source.delay_s)  # what was under way to the old server still finds its socket, and is seen
            _deliver(batch, (source,), injector)
        if source.delay_s:  # else it was called before
            ahead([item.name for item in back])
        batch.sockets.retire([item.place for item in going])
        state_bytes = sum(batch.sockets.size(item.place) for item in batch.ready)
    lost = going.difference(batch.ready)
    for item in items:
        item.close()
    if unexpected is not None:
        raise unexpected
    return Outcome(
        moved=len(batch.ready),
        failed=strange + kept + [Failure(item.name, item.reason, lost=True) for item in lost],
        state_bytes=state_bytes,
        steps=batch.steps,
    )


def _prepare(
    batch: _Batch, target: Side, table: Conntrack, meanwhile: Callable[[], None] | None
) -> BaseException | None:
    """Everything that can still be undone; whatever goes wrong is in the items. Returns what nobody expected."""

    def dump(places: Sequence[int]) -> Failed:
        for item in batch.ready:
            item.frozen = True
        return batch.sockets.dump(places)

    try:
        batch.each("check", batch.sockets.check)
        batch.each("dump", dump)
        batch.each("refresh", batch.sockets.refresh)
        batch.each("restore", batch.sockets.restore)
        if meanwhile is not None:  # both servers are at work then
            meanwhile()
        batch.hold(target.peer)
        batch.mark("flip", table, target.mark)
        batch.run("go", lambda: None)
    except BaseException as error:  # a frozen connection that is dropped here would be lost without a word
        batch.fail(reason(error))
        with suppress(PeerError):  # it is gone, or will see that what it holds has ended
            target.peer.drop()
        return None if isinstance(error, (OSError, TestbedError)) else error
    return None


def _go(sockets: Sockets, places: Sequence[int], injector: Injector) -> Failed:
    """The new sockets run; their clients are asked what they have received, where something is under way."""
    failed = sockets.thaw(places)
    for place in places:
        if place in failed or sockets.quiet(place):
            continue
        state = sockets.state(place)
        try:
            injector.finish(state)
            if state.send_queue:
                injector.ask(state)
        except OSError as error:
            failed[place] = reason(error)
    return failed


def _deliver(batch: _Batch, sides: Sequence[Side], injector: Injector) -> None:
    """Give the moved connections what their clients sent meanwhile."""
    names = {item.name for item in batch.ready}
    for packet in [packet for side in sides for packet in side.capture.of(names)]:
        with suppress(OSError):  # then the client repeats it
            injector.deliver(packet)


def _named(batch: Sequence[Given]) -> tuple[list[_Item], list[Failure]]:
    items: list[_Item] = []
    strange: list[Failure] = []
    for given in batch:
        try:
            items.append(_Item(given, four_tuple(given.connection), len(items)))
        except (OSError, ValueError) as error:  # it has ended meanwhile, or is no connection at all
            strange.append(Failure(None, f"it has no two ends: {error}", lost=True))
            given.connection.close()
            given.close_files()
    return items, strange


def four_tuple(connection: socket.socket) -> FourTuple:
    """The ends of an accepted connection. OSError if it has none, ValueError if it is not TCP over IP."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        raise ValueError("it is not over IP")
    peer, local = connection.getpeername(), connection.getsockname()
    return FourTuple(plain_address(peer[0]), peer[1], plain_address(local[0]), local[1])


def _give_back(batch: _Batch, back: list[_Item], source: Side, table: Conntrack) -> list[Failure]:
    """Let connections go on where they were."""
    if not back:
        return []
    for item in back:
        batch.sockets.unmake(item.place)
    table.set_marks([item.name for item in back], source.mark)
    alive: list[_Item] = []
    failures: list[Failure] = []
    for item in back:
        try:
            if item.frozen:
                tcp.revive(item.given.connection)
            alive.append(item)
        except OSError as error:
            failures.append(Failure(item.name, f"{item.reason}; then: {reason(error)}", lost=True))
    try:
        refused = source.peer.hold([(item.given.connection.fileno(), item.given) for item in alive])
        source.peer.run()
    except PeerError as error:
        # nobody is there to serve them: closing ends them with a word to the client
        return failures + [Failure(item.name, f"{item.reason}; then: {error}", lost=True) for item in alive]
    for item, answer in zip(alive, refused, strict=True):
        text = item.reason if answer is None else f"{item.reason}; then {source.peer.server} did not take it: {answer}"
        failures.append(Failure(item.name, text, lost=answer is not None))
    return failures
