"""The command line as a whole: its help, what shells complete, what is refused before anything is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from testbed.cli import app, main
from testbed.cli.fault import _words

RUNNER = CliRunner()
TOPOLOGY = "name: pair\nnodes: {a: , b: }\nlinks: [[a, b]]\n"


def commands(found: Any, *names: str) -> list[tuple[str, ...]]:
    """The words of every command and group."""
    below = getattr(found, "commands", {})
    return [names, *(words for name, one in below.items() for words in commands(one, *names, name))]


@pytest.mark.parametrize("words", commands(typer.main.get_command(app)), ids=" ".join)
def test_help_is_whole(words: tuple[str, ...]) -> None:
    """At 80 columns no line of a list of commands is cut, and each command, argument and option is explained."""
    result = RUNNER.invoke(app, [*words, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert "..." not in result.output.replace("}...", "").replace("]...", "").replace("[ARGS]...", "")
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    assert command.help
    for one in command.params:
        assert getattr(one, "help", None), one.name


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("testbed fau", "fault"),
        ("testbed fault inject link-f", "link-flap"),
        ("testbed run link_f", "link_failover"),
        ("testbed up --imp", "--impair"),
        ("testbed exec ", ""),  # no lab is up
        ("testbed report ", ""),
    ],
)
def test_shells_complete(line: str, offered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, options, and names of things."""
    monkeypatch.chdir(tmp_path)
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_TESTBED_COMPLETE": "complete_bash"}
    result = RUNNER.invoke(app, [], prog_name="testbed", env={**words, "TESTBED_STATE": str(tmp_path)})
    assert result.output.split() == offered.split()


@pytest.mark.parametrize("name", ["A B", "../x", "", "my_lab", "x" * 41])
def test_the_name_of_a_lab_is_a_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`up --name` takes what `name:` takes."""
    file = tmp_path / "pair.yaml"
    file.write_text(TOPOLOGY)
    assert main(["up", str(file), "--name", name]) == 1
    assert capsys.readouterr().err.startswith("--name: ")


def test_a_scenario_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own words, its topology, and every parameter with its default."""
    assert main(["scenarios", "link_failover"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("What do clients see when a link fails")
    assert "topology  link-failover.yaml" in said
    assert "--param   hold=3s" in said
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    assert main(["scenarios", str(broken)]) == 1
    assert "nothing_of_that_name" in capsys.readouterr().err


SCENARIO = """
import pytest

pytestmark = pytest.mark.testbed(topology="pair.yaml", parameters={"hold": "3s"})


def test_it(measure):
    measure.seconds("hold")
"""


def test_a_wrong_parameter_is_told_without_a_traceback(tmp_path: Path) -> None:
    """By `testbed run`, with the line of the scenario."""
    (tmp_path / "pair.yaml").write_text(TOPOLOGY)
    (tmp_path / "waiting.py").write_text(SCENARIO)
    command = [sys.executable, "-m", "testbed", "run", "waiting.py", "--param", "hold=3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "parameter hold: '3' has no unit" in done.stdout
    assert "in waiting.py, line 8" in done.stdout
    assert "Traceback" not in done.stdout
    assert "parse_duration_us" not in done.stdout
    assert [path.name for path in (tmp_path / "runs").glob("waiting-*/report.html")] == ["report.html"]


def test_settings_of_a_fault_are_shown_as_they_are_given() -> None:
    """Lists of words as --set takes them; what is nested as it is."""
    assert _words({"link": ["r1", "core"], "loss": 0.02}) == "link=r1,core, loss=0.02"
    assert _words({"groups": [["a"], ["b"]]}) == "groups=[['a'], ['b']]"
