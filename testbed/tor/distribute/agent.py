"""The tors that upload descriptors to HSDirs and fetch them back, by HSPOST and HSFETCH (control-spec 3.26, 3.27)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from testbed.errors import TestbedError
from testbed.tor.control import Control, ControlError, await_any
from testbed.tor.directory import Directory, read_directory
from testbed.tor.distribute.endpoint import connect
from testbed.tor.distribute.journal import Journal
from testbed.tor.distribute.settings import Member
from testbed.tor.protocol.descriptor import DescriptorEvent, parse_content_event, parse_event
from testbed.tor.protocol.hsdir import Router

UPLOAD_TIMEOUT = 8.0
"""Seconds. An upload takes 0.1 to 1 s; tor itself would try a dead HSDir for two minutes."""
LAGGARD = 4.0
"""Seconds that those who are still silent get after the last answer of another."""
RETRY_TIMEOUT = 4.0
"""Of uploads to an HSDir that has failed before: meanwhile nothing else is done."""
FETCH_TIMEOUT = 8.0
FETCHES = 2
"""Attempts to ask an HSDir, by another tor each time: circuits fail now and then."""
NO_ANSWER = "no answer"
"""Reason where an HSDir did not say anything in time."""
_RECONNECT = 2.0
"""Seconds from one attempt to reach an agent that is gone to the next."""

_T = TypeVar("_T")
Suits = Callable[[str], bool]
"""Whether a consensus that became valid at this moment (``YYYY-MM-DD HH:MM:SS``, UTC) is one to ask with."""


@dataclass
class _Agent:
    member: Member
    control: Control | None = None
    fingerprint: str = ""
    """Of a relay: no relay can ask itself."""
    lost_at: float | None = None
    tried_at: float = field(default=-_RECONNECT)


class Agents:
    """Several tors that do the same work. What one cannot do now, the next attempt gives to another."""

    def __init__(self, members: Sequence[Member], *, cookie: str, journal: Journal) -> None:
        self._agents = [_Agent(member) for member in members]
        self._cookie, self._journal = cookie, journal
        self._turn = 0

    def open(self) -> None:
        """Connect to all of them. TestbedError for the first that cannot be reached or does not let us in."""
        for agent in self._agents:
            self._connect(agent)

    def close(self) -> None:
        """End all connections."""
        for agent in self._agents:
            if agent.control is not None:
                agent.control.close()

    def getinfo(self, key: str) -> str:
        """A value that any of them can give; TestbedError when none answers."""
        return self._of_any(lambda control: control.getinfo(key))

    def directory(self) -> Directory:
        """The consensus and microdescriptors that they use; TestbedError when none answers."""
        try:
            return self._of_any(lambda control: read_directory(control, b""))
        except ControlError as error:
            raise TestbedError(
                f"no consensus to go by: {error.what}", where=error.where, remedy="is that tor on its network?"
            ) from error

    def post(self, label: str, texts: Mapping[str, str], timeout: float = UPLOAD_TIMEOUT) -> dict[str, str]:
        """Upload a descriptor to each HSDir, given by fingerprint: why it did not take it; empty where it did.

        ``HSPOST`` is acknowledged at once, whatever becomes of the upload; an HS_DESC event tells the end of it.
        """
        answers: dict[str, str] = {}

        def begin(control: Control, fingerprints: Sequence[str]) -> None:
            for fingerprint in fingerprints:
                try:
                    command = f"+HSPOST SERVER={fingerprint} HSADDRESS={label}"
                    control.ask(command, texts[fingerprint])
                except ControlError as error:
                    answers[fingerprint] = error.what

        def take(text: str) -> None:
            event = parse_event(text)
            if event is None or event.address != label or event.fingerprint not in texts:
                return
            if event.action == "UPLOADED":
                answers[event.fingerprint] = ""
            elif event.action == "FAILED" and event.reason != "NOT_FOUND":
                answers[event.fingerprint] = event.reason

        self._work(list(texts), answers, begin, take, timeout)
        return {fingerprint: answers.get(fingerprint, NO_ANSWER) for fingerprint in texts}

    def fetch(
        self,
        label: str,
        fingerprints: Iterable[str],
        *,
        suits: Suits = lambda valid_after: True,
        timeout: float = FETCH_TIMEOUT,
    ) -> dict[str, str | None]:
        """The descriptor that each HSDir holds; empty where it holds none, None where it did not answer.

        Nothing at all where there is no agent whose consensus ``suits``: it decides for which period a tor asks.
        """
        wanted = list(fingerprints)
        if not any(suits(valid_after) for valid_after in self._consensuses().values()):
            return {}
        answers: dict[str, str] = {}
        failed: dict[str, str] = {}

        def begin(control: Control, asked: Sequence[str]) -> None:
            control.ask(" ".join(["HSFETCH", label, *(f"SERVER={item}" for item in asked)]))

        def take(text: str) -> None:
            content = parse_content_event(text)
            if content is not None:
                if content[0] in wanted and content[1]:
                    answers[content[0]] = content[1]
                return
            event = parse_event(text)
            if _about(event, label, wanted) and event is not None and event.action == "FAILED":
                if event.reason == "NOT_FOUND":
                    answers[event.fingerprint] = ""
                elif event.reason != "UPLOAD_REJECTED":
                    failed[event.fingerprint] = event.reason

        for _ in range(FETCHES):
            failed.clear()
            missing = [fingerprint for fingerprint in wanted if fingerprint not in answers]
            if missing:
                self._work(missing, answers, begin, take, timeout, failed, suits)
        return {fingerprint: answers.get(fingerprint) for fingerprint in wanted}

    def _work(
        self,
        wanted: Sequence[str],
        answers: Mapping[str, str],
        begin: Callable[[Control, Sequence[str]], None],
        take: Callable[[str], None],
        timeout: float,
        failed: Mapping[str, str] | None = None,
        suits: Suits = lambda valid_after: True,
    ) -> None:
        """Give the work to agents, and take in their events until there is an answer for each HSDir."""
        self._turn += 1
        busy = []
        for agent, fingerprints in self._shared(wanted, suits):
            control = self._reach(agent)
            if control is None:
                continue
            try:
                control.drain()  # what is left of earlier work
                begin(control, fingerprints)
                busy.append(agent)
            except TestbedError as error:
                self._lose(agent, error)
        deadline = latest = time.monotonic() + timeout
        known = 0
        while busy and not set(wanted) <= {*answers, *(failed or {})} and time.monotonic() < deadline:
            if len(answers) > known:
                known = len(answers)
                deadline = min(latest, time.monotonic() + LAGGARD)
            controls = {agent.control: agent for agent in busy if agent.control is not None}
            for control in await_any([*controls], 0.2):
                try:
                    for text in control.drain():
                        take(text)
                except TestbedError as error:
                    self._lose(controls[control], error)
            busy = [agent for agent in busy if agent.control is not None]

    def _consensuses(self) -> dict[str, str]:
        """When the consensus of each agent that can be reached became valid, by the agent's name."""
        found = {}
        for agent in self._agents:
            control = self._reach(agent)
            if control is not None:
                try:
                    found[agent.member.name] = control.getinfo("consensus/valid-after")
                except TestbedError as error:
                    if control.fileno() < 0:
                        self._lose(agent, error)
        return found

    def _shared(self, fingerprints: Sequence[str], suits: Suits) -> list[tuple[_Agent, list[str]]]:
        """The work of each agent: the next in turn does all of it but what it would have to do with itself."""
        order = [self._agents[(self._turn + place) % len(self._agents)] for place in range(len(self._agents))]
        fit = {name for name, valid_after in self._consensuses().items() if suits(valid_after)}
        alive = [agent for agent in order if agent.member.name in fit]
        if not alive:
            return []
        work: dict[int, list[str]] = {}
        for fingerprint in fingerprints:
            place = next((n for n, agent in enumerate(alive) if agent.fingerprint != fingerprint), 0)
            work.setdefault(place, []).append(fingerprint)
        return [(alive[place], mine) for place, mine in work.items()]

    def _of_any(self, ask: Callable[[Control], _T]) -> _T:
        failure: TestbedError | None = None
        for agent in self._agents:
            control = self._reach(agent)
            if control is None:
                continue
            try:
                return ask(control)
            except TestbedError as error:
                failure = error
                if control.fileno() < 0:
                    self._lose(agent, error)
        raise failure or TestbedError("no tor that could upload descriptors can be reached")

    def _reach(self, agent: _Agent) -> Control | None:
        if agent.control is None and time.monotonic() - agent.tried_at >= _RECONNECT:
            try:
                self._connect(agent)
            except TestbedError:
                return None
        return agent.control

    def _connect(self, agent: _Agent) -> None:
        member = agent.member
        agent.tried_at = time.monotonic()
        control = connect(
            member.name,
            member.control,
            cookie=self._cookie,
            on_gap=lambda why: self._journal.event("control_gap", member.name, why=why),
        )
        control.subscribe("HS_DESC", "HS_DESC_CONTENT")
        try:
            agent.fingerprint = control.getinfo("fingerprint").strip()
        except ControlError:
            agent.fingerprint = ""  # a client has none
        agent.control = control
        if agent.lost_at is not None:
            self._journal.event("control_gap", member.name, seconds=round(time.monotonic() - agent.lost_at, 3))
            agent.lost_at = None

    def _lose(self, agent: _Agent, error: TestbedError) -> None:
        if agent.control is not None:
            agent.control.close()
            agent.control = None
        agent.lost_at = time.monotonic()
        self._journal.event("control_lost", agent.member.name, why=error.what)


def nicknames(routers: Iterable[Router]) -> dict[str, str]:
    """Nicknames by fingerprint."""
    return {router.fingerprint: router.nickname for router in routers}


def _about(event: DescriptorEvent | None, label: str, fingerprints: Sequence[str]) -> bool:
    return event is not None and event.address == label and event.fingerprint in fingerprints
