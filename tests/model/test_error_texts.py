"""Every mistake in a topology has one exact text: NAME.yaml beside NAME.txt in tests/errors.

File names begin with the id of the case (docs of the project's cases) that they belong to, where there is one.
``TESTBED_WRITE_ERRORS=1 pytest tests/model/test_error_texts.py`` writes the texts anew; read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from testbed.cli import main

FOLDER = Path(__file__).parents[1] / "errors"
TOPOLOGIES = sorted(FOLDER.glob("*.yaml"))
POSITION = re.compile(r"[^:]+\.yaml:([0-9]+):([0-9]+): \S")


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda path: path.stem)
def test_error_text(topology: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(FOLDER)
    code = main(["validate", topology.name])
    said, printed = capsys.readouterr().err, topology.with_suffix(".txt")
    if os.environ.get("TESTBED_WRITE_ERRORS"):
        printed.write_text(said)
    assert said == printed.read_text()
    assert code == 2


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda path: path.stem)
def test_every_mistake_has_position_and_remedy(topology: Path) -> None:
    lines = topology.with_suffix(".txt").read_text().splitlines()
    positions = [POSITION.match(line) for line in lines[::2]]
    assert all(positions), "each mistake begins with file:line:column"
    assert all(line.startswith("  ") and line.strip() for line in lines[1::2]), "and has a remedy below"
    assert len(lines) % 2 == 0
    order = [(int(match[1]), int(match[2])) for match in positions if match]
    assert order == sorted(set(order)), "in the order of the file, one at a position"


def test_no_text_is_left_behind() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {path.stem for path in TOPOLOGIES}
