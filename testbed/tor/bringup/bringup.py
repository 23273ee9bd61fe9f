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
A cold start is over with ``begin``: uploads of descriptors that set out before relays have the consensus may hang (seen
in two starts of six), though the instances could have started two seconds sooner.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.progress import Progress
from testbed.tor import torrc
from testbed.tor.bringup import warm
from testbed.tor.bringup.firstvote import FirstVote, ShortConsensus, Timing, turn
from testbed.tor.bringup.readiness import (
    BOOTSTRAPPED,
    ENOUGH_DIRECTORY,
    NETWORK_AGAIN,
    RELOAD_AGAIN,
    await_condition,
    reload,
    watch,
)
from testbed.tor.control import ControlError
from testbed.tor.directory import Directory, read_directory
from testbed.tor.node import TorNode, blame, make_node, prepare, start, stop
from testbed.tor.protocol.authority import make_authority
from testbed.tor.protocol.keys import relay_files, relay_key
from testbed.tor.protocol.timeperiod import choose_interval
from testbed.tor.spec import TorSpec

ATTEMPTS = 3
"""Networks that are started before a consensus that lacks relays is an error."""


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

    def prepare(self) -> None:
        """A warm start: write the files of all nodes. It needs no network, and may be done while one is made."""
        if self.warm:
            self._prepare_warm()

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

    def _prepare_warm(self) -> None:
        """Write the files of a warm start; where what is kept cannot be used, ``warm`` is false afterwards.

        All of them, before anything is started: once relays make their keys, there is little of a processor for
        anything else.
        """
        try:
            kept = warm.recall(self._lab.plan, time.time(), self._spec.lifetime / 1e6)
            self.directory, self._voting = kept.directory, kept.voting
            self._configure([kept.authority_line(node) for node in self.authorities])
            documents = kept.directory.files()
            self._write([*self.authorities, *self.relays], lambda node: kept.files(node.name))
            self._write(self.clients, lambda node: documents)
        except (warm.Unusable, TestbedError) as error:
            self._give_up_warm(error)

    def _begin_warm(self) -> None:
        """Start authorities and relays; where they cannot be, ``warm`` is false afterwards."""
        self._begun = time.monotonic()
        try:
            start(self._lab, [*self.authorities, *self.relays])
        except TestbedError as error:
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
        first = FirstVote(
            self._lab,
            self._progress,
            self._timing,
            authorities=self.authorities,
            relays=self.relays,
            voting=self._voting,
        )
        first.await_descriptors(self._vote_at)
        self._mark("descriptors")
        first.vote()
        self._watched = [node.name for node in self.relays if watch(node)]  # now, while they have little else to do
        self.directory = first.await_consensus(certificates)
        self._voting = first.voting
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
            awaited = f"authorities to be {state} at their control sockets"
            turn(begun, self._timing.authorities, awaited, late, self.nodes)
        self._progress.update("authorities", total, total, state)

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
