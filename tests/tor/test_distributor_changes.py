"""What a distributor does when something changes about it, on real tors: descriptors, HSDirs, periods, publishers.

It runs within the test here, and looks at what the HSDirs hold once a second. Consensuses in which an HSDir is missing,
or that are of another time period, are real ones with one line changed: a network votes once an hour at most.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from publishing_world import NETWORK, await_true, holders, published, reached

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.tor.directory import Directory
from testbed.tor.distribute import engine
from testbed.tor.distribute.agent import Agents
from testbed.tor.distribute.document import Content, make_descriptor
from testbed.tor.distribute.engine import Distributor
from testbed.tor.distribute.instance import InstanceWatch
from testbed.tor.distribute.journal import Journal
from testbed.tor.distribute.settings import Settings
from testbed.tor.node import make_node
from testbed.tor.onion.hsdirmap import default_readers
from testbed.tor.onion.published import helper_of
from testbed.tor.onion.readers import readers
from testbed.tor.onion.services import OnionServices
from testbed.tor.onion.strategies import instance_key
from testbed.tor.protocol.blinding import BlindedSigner
from testbed.tor.protocol.hsdir import Responsible
from testbed.tor.protocol.keys import onion_address, onion_key

pytestmark = [pytest.mark.root, pytest.mark.tor]

TOPOLOGY = f"""
name: changes-test
{NETWORK}
onions:
  shop: {{instances: 3, publish: distributor, content: {{size: 64KiB}}}}
  mix: {{instances: 2, publish: hybrid, content: {{size: 64KiB}}}}
"""
EVEN = {"shop1": 2, "shop2": 2, "shop3": 2}


@pytest.fixture(scope="module")
def lab(shared_network: Path) -> Lab:
    """The network is up, with three instances; their distributor has placed them, and is ended."""
    lab = published(TOPOLOGY)
    helper_of(lab.subsystem("onions"), "shop").stop()
    return lab


@dataclass
class AtWork:
    """A distributor in a thread, and what it has told."""

    told: list[dict[str, Any]] = field(default_factory=list)
    complete: Callable[[], bool] = lambda: False

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Events of a kind."""
        return [event for event in list(self.told) if event["kind"] == kind]

    def await_event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait until there are so many events of a kind; the last of them."""
        await_true(lambda: len(self.events(kind)) >= count, f"{count} events {kind}")
        return self.events(kind)[count - 1]


def begin(lab: Lab, service: str, folder: Path, stop: threading.Event) -> tuple[AtWork, threading.Thread]:
    """Let one take over the running instances of a service."""
    onions = lab.subsystem("onions")
    settings = helper_of(onions, service).folder / "settings.json"
    wanted = Settings.model_validate_json(settings.read_text())
    work = AtWork()

    def listen(kind: str, node: str, detail: Any) -> None:
        work.told.append({"kind": kind, "node": node, **detail})

    journal = Journal(folder, listen)
    status: dict[str, Any] = {}
    journal.status = status.update  # type: ignore[method-assign]
    work.complete = lambda: bool(status.get("complete"))
    distributor = Distributor(wanted.model_copy(update={"folder": str(folder), "poll": 0.3, "verify": 1.0}), journal)
    distributor.open()
    thread = threading.Thread(target=distributor.run, args=(stop,))
    thread.start()
    return work, thread


@pytest.fixture
def work(lab: Lab, tmp_path: Path) -> Iterator[AtWork]:
    """A distributor for the three instances that has placed all of them; it ends with the test."""
    stop = threading.Event()
    begun, thread = begin(lab, "shop", tmp_path / "distributor", stop)
    try:
        await_true(begun.complete, "everything to be placed")
        yield begun
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def feed(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Let distributors see the real consensus with a change."""
    real, getinfo = Agents.directory, Agents.getinfo

    def changed(agents: Agents) -> Directory:
        directory = real(agents)
        return replace(directory, consensus_text=change(directory.consensus_text))

    def told(agents: Agents, key: str) -> str:
        return stamp(changed(agents).consensus.valid_after) if key == "consensus/valid-after" else getinfo(agents, key)

    monkeypatch.setattr(Agents, "directory", changed)
    monkeypatch.setattr(Agents, "getinfo", told)


