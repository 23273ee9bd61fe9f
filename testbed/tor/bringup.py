"""Bringing a private Tor network up, step by step, each step checked. Times are of 71 nodes on two cores.

1. Authorities start, their first vote far away; relays start and upload their descriptors (5 s of key generation).
2. Once every authority has every descriptor, the vote is moved to *now* through the control sockets. So it cannot come
   too early, with relays missing from a consensus that would then be the only one for an hour, and never late (2 s).
3. Every relay is told to reload: it then fetches the new consensus at once and not after its own back-off. Meanwhile
   clients start, with the directory documents in their folders as if they had been on the network before (3 s).
4. The network is up when all relays have enough directory information and all clients a circuit.

A warm start (``warm``) has keys and consensus from an earlier bring-up: everything starts at once, and is then checked.

``begin`` returns when relays have been started, ``finish`` when the network is up. In between others can start who need
no more than the network's documents. Their connections wait for relays that make their keys: tor listens before that.
A cold start is over with ``begin``.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.progress import Progress
from testbed.tor import torrc, warm
from testbed.tor.authority import make_authority
from testbed.tor.control import ControlError
from testbed.tor.directory import Directory, has_consensus, read_directory
from testbed.tor.keys import relay_files, relay_key
from testbed.tor.node import TorNode, blame, check_alive, make_node, prepare, rewrite, start, stop, stuck
from testbed.tor.readiness import (
    BOOTSTRAPPED,
    ENOUGH_DIRECTORY,
    NETWORK_AGAIN,
    RELOAD_AGAIN,
    await_condition,
    reload,
    watch,
)
from testbed.tor.spec import TorSpec
from testbed.tor.timeperiod import choose_interval

ATTEMPTS = 3
"""Networks that are started before a consensus that lacks relays is an error."""
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
    see ``BringUp._vote``; it grows with every vote that comes to nothing."""
    vote_lead_alone: int = 2
    """Likewise with a single authority."""
    vote_overdue: float = 4
    """So long after it should be valid, a consensus is not going to come any more."""


