"""Waiting until many tors have reached a state: by their events, without polling those that are busy getting there."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from testbed.progress import Progress
from testbed.tor.control import await_any
from testbed.tor.node import TorNode, check_alive, stuck

_TICK = 0.05
_PATIENCE = 3.0
"""Seconds for which events alone are relied on."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A state of a tor: how to ask for it, and the event by which tor tells that it has been reached."""

    awaited: str
    key: str
    """GETINFO key (control-spec 3.9)."""
    holds: Callable[[str], bool]
    """Of the key's value."""
    told_by: Callable[[str], bool]
    """Of a STATUS_CLIENT event (control-spec 4.1.10)."""


ENOUGH_DIRECTORY = Condition(
    "enough directory information",
    "status/enough-dir-info",
    lambda value: value == "1",
    lambda event: " ENOUGH_DIR_INFO" in event or "PROGRESS=100" in event,
)
BOOTSTRAPPED = Condition(
    "a circuit (100 % bootstrapped)",
    "status/bootstrap-phase",
    lambda value: "PROGRESS=100" in value,
    lambda event: "PROGRESS=100" in event,
)

Nudge = tuple[float, Callable[[TorNode], None]]
"""(seconds from the beginning of the wait, what to do with every node that is not there by then)."""


def await_condition(
    stage: str,
    nodes: Sequence[TorNode],
    condition: Condition,
    *,
    limit: float,
    progress: Progress,
    alive: Sequence[TorNode],
    nudges: Sequence[Nudge] = (),
    watched: Collection[str] = (),
) -> None:
    """Wait until ``condition`` holds for each of ``nodes``, telling ``progress`` how many there are.

    ``alive`` are the nodes whose end is an error meanwhile; ``watched`` those on which ``watch`` was called before the
    condition could hold, which need not be asked. ApplyError when one ends, WaitTimeout after ``limit`` seconds, naming
    those that are missing.
    """
    begun = time.monotonic()
    pending = dict.fromkeys(node.name for node in nodes)
    by_name = {node.name: node for node in nodes}
    heard = set(watched)
    due: Iterator[Nudge] = iter(sorted(nudges, key=lambda nudge: nudge[0]))
    nudge = next(due, None)
    while True:
        for name in [name for name in pending if name not in heard and watch(by_name[name])]:
            heard.add(name)
            if condition.holds(by_name[name].require().getinfo(condition.key)):
                del pending[name]
        progress.update(stage, len(nodes) - len(pending), len(nodes))
        if not pending:
            return
        check_alive(alive)
        elapsed = time.monotonic() - begun
        left = [by_name[name] for name in pending]
        if elapsed > limit:
            raise stuck(f"{condition.awaited} at {len(nodes)} nodes", limit, left, f"{len(nodes) - len(left)} have it")
        while nudge is not None and nudge[0] <= elapsed:
            for node in left:
                nudge[1](node)
                if nudge[0] >= _PATIENCE:
                    heard.discard(node.name)  # ask it, should its event have been lost
            nudge = next(due, None)
        for control in await_any([node.require() for node in left if node.name in heard], _TICK):
            if any(condition.told_by(event) for event in control.drain()):
                pending.pop(control.node, None)


def watch(node: TorNode) -> bool:
    """Have a tor tell of its state from now on; False while it does not listen yet."""
    if not node.connected():
        return False
    node.require().subscribe("STATUS_CLIENT")
    return True


def reload(node: TorNode) -> None:
    """Make tor forget its back-off from downloads that failed while there was no consensus."""
    if node.process is not None:
        node.process.signal(signal.SIGHUP)


def renew_network(node: TorNode) -> None:
    """Take a tor's network away and give it back, which is what makes it ask for missing descriptors at once.

    With one authority a relay asks it for at most 32 microdescriptors, drops the rest of them while that request is
    open, and looks again only after 10 s (PDS_NO_EXISTING_MICRODESC_FETCH, GREEDY_DESCRIPTOR_RETRY_INTERVAL).
    """
    if node.connected():
        node.require().setconf(DisableNetwork=1)
        node.require().setconf(DisableNetwork=0)


RELOAD_AGAIN: tuple[Nudge, ...] = tuple((after, reload) for after in (0.5, 1.2, 2, 5, 9, 20, 40))
"""For relays that wait for a consensus."""
NETWORK_AGAIN: tuple[Nudge, ...] = tuple((after, renew_network) for after in (3, 8, 14, 30, 60))
"""For every tor that lacks descriptors or a circuit."""
