"""Bringing what a set of HSDirs holds to what it should hold: plan, make, upload, fetch back, try again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from testbed.errors import TestbedError
from testbed.tor.balance.revision import tor_revision
from testbed.tor.distribute.agent import NO_ANSWER, RETRY_TIMEOUT, UPLOAD_TIMEOUT, Agents
from testbed.tor.distribute.compose import Composer
from testbed.tor.distribute.counters import Counters
from testbed.tor.distribute.document import Content, Made, common_header, make_descriptor
from testbed.tor.distribute.journal import Journal
from testbed.tor.distribute.settings import Secret
from testbed.tor.distribute.shelf import Held, Names, Shelf
from testbed.tor.protocol.descriptor import parse_outer

_AHEAD = 3600 << 15
"""How much tor's counters grow in an hour: for HSDirs that cannot be asked for theirs, and hold one of a fast clock."""

Live = Mapping[str, Content]
"""Descriptors of the instances that can be reached, by name, in the order of the settings."""


def plan_returns(
    composer: Composer, hsdirs: Sequence[str], live: Live, plan: Mapping[str, Names], held: Mapping[str, float]
) -> dict[str, Names]:
    """``plan``, and with it what each of ``hsdirs`` that is gone would get if it came back.

    Nothing else is changed for that. It comes out even also if all of them come back at once.
    """
    full = dict(plan)
    for item in hsdirs:
        if item not in plan:
            there = [one for one in hsdirs if one in full or one == item]
            full[item] = composer.plan(there, live, full, held, rotate=False)[item]
    return full


