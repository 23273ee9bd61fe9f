"""Made-up runs, and what a browser's reader would see of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_onion_run import FakeRun

from testbed.measure.store import Run
from testbed.plan.types import Node, Plan
from testbed.report import build_report


@pytest.fixture(scope="session")
def onion_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repeats of the whole experiment, in small. Read only."""
    root = tmp_path_factory.mktemp("runs")
    return FakeRun(root, repeats=2, numbers=(1, 2, 6), seconds=8, clients=8, size=2**17).make()


@pytest.fixture(scope="session")
def onion_report(onion_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its report, elsewhere."""
    return build_report(onion_run, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One and two instances, once, and yet with all figures. Read only."""
    root = tmp_path_factory.mktemp("small")
    return FakeRun(root, repeats=1, numbers=(1, 2), ways=("naive",), seconds=5, clients=3, size=2**16).make()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run of up to six instances, for the test to fill."""
    nodes = [Node(name=f"shop{number}", subsystem="onions", role="shop") for number in range(1, 7)]
    made = Run.create(tmp_path / "runs", "by_hand", Plan(name="two", nodes=tuple(nodes)), seed=1)
    yield made
    made.close("passed")


class Page(HTMLParser):
    """``text`` in reading order, ``tags`` with attributes, and ``tables`` as rows of cells."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self._within: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if any(tag in ("style", "title", "head") for tag in self._within):
            return
        if self._within and self._within[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        if data.strip():
            self.text.append(" ".join(data.split()))

    @property
    def prose(self) -> str:
        """All text in one line."""
        return " ".join(self.text)

    def table(self, *head: str) -> list[list[str]]:
        """Rows of the table with this heading."""
        return next(table[1:] for table in self.tables if table[0] == list(head))


@pytest.fixture
def page() -> Callable[[Path], Page]:
    """Reads a report."""
    return Page


@pytest.fixture
def rendered() -> None:
    """Figures are rendered as ever."""


@pytest.fixture(autouse=True)
def _unrendered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not rendered, for tests that do not look at them: rendering is what takes long in a report,
    and is matplotlib's. Those that do look ask for ``rendered`` or a whole report."""
    if not {"rendered", "onion_report"} & set(request.fixturenames):
        monkeypatch.setattr("testbed.report.build.save", lambda figure, name, folder: f'<svg id="{name}"></svg>')
