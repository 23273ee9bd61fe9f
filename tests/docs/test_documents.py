"""README and docs/ say what is: links, files, commands and their options, examples in YAML and Python, parameters."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from bench.__main__ import BENCHMARKS
from testbed.cli import app
from testbed.plan.load import load_text

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCENARIOS = {path.stem: path for path in (ROOT / "scenarios").glob("*.py")}
COMMANDS: Any = typer.main.get_command(app)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = [
    pytest.param(match[2], id=f"{path.name}-{text[: match.start()].count(chr(10)) + 1}")
    for path in DOCUMENTS
    for text in [path.read_text()]
    for match in FENCE.finditer(text)
    if match[1] == "python"
]
HANDLES = {
    "lab": "testbed.lab.lab:Lab",
    "measure": "testbed.measure.measure:Measure",
    "faults": "testbed.faults.faults:Faults",
    "timeline": "testbed.faults.runner:Timeline",
    "fresh_clients": "testbed.tor.measure.freshprobe:RecordedFreshClients",
    "tor": "testbed.tor.network:TorNetwork",
    "onions": "testbed.tor.onion.services:OnionServices",
    "edge": "testbed.edge.network:Edge",
    "pool": "testbed.pool.lab.pools:Pool",
    "build": "testbed.plan.builder:PlanBuilder",
    "run": "testbed.measure.store:Run testbed.measure.reader:RunReader",
    "reader": "testbed.measure.reader:RunReader",
    "dispatcher": "testbed.pool.lab.dispatch:Dispatcher",
}
"""What names of examples stand for; one name may stand for either of two."""
GROUPS = {"testbed.subsystems", "testbed.report_sections"}
"""Groups of entry points, whose names look like those of modules."""
NODES = "nodes: {web: {services: {s: {command: ['true']}}}, dns: , shop1: , shop2: {services: {tor: {command: [tor]}}}}"
HEAD = {
    "timeline:": f"{NODES}\nlinks: [[web, core], [dns, core], [shop1, core], [shop2, core]]\n",
    "pool:": "",
    "tor:": "",
}
"""What an example of one section lacks to be a topology."""


def prose(text: str) -> str:
    return FENCE.sub("", text)


def spans(text: str) -> list[str]:
    """Pieces of code: in backquotes, and the lines of blocks that are no Python and no YAML."""
    blocks = [match[2].replace("\\\n", " ") for match in FENCE.finditer(text) if match[1] == ""]
    indented = re.findall(r"^    (.*)$", prose(text), re.MULTILINE)
    inline = [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose(text))]
    return [*inline, *indented, *(line for block in blocks for line in block.splitlines())]


def anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", prose(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_links_and_files(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        leads_to = (path.parent / name).resolve() if name else path
        assert leads_to.exists(), target
        assert not anchor or anchor in anchors(leads_to), target
    for span in spans(text):
        for name in re.findall(
            r"(?:^|\s)((?:testbed|tests|scenarios|topologies|setup|images|docs|bench)/[\w./*-]+)", span
        ):
            if not name.startswith(("testbed/node:", "testbed/base:")) and not re.match(r"testbed/(node|base)$", name):
                assert list(ROOT.glob(name.rstrip("/."))), name


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and what is left of them."""
    found: Any = COMMANDS
    rest = list(words)
    while hasattr(found, "commands") and rest and re.fullmatch(r"[a-z]+", rest[0]):
        assert rest[0] in found.commands, f"there is no command {' '.join(words)}"
        found = found.commands[rest.pop(0)]
    return found, rest


