"""Bring-ups in which something goes wrong: repaired where it can be, else one clear error and nothing left."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError, WaitTimeout
from testbed.lab import ownership
from testbed.lab.lab import Lab
from testbed.lab.state import Folder, lab_id
from testbed.lab.up import up
from testbed.plan.load import load_text
from testbed.plan.types import Plan
from testbed.tor.bringup.firstvote import Timing
from testbed.tor.directory import read_directory
from testbed.tor.network import TorNetwork

pytestmark = [pytest.mark.root, pytest.mark.tor]


def plan_of(torrc: str = "{}") -> Plan:
    """A network of one authority, four relays and a client."""
    _, plan = load_text(f"name: tor-faults\nseed: 3\ntor: {{authorities: 1, relays: 4, clients: 1, torrc: {torrc}}}\n")
    return plan


@pytest.fixture
def held(state: Path) -> Lab:
    """A lab whose network has not been started."""
    return up(plan_of(), hold=["tor"])


def on_start(lab: Lab, node: str, number: int) -> None:
    """Send a signal to the tor of ``node`` as soon as it has been started for the first time."""

    def listen(moment: float, kind: str, where: str, detail: dict[str, Any]) -> None:
        if kind == "process" and where == node:
            lab.listeners.remove(listen)
            os.kill(detail["pid"], number)

    lab.listeners.append(listen)


def events(lab: Lab, kind: str) -> list[dict[str, Any]]:
    """The lab's events of a kind."""
    lines = (lab.folder / "events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["kind"] == kind]


def test_a_vote_that_came_too_early_is_repaired(held: Lab) -> None:
    """Authorities that vote before all descriptors are there make a short consensus; the network is started anew."""
    on_start(held, "relay4", signal.SIGSTOP)
    tor = TorNetwork.start(held, vote_at=4)
    (event,) = events(held, "vote_short")
    assert event["missing"] == ["relay4"]
    assert event["attempt"] == 1
    assert {router.nickname for router in tor.directory().consensus.routers} == {*tor.authorities, *tor.relays}
    running = [process.node for process in held.processes() if process.alive()]
    assert sorted(running) == sorted(tor.nodes), "none of the first attempt's processes is left"


def test_a_vote_that_came_to_nothing_is_repeated(state: Path) -> None:
    """Authorities that have too little time to exchange their votes make no consensus; they get more, and make one."""
    _, plan = load_text("name: tor-vote\ntor: {authorities: 3, relays: 2, clients: 0}\n")
    lab = up(plan, hold=["tor"])
    tor = TorNetwork.start(lab, timing=Timing(vote_lead=2))
    failed = events(lab, "vote_failed")
    assert [event["lead"] for event in failed][:1] == [2]
    for name in tor.authorities:
        with tor.control(name) as control:
            assert len(read_directory(control, b"").consensus.routers) == 5
    assert events(lab, "vote_short") == []


def test_an_option_that_tor_does_not_know(state: Path) -> None:
    """tor's own message and the line of the torrc, as one error; nothing is left of the lab."""
    with pytest.raises(TestbedError) as caught:
        up(plan_of('{NoSuchOption: "1"}'))
    message = str(caught.value)
    assert message.startswith("auth1: tor ended with status 1: Failed to parse/validate config: Unknown option 'NoSuch")
    assert "of its torrc: `NoSuchOption 1`" in message
    identity = lab_id("tor-faults")
    assert ownership.processes(identity) == {}
    assert ownership.namespaces(identity) == []
    assert not Folder(identity).exists()


def test_a_value_that_tor_does_not_take(state: Path) -> None:
    """The same for a known option."""
    with pytest.raises(
        TestbedError, match=r"auth1: tor ended with status 1: .*\n  line \d+ of its torrc: `MaxCircuitD"
    ):
        up(plan_of('{MaxCircuitDirtiness: "soon"}'))


def test_a_tor_that_is_killed(held: Lab) -> None:
    """It is named, and how it ended."""
    on_start(held, "relay3", signal.SIGKILL)
    with pytest.raises(TestbedError, match="relay3: tor ended"):
        TorNetwork.start(held)


def test_a_relay_that_hangs(held: Lab) -> None:
    """The wait for descriptors ends, says who is missing and what it last said."""
    on_start(held, "relay2", signal.SIGSTOP)
    with pytest.raises(WaitTimeout) as caught:
        TorNetwork.start(held, timing=Timing(descriptors=4))
    message = str(caught.value)
    assert message.startswith("tor: waited 4 s for relay descriptors at the authorities; seen: 1 missing")
    assert "not there: relay2" in message
    assert "last words of relay2" in message


def test_a_client_that_hangs(held: Lab) -> None:
    """Likewise for a later stage, when all the others are ready."""
    on_start(held, "client1", signal.SIGSTOP)
    with pytest.raises(
        WaitTimeout, match=r"waited 2 s for a circuit \(100 % bootstrapped\) at 1 nodes; seen: 0 have it"
    ):
        TorNetwork.start(held, timing=Timing(clients=2))


def test_a_state_folder_with_too_long_a_path(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unix socket has room for 107 bytes; the error says what to shorten."""
    folder = state / ("d" * 60)
    folder.mkdir(mode=0o711)
    monkeypatch.setenv("TESTBED_STATE", str(folder))
    with pytest.raises(TestbedError, match=r"too long for a socket \(107 bytes\)\n  set TESTBED_STATE"):
        up(plan_of())
