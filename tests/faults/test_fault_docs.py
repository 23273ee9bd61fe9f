"""docs/faults.md says what is."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.faults.base import known_faults
from testbed.faults.timeline import parse
from testbed.plan.load import load_text

TEXT = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
HEAD = "name: t\nnodes: {web: {services: {s: {command: [true]}}}, dns: }\nlinks: [[web, core], [dns, core]]\n"


def test_every_fault_is_in_a_table() -> None:
    rows = set(re.findall(r"^\| `([a-z-]+)`", TEXT, re.MULTILINE)) - {"at", "for", "every", "when", "random"}
    assert rows == {kind for kind, fault in known_faults().items() if not fault.combines}


def test_settings_that_are_told_exist() -> None:
    for line in TEXT.splitlines():
        row = re.match(r"\| `([a-z-]+)` \| ([^|]*)", line)
        if row is None or row[1] not in known_faults():
            continue
        words = set(re.findall(r"`([a-z_]+)`", row[2]))
        assert words <= set(known_faults()[row[1]].model_fields) | set(known_faults()), line


def test_the_timeline_is_one() -> None:
    (example,) = re.findall(r"```yaml\n(timeline:.*?)```", TEXT, re.DOTALL)
    _, plan = load_text(HEAD.replace("[true]", "['true']") + example)
    entries, problems = parse(plan.sections["timeline"]["entries"])
    assert problems == []
    assert len(entries) == 4