class Placer:
    """Works on shelves; what it knows of them is in them."""

    def __init__(self, secret: Secret, composer: Composer, agents: Agents, counters: Counters, journal: Journal):
        self._secret, self._composer = secret, composer
        self._agents, self._counters, self._journal = agents, counters, journal

    @property
    def label(self) -> str:
        """The service's address without ``.onion``."""
        return self._secret.address.removesuffix(".onion")

    def plan(self, shelf: Shelf, live: Live, held: Mapping[str, float], *, rotate: bool, refresh: float) -> str:
        """Bring the plan up to date; why everything has to be placed anew, or nothing.

        ``held``: how long each instance has held HSDirs; ``refresh``: seconds after which all is placed anew anyway.
        """
        available = shelf.available() or shelf.fingerprints
        before = shelf.plan
        plan = self._composer.plan(available, live, before, held, rotate=rotate)
        shelf.plan = plan_returns(self._composer, shelf.fingerprints, live, plan, held)
        if shelf.placed_at is None:
            return "first placement"
        if shelf.urgent:
            return shelf.urgent
        if any(before.get(item) != plan[item] for item in available):
            return "rotation" if rotate else "instances or HSDirs changed"
        new = [item for item in available if item in shelf.held and self._other_points(shelf, item, live)]
        if new:
            return f"new introduction points of {', '.join(sorted({name for item in new for name in plan[item]}))}"
        return "age" if time.monotonic() - shelf.placed_at > refresh else ""

    def place(self, shelf: Shelf, live: Live, reason: str) -> None:
        """Upload to every HSDir that is not gone, all with the same new counter."""
        begun = time.monotonic()
        if shelf.placed_at is None and shelf.fetched:
            found = self._agents.fetch(self.label, shelf.fingerprints, suits=shelf.is_asked_with)
            for text in found.values():
                if text:
                    self._counters.saw(shelf.signer.public, parse_outer(text).revision)
        for content in live.values():
            if content.blinded_key == shelf.signer.public:
                self._counters.saw(shelf.signer.public, content.revision)
        # what a tor would use now: above all that any tor has used for this key
        self._counters.saw(shelf.signer.public, tor_revision(shelf.signer, max(1, int(time.time()) - shelf.run_start)))
        revision = self._counters.next(shelf.signer.public)
        shelf.urgent, shelf.placed_at = "", begun
        wanted = shelf.available() or shelf.fingerprints
        made = {names: self._make(shelf, names, live, revision) for names in {shelf.plan[item] for item in wanted}}
        taken = self._upload(shelf, {item: made[shelf.plan[item]] for item in wanted})
        self._journal.event(
            "distribution",
            reason=reason,
            period=shelf.responsible.period,
            fetched=shelf.fetched,
            revision=revision,
            placed={shelf.router(item).nickname: list(shelf.plan[item]) for item in taken},
            failed=[shelf.router(item).nickname for item in wanted if item not in taken],
            points=max(len(item.points) for item in made.values()),
            bytes=max(len(item.text) for item in made.values()),
            seconds=round(time.monotonic() - begun, 3),
        )

    def try_again(self, shelf: Shelf, live: Live, due: Sequence[str]) -> None:
        """Upload to HSDirs that failed, with the counter of what the others hold."""
        revision = max((held.made.revision for held in shelf.held.values()), default=0)
        revision = revision or self._counters.next(shelf.signer.public)
        made = {}
        for item in due:
            sent = shelf.sent.get(item)
            if sent and sent.names == shelf.plan[item] and sent.made.revision == revision:
                made[item] = sent.made  # perhaps it has this one, and only its answer was lost
            else:
                made[item] = self._make(shelf, shelf.plan[item], live, revision)
        self._upload(shelf, made, RETRY_TIMEOUT)

    def verify(self, shelf: Shelf, only: Sequence[str] = ()) -> None:
        """Fetch back what HSDirs hold, and note what is not as it should be."""
        if not only:
            shelf.looked_at = time.monotonic()
        asked = only or [item for item in shelf.held if item not in shelf.failing]
        for item, text in self._agents.fetch(self.label, asked, suits=shelf.is_asked_with).items():
            if text is None:
                if not only:
                    shelf.fail(item, NO_ANSWER, self._journal)
            else:
                self._compare(shelf, item, text)

    def _compare(self, shelf: Shelf, item: str, text: str) -> None:
        sent = shelf.sent.get(item)
        outer = parse_outer(text) if text else None
        if outer and sent and outer.signing_key == sent.made.signing_key:
            sent.verified = time.monotonic()
            shelf.held[item] = sent
            shelf.succeed(item, self._journal)
            return
        held = shelf.held.get(item)
        if outer and held and outer.signing_key == held.made.signing_key:
            return  # one of ours, but not the last one, which it did not get
        name = shelf.router(item).nickname
        if outer is None:
            self._journal.event("descriptor_gone", name)
        else:
            self._journal.event("foreign_descriptor", name, revision=outer.revision)
            self._counters.saw(shelf.signer.public, outer.revision)
            shelf.urgent = f"{name} holds another descriptor"
        shelf.held.pop(item, None)
        if item not in shelf.failing:
            shelf.fail(item, "holds none" if outer is None else "holds another", self._journal, at_once=True)

    def _other_points(self, shelf: Shelf, item: str, live: Live) -> bool:
        points = self._composer.points({name: live[name] for name in shelf.plan[item]})
        return {point.auth_key for point in points} != shelf.held[item].made.keys

    def _make(self, shelf: Shelf, names: Names, live: Live, revision: int) -> Made:
        contents = {name: live[name] for name in names}
        try:
            return make_descriptor(
                common_header(list(contents.values())),
                self._composer.points(contents),
                signer=shelf.signer,
                identity=self._secret.public,
                revision=revision,
                now=time.time(),
            )
        except ValueError as error:
            raise TestbedError(str(error), where=", ".join(names)) from error

    def _upload(self, shelf: Shelf, made: Mapping[str, Made], timeout: float = UPLOAD_TIMEOUT) -> list[str]:
        """The HSDirs that took theirs."""
        shelf.sent |= {item: Held(one, shelf.plan[item]) for item, one in made.items()}
        answers = self._agents.post(self.label, {item: one.text for item, one in made.items()}, timeout)
        taken = []
        for item, reason in answers.items():
            if reason:
                shelf.fail(item, reason, self._journal)
                continue
            shelf.held[item] = shelf.sent[item]
            shelf.succeed(item, self._journal)
            taken.append(item)
        rejected = [item for item, reason in answers.items() if reason == "UPLOAD_REJECTED"]
        if rejected and shelf.fetched:
            self.verify(shelf, rejected)
        elif rejected:
            used = max(made[item].revision for item in rejected)
            self._counters.saw(shelf.signer.public, used + _AHEAD)
            shelf.urgent = "HSDirs hold higher counters"
        return taken