def stamp(moment: int) -> str:
    """As consensuses have it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))


def valid_from(text: str, moment: Callable[[int], int]) -> str:
    """A consensus that becomes valid at another moment, given what its own is, and is fresh for as long."""
    old = Directory(text, "", b"").consensus
    new = moment(old.valid_after)
    text = re.sub(r"^valid-after .*$", f"valid-after {stamp(new)}", text, flags=re.MULTILINE)
    fresh = stamp(new + old.fresh_until - old.valid_after)
    return re.sub(r"^fresh-until .*$", f"fresh-until {fresh}", text, flags=re.MULTILINE)


def test_a_new_descriptor(lab: Lab, onions: OnionServices, work: AtWork) -> None:
    """An instance that makes more introduction points has another descriptor, which replaces the one at its HSDirs."""
    before = {name: onions.content(name).keys for name in EVEN}
    node = make_node(lab, "shop2")
    try:
        options = dict(work_options(node.require().ask("GETCONF HiddenServiceOptions").content()))
        options["HiddenServiceNumIntroductionPoints"] = "5"
        node.require().ask("SETCONF " + " ".join(f'{name}="{value}"' for name, value in options.items()))
        await_true(lambda: len(onions.content("shop2").points) == 5, "five introduction points")
    finally:
        node.close()
    renewed = re.compile("new introduction points of .*shop2")
    await_true(
        lambda: any(renewed.match(e["reason"]) and e["points"] == 5 for e in work.events("distribution")), "uploads"
    )
    await_true(work.complete, "that to be fetched back")
    assert Counter(holders(onions)) == EVEN
    assert onions.content("shop2").keys != before["shop2"]
    assert onions.content("shop1").keys == before["shop1"]
    assert not work.events("instance_lost"), "clients could reach it all the time"


def work_options(lines: Any) -> Iterator[tuple[str, str]]:
    """Options and values in the order in which tor tells them."""
    for _, _, line in lines:
        name, _, value = line.partition("=")
        if value:
            yield name, value


def test_an_hsdir_leaves_and_joins(
    lab: Lab, onions: OnionServices, work: AtWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The HSDir that takes the place of one that leaves gets a descriptor at once; so does one that joins."""
    victim = next(e.nickname for e in onions.hsdir_map("shop") if e.nickname not in default_readers(onions.network))

    def without(text: str) -> str:
        entry = rf"^(r {victim} (?:.*\n)+?s .*)\bHSDir\b ?"
        return re.sub(entry, r"\1", valid_from(text, lambda moment: moment + 1), flags=re.MULTILINE)

    with monkeypatch.context() as patch:
        feed(patch, without)
        changed = work.await_event("hsdirs_changed")
        assert changed["left"] == [victim]
        (newcomer,) = changed["joined"]
        await_true(
            lambda: any(newcomer in e["placed"] for e in work.events("distribution")), "the newcomer to have one"
        )
        await_true(work.complete, "that to be fetched back")
        last = work.events("distribution")[-1]
        assert victim not in last["placed"]
        assert Counter(name for names in last["placed"].values() for name in names) == EVEN
    changed = work.await_event("hsdirs_changed", 2)
    assert (changed["joined"], changed["left"]) == ([victim], [newcomer])
    await_true(lambda: victim in work.events("distribution")[-1]["placed"], "it to have one again")
    await_true(work.complete, "that to be fetched back")
    assert Counter(holders(onions)) == EVEN


def foreign(onions: OnionServices, service: str, responsible: Responsible, content: Content, revision: int) -> str:
    """A descriptor that somebody else who has the service's key could make."""
    made = make_descriptor(
        content.header,
        content.points[:1],
        signer=BlindedSigner.make(
            onion_key(3, service).expanded, responsible.period, onions.network.directory().consensus.periods.length
        ),
        identity=onion_key(3, service).public,
        revision=revision,
        now=time.time(),
    )
    return made.text


def post(onions: OnionServices, service: str, texts: dict[str, str], folder: Path) -> dict[str, str]:
    """Upload descriptors, by fingerprint of the HSDir; why each did not take it."""
    with readers(onions.network, folder / "foreign") as agents:
        return agents.post(onions.address(service).removesuffix(".onion"), texts)


def test_somebody_else_publishes(lab: Lab, onions: OnionServices, work: AtWork, tmp_path: Path) -> None:
    """A descriptor with a higher counter is seen, and replaced by one with a counter that is higher still."""
    entry = onions.hsdir_map("shop")[0]
    current = onions.network.directory().ring(onion_key(3, "shop").public).current
    revision = (entry.revision or 0) + 10**5  # what tor would use in three seconds
    texts = {entry.fingerprint: foreign(onions, "shop", current, onions.content("shop3"), revision)}
    assert post(onions, "shop", texts, tmp_path) == {entry.fingerprint: ""}
    seen = work.await_event("foreign_descriptor")
    assert (seen["node"], seen["revision"]) == (entry.nickname, revision)
    await_true(lambda: work.events("distribution")[-1]["revision"] > revision, "it to be replaced")
    await_true(work.complete, "that to be fetched back")
    assert post(onions, "shop", texts, tmp_path) == {entry.fingerprint: "UPLOAD_REJECTED"}
    entries = onions.hsdir_map("shop")
    assert Counter(item.instance for item in entries) == EVEN
    assert len({item.revision for item in entries}) == 1