def options(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_options(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    plugin = set(re.findall(r"--testbed-[a-z-]+", (ROOT / "testbed" / "pytest_plugin.py").read_text()))
    for span in spans(path.read_text()):
        code = span.split(" # ")[0]
        assert set(re.findall(r"--testbed-[a-z-]+", code)) <= plugin, span
        for made in re.findall(r"\bmake ([a-z]+(?:-[a-z]+)?)", code):
            assert made in targets, span
        for benches in re.findall(r"python -m bench ((?:[a-z0-9-]+ ?)+)", code):
            assert set(benches.split()) <= {*BENCHMARKS, "all"}, span
        called = re.match(r"(?:\$ |sudo )?(?:\.venv/bin/)?testbed ([a-z].*)", code)
        if not called:
            continue
        command, rest = command_of(re.split(r"\s+-- ", called[1])[0].split())
        given = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(rest))
        assert set(given) <= options(command), span
        if command.name == "run" and rest and rest[0] in SCENARIOS:
            assert set(re.findall(r"--param (\w+)=", span)) <= parameters(rest[0]).keys(), span


@cache
def parameters(scenario: str) -> dict[str, str | None]:
    """The parameters of a scenario with their defaults (None: not a plain text), as its marker has them."""
    for node in ast.walk(ast.parse(SCENARIOS[scenario].read_text())):
        if isinstance(node, ast.keyword) and node.arg == "parameters" and isinstance(node.value, ast.Dict):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {
                str(key.value): str(value.value) if isinstance(value, ast.Constant) else None
                for key, value in pairs
                if isinstance(key, ast.Constant)
            }
    return {}


def test_every_command_and_scenario_is_told() -> None:
    everything = "".join(path.read_text() for path in DOCUMENTS)
    told = {span for path in DOCUMENTS for span in spans(path.read_text())}
    words = " ".join(told)
    for name in COMMANDS.commands:
        assert f"testbed {name}" in words, name
    readme = (ROOT / "README.md").read_text()
    for name in SCENARIOS:
        assert f"`{name}`" in readme, name
    for key in re.findall(r"--testbed-[a-z-]+", (ROOT / "testbed" / "pytest_plugin.py").read_text()):
        assert key in everything, key


def test_parameters_of_scenarios_are_as_told() -> None:
    text = (ROOT / "docs" / "onion-experiments.md").read_text()
    told = re.findall(r"^\| `(\w+)` \|[^|]*\| (`.*) \|$", text, re.MULTILINE)
    assert len(told) >= 5
    for name, row in told:
        known = parameters(name)
        for key, default in re.findall(r"`(\w+)`(?: \(([^()]*)\))?", row):
            assert key in known, (name, key)
            assert not default or default == known[key], (name, key)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_examples_in_yaml(path: Path) -> None:
    for kind, text in FENCE.findall(path.read_text()):
        if kind == "yaml":
            first = text.split(None, 1)[0]
            load_text(text if "\nname: " in f"\n{text}" else f"name: t\n{HEAD[first]}{text}")


@pytest.mark.parametrize("text", PYTHON)
def test_examples_in_python(text: str) -> None:
    tree = ast.parse(textwrap.dedent(text))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                assert hasattr(importlib.import_module(node.module), alias.name), f"{node.module}.{alias.name}"
    for handle, attribute, keywords in uses(tree):
        kind = next((kind for kind in kinds(handle) if has(kind, attribute)), None)
        assert kind, f"{handle}.{attribute}"
        if keywords:
            takes = inspect.signature(getattr(kind, attribute)).parameters
            open_end = any(one.kind is one.VAR_KEYWORD for one in takes.values())
            assert open_end or keywords <= takes.keys(), f"{handle}.{attribute}: {sorted(keywords - takes.keys())}"


def test_the_subsystem_of_the_example_is_one(tmp_path: Path) -> None:
    """As a distribution of its own, found by its entry point."""
    (text,) = [
        text for kind, text in FENCE.findall((ROOT / "docs" / "topology.md").read_text()) if "class Beacons:" in text
    ]
    (tmp_path / "beacons.py").write_text(text)
    facts = tmp_path / "beacons-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: beacons\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text("[testbed.subsystems]\nbeacons = beacons:beacons\n")
    (tmp_path / "some.yaml").write_text("name: some\nbeacons: {count: 3}\n")
    command = [sys.executable, "-m", "testbed", "validate", "some.yaml"]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout == "some.yaml: OK: some: 4 nodes (3 hosts, 1 router), 3 links\n", done.stderr


def uses(tree: ast.AST) -> Iterator[tuple[str, str, set[str]]]:
    """Attributes of handles, and the keywords that they are called with."""
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else node
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in HANDLES:
            given = {one.arg for one in node.keywords if one.arg} if isinstance(node, ast.Call) else set()
            yield called.value.id, called.attr, given


def kinds(handle: str) -> Iterator[Any]:
    for place in HANDLES[handle].split():
        module, _, name = place.partition(":")
        yield getattr(importlib.import_module(module), name)


def has(kind: Any, attribute: str) -> bool:
    """Whether instances of ``kind`` have ``attribute``: of the class, a field, or set in its methods."""
    if hasattr(kind, attribute):
        return True
    return any(
        attribute in vars(base).get("__annotations__", {}) or f"self.{attribute}" in inspect.getsource(base)
        for base in kind.__mro__
        if base.__module__.startswith("testbed.")
    )


def resolve(dotted: str) -> Any:
    """A module of the project or what is in one, by its full name."""
    words = dotted.split(".")
    for length in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:length]))
        except ModuleNotFoundError:
            continue
        for word in words[length:]:
            found = getattr(found, word)
        return found
    raise AssertionError(dotted)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_names_in_code(path: Path) -> None:
    """`testbed.a.b.c` exists, and where `testbed.a.b` stands before names in brackets, those are in it."""
    text = " ".join(prose(path.read_text()).split())
    for dotted in re.findall(r"`(testbed(?:\.\w+)+)\b[^`]*`", text):
        if dotted not in GROUPS:
            resolve(dotted)
    for module, names in re.findall(r"`(testbed(?:\.\w+)+)` \(((?:`\w+`(?:, )?)+)\)", text):
        for name in re.findall(r"\w+", names):
            assert hasattr(resolve(module), name), f"{module}.{name}"


def test_methods_that_prose_names() -> None:
    """``lab.exec(...)``, ``measure.step(...)``, ``build.link(...)``."""
    for path in DOCUMENTS:
        for span in spans(path.read_text()):
            called = re.match(r"(lab|measure|faults|timeline|build|edge|run)\.(\w+)(?=\(|$)", span)
            if called and called[2] not in ("yaml", "md", "sqlite"):
                assert any(has(kind, called[2]) for kind in kinds(called[1])), f"{path.name}: {span}"
