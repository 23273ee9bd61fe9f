"""In which order subsystems are started and awaited."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from testbed import subsystem
from testbed.progress import Silent


@dataclass
class Plain:
    """A subsystem that is ready when it has been started; it writes down what is asked of it."""

    name: str
    log: list[str] = field(default_factory=list)

    def start(self, lab: Any, progress: Any) -> str:
        """Nothing runs."""
        self.log.append(f"start {self.name}")
        return self.name


class Waiting(Plain):
    """One that is ready later."""

    def await_ready(self, handle: str) -> None:
        """It is."""
        self.log.append(f"ready {handle}")


@pytest.mark.parametrize(
    ("kinds", "hold", "expected"),
    [
        ([Waiting, Waiting], (), "start 0, start 1, ready 0, ready 1"),
        ([Waiting, Plain, Waiting], (), "start 0, ready 0, start 1, start 2, ready 2"),
        ([Waiting, Waiting, Plain], (), "start 0, start 1, ready 0, ready 1, start 2"),
        ([Waiting, Waiting], ("1",), "start 0, ready 0"),
        ([Plain, Plain], ("0",), "start 1"),
    ],
)
def test_order(kinds: list[type[Plain]], hold: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that can wait start while others get ready; one that cannot finds everything before it ready."""
    log: list[str] = []
    found = {str(place): kind(str(place), log) for place, kind in enumerate(kinds)}
    monkeypatch.setattr(subsystem, "subsystems", lambda: found)
    kept: dict[str, Any] = {}
    plan = SimpleNamespace(sections={**found, "other": {}})
    lab: Any = SimpleNamespace(plan=plan, keep_subsystem=kept.__setitem__)
    subsystem.start_all(lab, Silent(), hold)
    assert ", ".join(log) == expected
    assert kept == {name: name for name in found if name not in hold}