def test_instances_are_handed_over_one_by_one(
    lab: Lab, onions: OnionServices, work: AtWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the other half begins each is given back to its own tor, then taken over again: never no descriptor."""
    names, let_publish = list(EVEN), InstanceWatch.let_publish
    let: list[tuple[str, float]] = []

    def noted(watch: InstanceWatch, alone: bool) -> None:
        let.append((watch.member.name, time.monotonic()))
        let_publish(watch, alone)

    monkeypatch.setattr(InstanceWatch, "let_publish", noted)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "other_half", lambda *_: TestbedError("the other half"))
        assert "the other half" in work.await_event("paused")["message"]
        for number in range(1, 4):
            work.await_event("publishes_alone", number)
            assert all(holders(onions)), "never without a descriptor"
        assert {event["node"] for event in work.events("publishes_alone")} == set(names)
        assert [name for name, _ in let] == names
        assert all(later - before > 0.9 * engine.ONE_BY_ONE for (_, before), (_, later) in pairwise(let)), "one by one"
        tors = [make_node(lab, name) for name in names]
        try:
            assert {node.require().getinfo("config-text").count("PublishHidServDescriptors 0") for node in tors} == {0}
        finally:
            for node in tors:
                node.close()
        placed = len(work.events("distribution"))
        await_true(lambda: len(set(holders(onions))) == 1, "one of them to have published last")
    work.await_event("goes_on")
    work.await_event("publishes_no_more", 3)
    await_true(lambda: len(work.events("distribution")) > placed and work.complete(), "all to be placed again")
    await_true(lambda: Counter(holders(onions)) == EVEN, "each to have two HSDirs again")
    assert set(reached(onions, 6)) <= set(names)


def test_the_period_changes(lab: Lab, onions: OnionServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixed descriptors are there before the period begins: what was the next one stays as it is, a new one follows.

    At first an HSDir refuses the next one, for it has another with a higher counter and cannot be asked for that.
    """
    onions.start("mix")
    helper_of(onions, "mix").stop()
    directory, key = onions.network.directory(), onion_key(3, "mix")
    hsdir = directory.ring(key.public).next.hsdirs[0]
    status = helper_of(onions, "mix").status()["shelves"][1]["hsdirs"]
    ahead = max(item["revision"] for item in status) + 10**7  # what tor would use in five minutes
    refusing = foreign(onions, "mix", directory.ring(key.public).next, onions.content("mix1"), ahead)
    assert post(onions, "mix", {hsdir.fingerprint: refusing}, tmp_path) == {hsdir.fingerprint: ""}
    stop = threading.Event()
    work, thread = begin(lab, "mix", tmp_path / "hybrid", stop)
    try:
        failed = work.await_event("upload_failed")
        assert (failed["node"], failed["reason"]) == (hsdir.nickname, "UPLOAD_REJECTED")
        await_true(work.complete, "both descriptors to be placed")
        again = [event for event in work.events("distribution") if event["reason"] == "HSDirs hold higher counters"]
        assert again[-1]["revision"] > ahead
        assert hsdir.nickname in again[-1]["placed"]
        assert work.events("upload_retried")[0]["node"] == hsdir.nickname
        before = {event["period"] for event in work.events("distribution")}
        assert len(before) == 2
        count = len(work.events("distribution"))
        cycle = onions.network.directory().consensus.periods.length * 60
        feed(monkeypatch, lambda text: valid_from(text, lambda moment: (moment // cycle + 1) * cycle))
        assert work.await_event("period_changed")["period"] == max(before)
        work.await_event("distribution", count + 1)
        later = work.events("distribution")[count:]
        assert {event["period"] for event in later} == {max(before) + 1}, "nothing else is uploaded anew"
        assert len(later[-1]["placed"]) == 6
        assert later[-1]["failed"] == []
        assert Counter(name for names in later[-1]["placed"].values() for name in names) == {"mix1": 3, "mix2": 3}
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


def test_mixed_alone(lab: Lab, onions: OnionServices, tmp_path: Path) -> None:
    """The command mixes instances that have addresses of their own, given with their control ports."""
    if not onions.running("mix"):
        onions.start("mix")
    helper_of(onions, "mix").stop()
    before = {entry.revision or 0 for entry in onions.hsdir_map("mix")}
    command = [sys.executable, "-m", "testbed", "distributor", "--once", "--state", str(tmp_path / "state")]
    command += ["--key", str(helper_of(onions, "mix").folder / "key"), "--address", onions.address("mix")]
    for name in ("mix1", "mix2"):
        address = onion_address(instance_key(3, name).public)
        command += ["--control", f"{address}={make_node(lab, name).paths.control}"]
    for name in default_readers(onions.network):
        command += ["--via", str(onions.network.control_path(name))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"hybrid of {onions.address('mix')}: 2 instances" in done.stdout
    entries = onions.hsdir_map("mix")
    assert Counter(entry.instance for entry in entries) == {"mix1": 3, "mix2": 3}
    assert min(entry.revision or 0 for entry in entries) > max(before)
