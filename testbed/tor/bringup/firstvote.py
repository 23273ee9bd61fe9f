"""The first consensus of a private Tor network: voted for when every relay is known, and not before.

By tor's own schedule the authorities would vote at a fixed time. With relays missing then, their consensus would be the
only one for an hour. So the vote is far away at first, and moved to *now* once every descriptor is there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.lab.lab import Lab
from testbed.progress import Progress
from testbed.tor import torrc
from testbed.tor.bringup.readiness import reload
from testbed.tor.directory import Directory, has_consensus, read_directory
from testbed.tor.node import TorNode, check_alive, rewrite, stuck
from testbed.tor.torrc import Voting

_TICK = 0.05


@dataclass(frozen=True, slots=True)
class Timing:
    """How long each step may take, seconds, on a busy machine and in a large network; and when votes are due."""

    authorities: float = 30
    descriptors: float = 180
    consensus: float = 60
    relays: float = 180
    clients: float = 180
    warm: float = 45
    """Likewise for relays and clients of a small network's warm start, which can still be a cold one; one of a hundred
    nodes gets twice that."""
    vote_lead: int = 4
    """From moving the vote of several authorities until its consensus is valid. 4 is the least that tor allows for,
    see ``FirstVote``; it grows with every vote that comes to nothing."""
    vote_lead_alone: int = 2
    """Likewise with a single authority."""
    vote_overdue: float = 4
    """So long after it should be valid, a consensus is not going to come any more."""


class ShortConsensus(Exception):
    """The authorities voted before they had everybody's descriptor."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(f"the consensus lacks {', '.join(missing)}")
        self.missing = missing


def turn(begun: float, limit: float, awaited: str, late: Sequence[TorNode], alive: Sequence[TorNode]) -> None:
    """One turn of a wait that began at ``begun``: errors if one of ``alive`` has ended or the time is up, else a short
    pause. ``late``: those that are waited for."""
    check_alive(alive)
    if time.monotonic() - begun > limit:
        raise stuck(awaited, limit, late, f"{len(late)} missing")
    time.sleep(_TICK)


class FirstVote:
    """The authorities of a network come to their first consensus."""

    def __init__(
        self,
        lab: Lab,
        progress: Progress,
        timing: Timing,
        *,
        authorities: Sequence[TorNode],
        relays: Sequence[TorNode],
        voting: Voting,
    ) -> None:
        """All of them run, with the far vote of ``voting``."""
        self.voting = voting
        """As the vote has been moved."""
        self._lab, self._progress, self._timing = lab, progress, timing
        self._authorities, self._nodes = authorities, [*authorities, *relays]
        self._lead = timing.vote_lead_alone if len(authorities) == 1 else timing.vote_lead
        self._due = 0.0

    def await_descriptors(self, enough: int | None = None) -> None:
        """Wait until every authority has the descriptor of every relay and authority, or of ``enough`` of them."""
        begun = time.monotonic()
        wanted = {node.name for node in self._nodes}
        enough = len(wanted) if enough is None else enough
        held: dict[str, set[str]] = {}
        for node in self._authorities:
            node.require().subscribe("NEWDESC")
            held[node.name] = set(re.findall(r"^router (\S+)", node.require().getinfo("desc/all-recent"), re.MULTILINE))
        while True:
            for node in self._authorities:
                for event in node.require().drain():
                    held[node.name].update(word.partition("~")[2] for word in event.split()[1:])
            missing = max((wanted - names for names in held.values()), key=len)
            self._progress.update("descriptors", len(wanted) - len(missing), len(wanted))
            if len(wanted) - len(missing) >= enough:
                return
            late = [node for node in self._nodes if node.name in missing]
            self._turn(begun, self._timing.descriptors, "relay descriptors at the authorities", late)

    def vote(self) -> None:
        """Have the authorities vote now for a consensus that is valid some seconds later.

        tor looks at its schedule a second after it has been changed. A single authority then has all votes and goes
        straight on to the consensus. Several exchange votes, and refuse those that come later than 3 s before the
        consensus is to be valid (dirvote_add_vote).
        """
        alone = len(self._authorities) == 1
        valid_after = int(time.time() + (0 if alone else 0.5)) + self._lead
        self.voting = self.voting.moved_to(valid_after)
        for node in self._authorities:
            node.require().setconf(**{torrc.OFFSET: self.voting.offset})
        for node in self._authorities:
            rewrite(node, torrc.OFFSET, str(self.voting.offset))
        self._due = float(valid_after)

    def await_consensus(self, certificates: bytes) -> Directory:
        """Wait until every authority has the consensus; have them vote again if nothing comes of it.

        ShortConsensus if it lacks some of the network.
        """
        begun = time.monotonic()
        total = len(self._authorities)
        late = list(self._authorities)
        while late := [node for node in late if not has_consensus(node.require())]:
            self._progress.update("consensus", total - len(late), total)
            self._turn(begun, self._timing.consensus, "a consensus", late)
            if time.time() < self._due + self._timing.vote_overdue:
                continue
            self._lab.event("vote_failed", late=[node.name for node in late], lead=self._lead)
            if len(late) < total:  # they can have it from the others
                self._due = time.time()
                for node in late:
                    reload(node)
            else:
                self._lead += 4
                self.vote()
        directory = read_directory(self._authorities[0].require(), certificates)
        running = {router.nickname for router in directory.consensus.routers if "Running" in router.flags}
        missing = [node.name for node in self._nodes if node.name not in running]
        if missing:
            raise ShortConsensus(missing)
        self._progress.update("consensus", total, total, f"{len(running)} relays")
        return directory

    def _turn(self, begun: float, limit: float, awaited: str, late: Sequence[TorNode]) -> None:
        turn(begun, limit, awaited, late, self._nodes)
