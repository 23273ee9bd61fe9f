"""The command ``testbed fault``, as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fault_world import Watch

from testbed.cli import main
from testbed.faults.faults import Faults, own_faults
from testbed.faults.link_down import LinkDown
from testbed.lab.lab import Lab

TOPOLOGY = """
name: t
seed: 3
nodes: {a: , b: }
links: [[a, core], [b, core]]
timeline:
  - {at: +10s, fault: link-down, link: [a, core], for: 5s}
  - random: {faults: [{fault: link-down, link: [b, core], for: 1s}], min: 3s, max: 9s, until: +30s}
"""


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Needs no root and no lab."""
    assert main(["fault", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["link-down", "link"] for line in lines)
    assert any(line.split(maxsplit=1) == ["kill", "node, [service]"] for line in lines)
    assert not any("together" in line for line in lines)
    assert main(["fault", "list", "clock-skew"]) == 0
    said = capsys.readouterr().out
    assert "such as +1h or -90s" in said
    assert "May be left out" in said
    assert main(["fault", "list", "clock-scew"]) == 1
    assert "did you mean 'clock-skew'?" in capsys.readouterr().err


def test_print_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a topology's timeline comes to; the same for the same seed."""
    file = tmp_path / "t.yaml"
    file.write_text(TOPOLOGY)
    outputs = []
    for options in ([], [], ["--seed", "4"]):
        assert main(["fault", "timeline", "--print", str(file), *options]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]
    assert outputs[0].startswith("timeline:\n  - {at: +")
    assert "  - {at: +10s, fault: link-down, link: [a, core], for: 5s}\n" in outputs[0]
    assert "random" not in outputs[0]


@pytest.mark.root
def test_inject_show_heal(lab: Lab, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    """It stays after the command, until it is healed by its name."""
    assert main(["fault", "inject", "link-down", "--set", "link=a,core", "--name", lab.name]) == 0
    identity = capsys.readouterr().out.split()[1]
    assert not watch.reaches("a", "b")
    assert main(["fault", "ps", "--json", "--name", lab.name]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["id"] == identity
    assert row["state"] == "active"
    assert row["owner"] == "nobody"
    assert row["settings"] == {"link": ["a", "core"]}
    assert main(["fault", "ps", "--name", lab.name]) == 0
    assert identity in capsys.readouterr().out
    assert main(["fault", "heal", "link-down-0", "--name", lab.name]) == 1
    assert f"active: {identity}" in capsys.readouterr().err
    assert main(["fault", "heal", identity, "--name", lab.name]) == 0
    assert capsys.readouterr().out == f"fault {identity} is healed\n"
    assert watch.reaches("a", "b")
    assert main(["fault", "heal", "--all", "--name", lab.name]) == 0
    assert capsys.readouterr().out == "there is no fault\n"
    assert main(["fault", "heal", "--name", lab.name]) == 1


@pytest.mark.root
def test_inject_for_a_time(lab: Lab, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    """Healed by the command itself."""
    command = ["fault", "inject", "degrade", "--set", "link=[a, core]", "--set", "rate=1mbit", "--for", "100ms"]
    assert main([*command, "--name", lab.name]) == 0
    said = capsys.readouterr().out
    assert "is active for 100ms" in said
    assert "is healed" in said
    assert Faults(lab).entries() == []


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_inject_is_interrupted(lab: Lab, watch: Watch, number: int) -> None:
    """Ctrl-C heals; after kill -9 the next command does."""
    command = [
        sys.executable,
        "-m",
        "testbed",
        "fault",
        "inject",
        "link-down",
        "--set",
        "link=a,core",
        "--for",
        "10min",
    ]
    with subprocess.Popen([*command, "--name", lab.name], stdout=subprocess.PIPE, text=True, env=os.environ) as child:
        assert child.stdout is not None
        assert "is active" in child.stdout.readline()
        assert not watch.reaches("a", "b")
        child.send_signal(number)
        assert child.wait(30) == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGKILL:
        assert main(["ps"]) == 0
    assert watch.reaches("a", "b")
    assert Faults(lab).entries() == []


@pytest.mark.root
def test_faults_of_a_living_process_are_not_taken_for_abandoned(lab: Lab, watch: Watch) -> None:
    """Other commands leave them alone."""
    with own_faults(lab).active(LinkDown(link=("a", "core"))):
        assert main(["ps"]) == 0
        assert not watch.reaches("a", "b")


@pytest.mark.parametrize(
    "words, said",
    [
        (["link-donw"], "there is no fault 'link-donw'\n  did you mean 'link-down'?"),
        (["link-down"], "fault link-down: `link` is missing"),
        (["mtu-shrink", "--set", "link=a,core", "--set", "mtu=big"], "`mtu` must be a whole number, not text"),
        (["degrade", "--set", "link=a,core", "--set", "delay=30"], "`delay`: '30' has no unit"),
        (["link-down", "--set", "link"], "setting 'link' has no value"),
        (["link-down", "--set", "link=a", "--set", "link=b"], "setting 'link' is given twice"),
        (["pause", "--set", "node=NO"], "NO is a truth value to some programs"),
        (["pause", "--set", "node=a", "--for", "5"], "--for: '5' has no unit"),
    ],
)
def test_mistakes(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with what would be right, before any lab is looked for."""
    assert main(["fault", "inject", *words]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.root
def test_no_such_node(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fault", "inject", "pause", "--set", "node=aa", "--name", lab.name]) == 1
    assert capsys.readouterr().err.startswith("fault pause: there is no node 'aa'\n  did you mean 'a'?")


@pytest.mark.root
def test_timeline(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The timeline of a lab's topology runs in the foreground and says what it does."""
    file = tmp_path / "t.yaml"
    file.write_text(
        TOPOLOGY.partition("timeline:")[0] + "timeline: [{at: +0.1s, fault: link-down, link: [a, core], for: 0.1s}]"
    )
    name = f"timeline-{os.getpid()}"
    assert main(["up", str(file), "--name", name]) == 0
    assert main(["fault", "timeline", "--name", name]) == 0
    said = capsys.readouterr().out
    assert "verified: both interfaces are down" in said
    assert "the timeline is over: 1 fault, all healed" in said
    assert main(["down", name]) == 0
