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

Hook = Callable[[str], None]
"""Called before each step with its name; what it raises makes the step fail (for tests)."""
STEPS = ("check", "dump", "restore", "hold", "flip", "go", "run")


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
    state: tcp.TcpState | None = None
    new: socket.socket | None = None
    frozen: bool = False
    reason: str = ""

    def close(self) -> None:
        """Let go of everything; what is not frozen and nobody else has ends with a word to the client."""
        if self.new is not None:
            self.new.close()
        self.given.connection.close()
        self.given.close_files()


class _Batch:
    """A batch under way: ``ready`` are those with which nothing has failed."""

    def __init__(self, items: list[_Item], hook: Hook | None) -> None:
        self.items = items
        self.ready = list(items)
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

    def each(self, name: str, work: Callable[[_Item], None]) -> None:
        """One step of each."""

        def step() -> None:
            for item in list(self.ready):
                try:
                    work(item)
                except (OSError, TestbedError) as error:
                    self.out(item, _reason(error))

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
            handed = [Given(item.new, item.given.files, item.given.request) for item in self.ready if item.new]
            for item, reason in zip(list(self.ready), peer.hold(handed), strict=True):
                if reason is not None:
                    self.out(item, f"{peer.server} does not take it: {reason}")

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


def carry(given: Sequence[Given], source: Side, target: Side, table: Conntrack, hook: Hook | None = None) -> Outcome:
    """Move connections that ``source`` has let go to ``target``; the calling thread is in the target's namespace.

    A connection whose move fails before the last step is given back to ``source`` as it was. What failed is in the
    outcome, with the reason, and is not raised.
    """
    for side in (source, target):
        side.capture.of(())
    items, strange = _named(given)
    batch = _Batch(items, hook)
    with closing(Injector()) as injector:
        unexpected = _prepare(batch, target, table)
        going = set(batch.ready)
        back = [item for item in items if item not in going]
        batch.each("thaw", lambda item: _go(item, injector))
        _deliver(batch, (source, target), injector)
        try:
            if batch.ready:
                batch.run("run", target.peer.run)
        except (OSError, TestbedError) as error:
            batch.fail(_reason(error))
        kept = _give_back(back, source, table)
        if batch.ready and source.delay_s:
            time.sleep(source.delay_s)  # what was under way to the old server still finds its socket, and is seen
            _deliver(batch, (source,), injector)
    lost = [item for item in items if item.reason and item in going]
    for item in items:
        if item in going:
            with suppress(OSError):
                tcp.retire(item.given.connection)
        item.close()
    if unexpected is not None:
        raise unexpected
    return Outcome(
        moved=len(batch.ready),
        failed=strange + kept + [Failure(item.name, item.reason, lost=True) for item in lost],
        state_bytes=sum(item.state.size for item in batch.ready if item.state is not None),
        steps=batch.steps,
    )


def _prepare(batch: _Batch, target: Side, table: Conntrack) -> BaseException | None:
    """Everything that can still be undone; whatever goes wrong is in the items. Returns what nobody expected."""
    try:
        batch.each("check", lambda item: tcp.check(item.given.connection))
        batch.each("dump", _dump)
        batch.each("restore", _restore)
        batch.hold(target.peer)
        batch.mark("flip", table, target.mark)
        batch.run("go", lambda: None)
    except BaseException as error:  # a frozen connection that is dropped here would be lost without a word
        batch.fail(_reason(error))
        with suppress(PeerError):  # it is gone, or will see that what it holds has ended
            target.peer.drop()
        return None if isinstance(error, (OSError, TestbedError)) else error
    return None


def _deliver(batch: _Batch, sides: Sequence[Side], injector: Injector) -> None:
    """Give the moved connections what their clients sent meanwhile."""
    names = {item.name for item in batch.ready}
    for packet in [packet for side in sides for packet in side.capture.of(names)]:
        with suppress(OSError):  # then the client repeats it
            injector.deliver(packet)


def _named(batch: Sequence[Given]) -> tuple[list[_Item], list[Failure]]:
    items, strange = [], []
    for given in batch:
        try:
            items.append(_Item(given, four_tuple(given.connection)))
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


def _dump(item: _Item) -> None:
    connection = item.given.connection
    item.frozen = True
    tcp.freeze(connection)
    item.state = tcp.dump(connection)


def _restore(item: _Item) -> None:
    assert item.state is not None
    if not tcp.unchanged(item.given.connection, item.state):
        item.state = tcp.dump(item.given.connection)
    item.new = tcp.restore(item.state)


def _go(item: _Item, injector: Injector) -> None:
    assert item.state is not None
    assert item.new is not None
    tcp.thaw(item.new, item.state)
    injector.finish(item.state)
    if item.state.send_queue:
        injector.ask(item.state)


def _give_back(back: list[_Item], source: Side, table: Conntrack) -> list[Failure]:
    """Let connections go on where they were."""
    if not back:
        return []
    for item in back:
        if item.new is not None:
            tcp.retire(item.new)
            item.new = None
    table.set_marks([item.name for item in back], source.mark)
    alive: list[_Item] = []
    failures: list[Failure] = []
    for item in back:
        try:
            if item.frozen:
                tcp.revive(item.given.connection)
            alive.append(item)
        except OSError as error:
            failures.append(Failure(item.name, f"{item.reason}; then: {_reason(error)}", lost=True))
    try:
        refused = source.peer.hold([item.given for item in alive])
        source.peer.run()
    except PeerError as error:
        # nobody is there to serve them: closing ends them with a word to the client
        return failures + [Failure(item.name, f"{item.reason}; then: {error}", lost=True) for item in alive]
    for item, reason in zip(alive, refused, strict=True):
        text = item.reason if reason is None else f"{item.reason}; then {source.peer.server} did not take it: {reason}"
        failures.append(Failure(item.name, text, lost=reason is not None))
    return failures


def _reason(error: BaseException) -> str:
    return error.what if isinstance(error, TestbedError) else str(error)
