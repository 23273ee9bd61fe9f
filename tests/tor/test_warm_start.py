"""Warm starts: the network that was kept comes up again; anything in doubt is a cold start that says why."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.measure.load import run_load
from testbed.plan.load import load_text
from testbed.plan.types import Plan
from testbed.tor.bringup import bringup, warm
from testbed.tor.bringup.firstvote import Timing
from testbed.tor.protocol.hsdir import Consensus
from testbed.tor.torrc import Voting

SMALL = """\
name: tor-warm
seed: {seed}
tor: {{authorities: 1, relays: 4, clients: 1, lifetime: {lifetime}}}
onions: {{shop: {{instances: 1, runtime: process, content: {{size: 20kB}}}}}}
"""
MIDNIGHT = 1_800_000_000 - 1_800_000_000 % 86400
VOTING = Voting(3600, 1800, 0, 3)


def plan_of(seed: int = 5, lifetime: str = "20min") -> Plan:
    """A small network with an onion service."""
    _, plan = load_text(SMALL.format(seed=seed, lifetime=lifetime))
    return plan


def consensus(valid_after: int, interval: int = 3600) -> Consensus:
    """A consensus of nobody."""
    return Consensus(valid_after, valid_after + interval, {}, None, None, ())


@pytest.mark.parametrize(
    ("age", "needed", "reason"),
    [
        (-1, 60, "set back"),
        (3600 - warm.VOTE_MARGIN + 1, 60, "expired"),
        (100 * 3600, 60, "expired"),
        (10, 12 * 3600, "time period"),
    ],
)
def test_consensus_that_cannot_be_used(age: int, needed: float, reason: str) -> None:
    """Not valid yet, about to be voted on, long expired, or valid in the wrong half of a time period."""
    with pytest.raises(warm.Unusable, match=reason):
        warm.check_consensus(consensus(MIDNIGHT), VOTING, MIDNIGHT + age, needed)


@pytest.mark.parametrize("age", [0, 10, 3600 - warm.VOTE_MARGIN])
def test_consensus_that_can_be_used(age: int) -> None:
    """A fresh one is, until the next vote is near."""
    warm.check_consensus(consensus(MIDNIGHT), VOTING, MIDNIGHT + age, 3600)


def test_consensus_is_not_used_beyond_the_next_vote() -> None:
    """tor votes at a fixed offset from the hour, so a consensus of half past is replaced while it is still fresh."""
    voting = VOTING.moved_to(MIDNIGHT + 3 * 3600 + 31 * 60 + 4)
    valid_after = MIDNIGHT + 3 * 3600 + 31 * 60 + 4
    assert voting.next_vote(valid_after) == MIDNIGHT + 4 * 3600 + 64, "as tor 0.4.9.11 said for these figures"
    warm.check_consensus(consensus(valid_after), voting, valid_after + 1800 - warm.VOTE_MARGIN, 60)
    with pytest.raises(warm.Unusable, match="expired"):
        warm.check_consensus(consensus(valid_after), voting, valid_after + 1801 - warm.VOTE_MARGIN, 60)


@given(st.integers(0, 10**6), st.sampled_from([300, 1800, 3600, 7200, 420]))
def test_next_vote_is_within_an_interval(moment: int, interval: int) -> None:
    """Always later, and never later than one interval."""
    voting = Voting(interval, 300, 0, 3).moved_to(moment)
    assert moment < voting.next_vote(moment) <= moment + interval


def test_digest_follows_the_network_alone() -> None:
    """Seed and section matter; the name of the topology, its onion services and its lifetime do not."""
    plan = plan_of()
    assert warm.digest(plan) == warm.digest(plan_of())
    sections = {"tor": plan.sections["tor"]}
    assert warm.digest(plan) == warm.digest(plan.model_copy(update={"name": "other", "sections": sections}))
    assert warm.digest(plan) == warm.digest(plan_of(lifetime="21min"))
    section = {**plan.sections["tor"], "hsdir_spread": 4}
    others = plan_of(seed=6), plan.model_copy(update={"sections": {"tor": section}})
    assert len({warm.digest(plan), *map(warm.digest, others)}) == 3


def test_only_a_few_networks_are_kept(tmp_path: Path) -> None:
    """The ones used longest ago go, and halves that a killed process left."""
    folder = tmp_path / "warm"
    with warm._locked(folder):
        for number in range(warm.MOST_KEPT + 2):
            path = folder / f"{number}.zip"
            path.write_bytes(b"")
            os.utime(path, (number, number))
        (folder / "half.part").write_bytes(b"")
        warm._forget_oldest(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["2.zip", "3.zip", "4.zip", "5.zip", "lock"]


def events(lab: Lab, kind: str) -> list[dict[str, Any]]:
    """The lab's events of a kind."""
    lines = (lab.folder / "events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["kind"] == kind]


def why_cold(lab: Lab) -> str:
    """Why a lab that might have been started warm was not."""
    (event,) = events(lab, "cold_start")
    assert events(lab, "warm_start") == []
    return str(event["reason"])


@pytest.fixture(scope="module")
def kept(module_state: Path) -> Path:
    """What a cold start of the small network leaves."""
    plan = plan_of(lifetime="1h")  # more than the tests need, so that none depends on the time of day
    lab = up(plan, "tor-warm-first", hold=["onions"])
    assert events(lab, "warm_start") == events(lab, "cold_start") == []
    identities = {node: fingerprint(lab, node) for node in ("auth1", "relay1")}
    lab.down()
    path = warm.place(plan)
    (module_state / "identities.json").write_text(json.dumps(identities))
    copy = module_state / "copy.zip"
    shutil.copy2(path, copy)
    return copy


@pytest.fixture
def cache(kept: Path) -> Iterator[Path]:
    """The place of the small network, with what its first start left."""
    path = warm.place(plan_of())
    shutil.copy2(kept, path)
    yield path
    from testbed.lab.down import down_all

    down_all()


def fingerprint(lab: Lab, node: str) -> str:
    """A relay's RSA identity, which tor makes anew at every cold start."""
    return (lab.node_folder(node) / "tor" / "fingerprint").read_text().strip()


def fetch(lab: Lab) -> None:
    """A client's download from the onion service."""
    tor, onions = lab.subsystem("tor"), lab.subsystem("onions")
    client = tor.clients[0]
    summary = run_load(
        {client: tor.socks_path(client)}, onions.address("shop"), 80, "/file", size=20_000, seed=lab.plan.seed, count=1
    )
    assert summary.ok == 1


@pytest.mark.root
@pytest.mark.tor
def test_the_same_network_again(cache: Path, module_state: Path) -> None:
    """The same identities and consensus; guards anew; a client fetches through an onion service.

    Its instance has been started while the network came up, and has waited for it.
    """
    plan = plan_of()
    lab = up(plan, warm=True)
    (event,) = events(lab, "warm_start")
    (started,), (ready,) = events(lab, "onion_started"), events(lab, "onion_ready")
    assert started["t"] < event["t"] < ready["t"]
    assert event["digest"] == cache.stem
    assert events(lab, "cold_start") == []
    identities = json.loads((module_state / "identities.json").read_text())
    assert {node: fingerprint(lab, node) for node in identities} == identities
    tor, onions = lab.subsystem("tor"), lab.subsystem("onions")
    with zipfile.ZipFile(cache) as archive:
        text = archive.read("directory/cached-microdesc-consensus").decode()
        assert not [name for name in archive.namelist() if name.endswith("/state")]
    assert tor.directory().consensus_text == text
    for node in tor.nodes.values():
        owners = {(path.stat().st_uid, path.stat().st_gid) for path in node.paths.data.rglob("*")}
        assert owners == {(10001, 10001)}
    assert onions.running("shop") == ["shop1"]
    fetch(lab)


@pytest.mark.root
@pytest.mark.tor
def test_a_damaged_one_is_not_used(cache: Path) -> None:
    """One flipped byte in the middle is found by its checksum; the cold start then leaves a whole one."""
    content = bytearray(cache.read_bytes())
    content[len(content) // 2] ^= 0xFF
    cache.write_bytes(content)
    assert "damaged" in why_cold(up(plan_of(), hold=["onions"], warm=True))
    assert warm.recall(plan_of(), time.time(), 60).own


@pytest.mark.root
@pytest.mark.tor
def test_one_that_does_not_work_is_given_up(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of another network in a whole file: nobody can build a circuit, so it is started cold, and works.

    The instance that waited for it is started anew, for the network that there is then.
    """
    plan = plan_of()
    now = warm.recall(plan, time.time(), 60)
    with zipfile.ZipFile(cache, "w") as archive:
        archive.writestr("network.json", json.dumps({"voting": dataclasses.asdict(now.voting)}))
        archive.writestr("microdescriptors", now.directory.microdescriptors)
        for name, content in now.documents.items():
            archive.writestr(f"directory/{name}", content)
        for node, files in now.own.items():
            for name, content in files.items():
                wrong = now.own["relay2" if node == "relay1" else "relay1"] if node != "auth1" else files
                archive.writestr(f"nodes/{node}/{name}", wrong.get(name, content))
    monkeypatch.setattr(bringup, "Timing", partial(Timing, warm=3))
    lab = up(plan, warm=True)
    assert "nodes" in why_cold(lab)
    running = [process.node for process in lab.processes() if process.alive() and process.service == "tor"]
    assert len(running) == len(set(running)) == 7, "none of the first attempt's processes is left"
    assert [event["service"] for event in events(lab, "onion_anew")] == ["shop"]
    fetch(lab)


@pytest.mark.root
@pytest.mark.tor
def test_another_plan_uses_nothing(cache: Path) -> None:
    """Another seed is another network."""
    assert why_cold(up(plan_of(seed=6), hold=["onions"], warm=True)) == "nothing is kept of this network"


@pytest.mark.root
@pytest.mark.tor
def test_an_expired_consensus_is_not_used(cache: Path) -> None:
    """A consensus of yesterday in an otherwise whole file."""
    with zipfile.ZipFile(cache) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = "directory/cached-microdesc-consensus"
    lines = members[name].decode().splitlines(keepends=True)
    old = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() - 86400))
    members[name] = "".join(
        f"{line.split()[0]} {old}\n" if line.startswith(("valid-after", "fresh-until")) else line for line in lines
    ).encode()
    with zipfile.ZipFile(cache, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    assert "expired" in why_cold(up(plan_of(), hold=["onions"], warm=True))
