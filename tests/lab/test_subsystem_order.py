"""In which order subsystems are started and awaited."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from testbed import subsystem
from testbed.errors import TestbedError
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


class Preparing(Plain):
    """One that does something before there are links."""

    def prepare(self, lab: Any, progress: Any) -> str:
        """Nothing is written."""
        self.log.append(f"prepare {self.name}")
        if self.name == "bad":
            raise TestbedError("it cannot be prepared")
        return f"handle of {self.name}"


def lab_of(found: dict[str, Plain], kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A lab with a section for each of ``found``, and one that nobody knows; it keeps handles in ``kept``."""
    monkeypatch.setattr(subsystem, "subsystems", lambda: found)
    plan = SimpleNamespace(sections={**found, "other": {}})
    return SimpleNamespace(plan=plan, keep_subsystem=kept.__setitem__)


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
    kept: dict[str, Any] = {}
    subsystem.start_all(lab_of(found, kept, monkeypatch), Silent(), hold)
    assert ", ".join(log) == expected
    assert kept == {name: name for name in found if name not in hold}


def test_prepared_beside_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that can are prepared while the block runs, but not those on hold; their handles are there after it."""
    log: list[str] = []
    found = {name: kind(name, log) for name, kind in (("a", Preparing), ("b", Plain), ("c", Preparing))}
    kept: dict[str, Any] = {}
    with subsystem.prepared(lab_of(found, kept, monkeypatch), Silent(), ("c",)):
        assert kept == {}
    assert log == ["prepare a"]
    assert kept == {"a": "handle of a"}


def test_what_cannot_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes when the block has ended; one of the block's own goes before it."""
    lab = lab_of({"bad": Preparing("bad")}, {}, monkeypatch)
    with pytest.raises(TestbedError, match="cannot be prepared"), subsystem.prepared(lab, Silent()):
        pass
    with pytest.raises(ValueError, match="links"), subsystem.prepared(lab, Silent()):
        raise ValueError("links")