class ShortConsensus(Exception):
    """The authorities voted before they had everybody's descriptor."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(f"the consensus lacks {', '.join(missing)}")
        self.missing = missing


class BringUp:
    """Starts all nodes of the section ``tor``, anew if the first consensus is short."""

    def __init__(
        self,
        lab: Lab,
        spec: TorSpec,
        progress: Progress,
        *,
        timing: Timing | None = None,
        vote_at: int | None = None,
        warm: bool = False,
    ) -> None:
        """``warm``: use what is kept of this network, if it can be used. ``vote_at``: on the first attempt vote as soon
        as the authorities have so many descriptors, to test that."""
        self.nodes = [make_node(lab, node.name) for node in lab.plan.nodes if node.subsystem == "tor"]
        self.authorities = self._by_role("authority")
        self.relays = self._by_role("relay", "exit")
        self.clients = self._by_role("client")
        self._options: dict[str, list[tuple[str, str]]] = {}
        self._lab, self._spec, self._progress = lab, spec, progress
        self._timing = timing or Timing()
        self._vote_at = vote_at
        self._watched: list[str] = []
        self._begun = 0.0
        self.directory: Directory
        """What clients go by, once ``begin`` has returned."""
        self.warm = warm
        """Whether it is a warm start; false from the moment at which it had to become a cold one."""

    def begin(self) -> None:
        """A warm start: start all relays. A cold one: bring the network up. The directory is known then.

        TestbedError says what did not work; what has been started is then left for the lab to end.
        """
        with self._told():
            if self.warm:
                self._begin_warm()
            if not self.warm:
                self._cold_start()

    def finish(self) -> None:
        """Return when the network is up. A warm start that does not work becomes a cold one, with another directory."""
        with self._told():
            if self.warm:
                self._finish_warm()
        self._close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors in the block say whose fault it was; connections are closed then."""
        try:
            yield
        except BaseException as error:
            self._close()
            if isinstance(error, ShortConsensus):
                raise TestbedError(f"{error}, {ATTEMPTS} times in a row", where="tor") from error
            if isinstance(error, ControlError):
                raise blame(error, self.nodes) from error
            raise

    def _close(self) -> None:
        for node in self.nodes:
            node.close()

    def _cold_start(self) -> None:
        for attempt in range(1, ATTEMPTS):
            try:
                self._attempt()
                break
            except ShortConsensus as error:
                self._begin_again(attempt, error)
        else:
            self._attempt()
        try:  # that it cannot be kept for warm starts is no reason not to have it
            warm.keep(self._lab.plan, [*self.authorities, *self.relays], self._voting, self.directory)
        except OSError as error:
            self._lab.event("not_kept", reason=str(error))

    def _begin_warm(self) -> None:
        """Start authorities and relays with what is kept; where that cannot be used, ``warm`` is false afterwards.

        All files are written first: once relays make their keys, there is little of a processor for anything else.
        """
        self._begun = time.monotonic()
        try:
            kept = warm.recall(self._lab.plan, time.time(), self._spec.lifetime / 1e6)
            self.directory, self._voting = kept.directory, kept.voting
            self._configure([kept.authority_line(node) for node in self.authorities])
            documents = kept.directory.files()
            self._write([*self.authorities, *self.relays], lambda node: kept.files(node.name))
            self._write(self.clients, lambda node: documents)
            start(self._lab, [*self.authorities, *self.relays])
        except (warm.Unusable, TestbedError) as error:
            self._give_up_warm(error)

    def _finish_warm(self) -> None:
        """Start the clients and see that a warm start works; if it does not, start everything cold."""
        kept = self.directory
        try:
            start(self._lab, self.clients)
            self._await_authorities("answering", TorNode.connected)
            self._await_ready(self._timing.warm * (1 + len(self.nodes) / 100))
            for node in self.authorities:
                if read_directory(node.require(), kept.certificates).consensus_text != kept.consensus_text:
                    raise TestbedError("it has another consensus than the one that was kept", where=node.name)
        except TestbedError as error:
            self._give_up_warm(error)
            self._cold_start()
            return
        age = time.time() - kept.consensus.valid_after
        self._lab.event("warm_start", age=round(age), digest=warm.digest(self._lab.plan))
        self._mark("ready")

    def _give_up_warm(self, error: warm.Unusable | TestbedError) -> None:
        """What is left of a warm start is removed, and the event tells why."""
        self.warm = False
        self._lab.event("cold_start", reason=str(error))
        self._progress.update("warm start", 1, 1, "not possible: starting cold")
        if not isinstance(error, warm.Unusable):
            warm.forget(self._lab.plan)
            stop([node for node in self.nodes if node.process], number=signal.SIGKILL)

    def _begin_again(self, attempt: int, error: ShortConsensus) -> None:
        self._lab.event("vote_short", missing=list(error.missing), attempt=attempt)
        self._progress.update("consensus", 0, 1, f"lacks {len(error.missing)} relays: starting over")
        stop(self.nodes, number=signal.SIGKILL)
        self._vote_at = None

    def _attempt(self) -> None:
        self._begun = time.monotonic()
        now, seed = time.time(), self._lab.plan.seed
        made = {node.name: make_authority(seed, node.name, now) for node in self.authorities}
        certificates = b"".join(authority.certificate for authority in made.values())
        interval = choose_interval(now, self._spec.lifetime / 1e6)
        self._voting = torrc.far_vote(interval, now, self._spec.hsdir_spread)
        self._configure(
            [
                torrc.dir_authority(node.name, node.address, made[node.name].identity, made[node.name].v3_identity)
                for node in self.authorities
            ]
        )

        def files(node: TorNode) -> Mapping[str, bytes]:
            keys = {**relay_files(relay_key(seed, node.name)), "cached-certs": certificates}
            return {**keys, **made[node.name].files} if node.name in made else keys

        self._write([*self.authorities, *self.relays], files)
        start(self._lab, self.authorities)
        self._await_authorities("listening", lambda node: node.paths.control.exists())
        start(self._lab, self.relays)  # they need a second before they upload; authorities make their keys meanwhile
        self._await_authorities("answering", TorNode.connected)
        self._await_descriptors()
        self._mark("descriptors")
        self.directory = self._await_consensus(certificates)
        self._mark("consensus")
        for node in self.relays:
            reload(node)
        documents = self.directory.files()
        self._write(self.clients, lambda node: documents)
        start(self._lab, self.clients)
        self._await_ready()
        self._mark("ready")

    def _by_role(self, *roles: str) -> list[TorNode]:
        return [node for node in self.nodes if node.role in roles]

    def _mark(self, stage: str) -> None:
        seconds = round(time.monotonic() - self._begun, 3)
        self._lab.event("stage", subsystem="tor", stage=stage, seconds=seconds)

    def _configure(self, authorities: Sequence[str]) -> None:
        """Choose the options of every node; ``authorities`` are values of DirAuthority."""
        for node in self.nodes:
            options = torrc.common(node.paths, authorities)
            options += torrc.of_network(node.role, node.name, node.address, node.paths, self._voting)
            self._options[node.name] = torrc.with_extra(options, self._spec.torrc_options)

    def _write(self, nodes: Sequence[TorNode], files: Callable[[TorNode], Mapping[str, bytes]]) -> None:
        """Write what each of ``nodes`` begins with."""
        for node in nodes:
            prepare(node, self._options[node.name], files(node))

    def _await_authorities(self, state: str, reached: Callable[[TorNode], bool]) -> None:
        begun = time.monotonic()
        total = len(self.authorities)
        while late := [node for node in self.authorities if not reached(node)]:
            self._progress.update("authorities", total - len(late), total, state)
            self._check(begun, self._timing.authorities, f"authorities to be {state} at their control sockets", late)
        self._progress.update("authorities", total, total, state)

    def _await_descriptors(self) -> None:
        """Wait until every authority has the descriptor of every relay and authority."""
        begun = time.monotonic()
        wanted = {node.name for node in (*self.authorities, *self.relays)}
        enough = len(wanted) if self._vote_at is None else self._vote_at
        held: dict[str, set[str]] = {}
        for node in self.authorities:
            node.require().subscribe("NEWDESC")
            held[node.name] = set(re.findall(r"^router (\S+)", node.require().getinfo("desc/all-recent"), re.MULTILINE))
        while True:
            for node in self.authorities:
                for event in node.require().drain():
                    held[node.name].update(word.partition("~")[2] for word in event.split()[1:])
            missing = max((wanted - names for names in held.values()), key=len)
            self._progress.update("descriptors", len(wanted) - len(missing), len(wanted))
            if len(wanted) - len(missing) >= enough:
                return
            late = [node for node in self.nodes if node.name in missing]
            self._check(begun, self._timing.descriptors, "relay descriptors at the authorities", late)

    def _vote(self, lead: int) -> float:
        """Have the authorities vote now for a consensus that is valid ``lead`` seconds later; returns when that is.

        tor looks at its schedule a second after it has been changed. A single authority then has all votes and goes
        straight on to the consensus. Several exchange votes, and refuse those that come later than 3 s before the
        consensus is to be valid (dirvote_add_vote).
        """
        alone = len(self.authorities) == 1
        valid_after = int(time.time() + (0 if alone else 0.5)) + lead
        self._voting = self._voting.moved_to(valid_after)
        for node in self.authorities:
            node.require().setconf(**{torrc.OFFSET: self._voting.offset})
        for node in self.authorities:
            rewrite(node, torrc.OFFSET, str(self._voting.offset))
        return valid_after

    def _await_consensus(self, certificates: bytes) -> Directory:
        """Vote, and again if nothing comes of it, until every authority has the consensus."""
        begun = time.monotonic()
        total = len(self.authorities)
        lead = self._timing.vote_lead_alone if total == 1 else self._timing.vote_lead
        due = self._vote(lead)
        self._watched = [node.name for node in self.relays if watch(node)]  # now, while they have little else to do
        late = list(self.authorities)
        while late := [node for node in late if not has_consensus(node.require())]:
            self._progress.update("consensus", total - len(late), total)
            self._check(begun, self._timing.consensus, "a consensus", late)
            if time.time() < due + self._timing.vote_overdue:
                continue
            self._lab.event("vote_failed", late=[node.name for node in late], lead=lead)
            if len(late) < total:  # they can have it from the others
                due = time.time()
                for node in late:
                    reload(node)
            else:
                lead += 4
                due = self._vote(lead)
        directory = read_directory(self.authorities[0].require(), certificates)
        running = {router.nickname for router in directory.consensus.routers if "Running" in router.flags}
        missing = [node.name for node in (*self.authorities, *self.relays) if node.name not in running]
        if missing:
            raise ShortConsensus(missing)
        self._progress.update("consensus", total, total, f"{len(running)} relays")
        return directory

    def _await_ready(self, limit: float | None = None) -> None:
        """``limit``: of a warm start, whose relays have all documents and need not be made to look for them."""
        again = [*RELOAD_AGAIN, *NETWORK_AGAIN] if limit is None else []
        for stage, nodes, condition, patience, nudges in (
            ("relays ready", [*self.authorities, *self.relays], ENOUGH_DIRECTORY, self._timing.relays, again),
            ("clients ready", self.clients, BOOTSTRAPPED, self._timing.clients, NETWORK_AGAIN),
        ):
            await_condition(
                stage,
                nodes,
                condition,
                limit=limit or patience,
                progress=self._progress,
                alive=self.nodes,
                nudges=nudges,
                watched=self._watched,
            )

    def _check(self, begun: float, limit: float, awaited: str, late: Sequence[TorNode]) -> None:
        """One turn of a wait: errors if a tor has ended or the time is up, else a short pause."""
        check_alive(self.nodes)
        if time.monotonic() - begun > limit:
            raise stuck(awaited, limit, late, f"{len(late)} missing")
        time.sleep(_TICK)
