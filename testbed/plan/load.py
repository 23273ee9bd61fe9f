"""A topology file becomes a topology and its plan, or one error that lists every mistake in it."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

from testbed.errors import Path as Location
from testbed.errors import Problem, TopologyError
from testbed.model.document import Document, Mark, parse_document
from testbed.model.topology import Topology
from testbed.model.validate import Validated, item_of, validate
from testbed.plan.expand import expand
from testbed.plan.types import Plan
from testbed.subsystem import subsystems

MAX_BYTES = 512 * 1024
"""Largest topology file that is read; 10 000 hosts need less."""

_WITHOUT_NODES: frozenset[Location] = frozenset((key,) for key in ("name", "seed", "description", "defaults", "links"))
"""The top-level parts that bring no nodes."""


def load_topology(path: Path | str, *, seed: int | None = None) -> tuple[Topology, Plan]:
    """Read the file ``path``. ``seed`` replaces the topology's own. Raises TopologyError with all that is wrong."""
    return load_text(read_text(Path(path)), str(path), seed=seed)


def load_text(text: str, where: str = "topology", *, seed: int | None = None) -> tuple[Topology, Plan]:
    """As ``load_topology``, from text; ``where`` names it in messages."""
    document = parse_document(text)
    found = _Findings(document, where)
    for marked in document.problems:
        found.add(marked.mark, marked.message, marked.remedy)
    if document.broken:
        raise found.error()
    if document.data is None:
        raise TopologyError([f"{where}:1:1: the file says nothing\n  begin with `name: my-lab`"])
    if not isinstance(document.data, dict):
        found.add(Mark(1, 1), "a topology is a mapping of keys to values", "begin with `name: my-lab`")
        raise found.error()
    validated = validate(document, {name: subsystem.spec for name, subsystem in subsystems().items()})
    validated.doubtful |= {item_of(marked.path) for marked in document.problems}
    said = {marked.path for marked in document.problems}
    for problem in validated.problems:
        if document.resolve(problem.path) not in said:
            found.add_problem(problem)
    topology = validated.topology if seed is None else validated.topology.model_copy(update={"seed": seed})
    plan, problems = expand(topology)
    for problem in _certain(problems, validated):
        found.add_problem(problem)
    if found.lines:
        raise found.error()
    return topology, plan


def read_text(path: Path) -> str:
    """The text of a topology file. Raises TopologyError if it cannot be read, or is not UTF-8."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise TopologyError([f"{path}: this is a directory\n  name the topology file in it"])
        if not stat.S_ISREG(mode):
            raise TopologyError([f"{path}: this is not a regular file\n  write the topology to a file"])
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise TopologyError([f"{path}: there is no such file\n  check the path"]) from None
    except OSError as error:
        raise TopologyError([f"{path}: cannot be read: {error.strerror or error}\n  check its permissions"]) from None
    except ValueError as error:  # a NUL in the path
        raise TopologyError([f"{path}: cannot be read: {error}\n  check the path"]) from None
    if len(data) > MAX_BYTES:
        raise TopologyError([f"{path}: larger than {MAX_BYTES // 1024} KiB\n  is this a topology?"])
    return _decoded(data, path)


def _decoded(data: bytes, path: Path) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TopologyError([f"{path}:1:1: the file is UTF-16\n  save it as UTF-8"])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8-sig", "replace")) + 1
        byte = data[error.start]
        raise TopologyError(
            [f"{path}:{line}:{column}: byte 0x{byte:02x} is not UTF-8\n  save the file as UTF-8"]
        ) from None


class _Findings:
    """Problems by position. Of several at one position the first counts: the rest mostly follow from it."""

    def __init__(self, document: Document, where: str) -> None:
        self.document, self.where = document, where
        self.lines: dict[Mark, str] = {}

    def add(self, mark: Mark, message: str, remedy: str) -> None:
        line = f"{self.where}:{mark.line}:{mark.column}: {message}"
        self.lines.setdefault(mark, f"{line}\n  {remedy}" if remedy else line)

    def add_problem(self, problem: Problem) -> None:
        message = problem.message
        if problem.other is not None:
            message += f" (line {self.document.mark(problem.other).line})"
        self.add(self.document.mark(problem.path, problem.at_key), message, problem.remedy)

    def error(self) -> TopologyError:
        return TopologyError([self.lines[mark] for mark in sorted(self.lines)])


def _certain(problems: list[Problem], validated: Validated) -> list[Problem]:
    """The problems of the plan that hold whatever the parts with mistakes were meant to say; paths in the document."""
    doubtful, topology = validated.doubtful, validated.topology
    bad_nodes = {item[1] for item in doubtful if item[:1] == ("nodes",) and len(item) == 2}
    nodes_known = bad_nodes <= set(topology.nodes) and all(
        len(item) == 2 or item in _WITHOUT_NODES for item in doubtful
    )
    links_known = nodes_known and all(item[:1] != ("links",) for item in doubtful)
    known = {"": True, "nodes": nodes_known, "links": links_known}
    certain: list[Problem] = []
    for problem in problems:
        path = problem.path
        of_link = path[:1] == ("links",) and len(path) > 1
        if of_link:
            number = path[1]
            assert isinstance(number, int)
            path = ("links", validated.link_numbers[number], *path[2:])
            ends = {endpoint.partition(":")[0] for endpoint in topology.links[number].endpoints}
            sure = path[2:3] == ("endpoints",) or (path[2:3] == ("addresses",) and not ends & bad_nodes)
            follows = not sure and (item_of(path) in doubtful or bool(ends & bad_nodes))
        else:
            follows = item_of(path) in doubtful
        if known[problem.assumes] and not follows:
            certain.append(replace(problem, path=path, other=_in_document(problem.other, validated)))
    return certain


def _in_document(path: Location | None, validated: Validated) -> Location | None:
    if path is not None and path[:1] == ("links",) and len(path) > 1 and isinstance(path[1], int):
        return ("links", validated.link_numbers[path[1]], *path[2:])
    return path
