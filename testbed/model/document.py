"""Strict YAML: text becomes plain data and the position of everything in it.

The language is the part of YAML that every program reads alike. Whatever some take for text and others for a number,
a date or a truth value must be quoted; keys are text and stand once; there are no anchors, aliases, merge keys or tags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.reader import Reader

from testbed.errors import Path
from testbed.model.scalars import read_plain
from testbed.model.syntax import syntax_problem

MAX_DEPTH = 32
"""Deepest nesting that is read."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position in a file; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class MarkedProblem:
    """One thing wrong with a document. ``path`` is the innermost thing around it that could be read."""

    mark: Mark
    path: Path
    message: str
    remedy: str = ""


@dataclass
class Document:
    """What a file says, and where."""

    data: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    """Numbers, truth values and nulls as they are written."""
    problems: list[MarkedProblem] = field(default_factory=list)
    broken: bool = False
    """The file could not be read to its end; ``data`` is not to be used."""

    def resolve(self, path: Path) -> Path:
        """The part of ``path`` that exists in the document; elements that do not are left out.

        So the path of a link's endpoint is found in the short form of a link, which has no key ``endpoints``.
        """
        at, found = self.data, []
        for step in path:
            if has_step(at, step):
                at = at[step]
                found.append(step)
        return tuple(found)

    def mark(self, path: Path, at_key: bool = False) -> Mark:
        """Where ``path`` stands: its value if that is a scalar, else its key (or its dash or bracket in a list)."""
        path = self.resolve(path)
        key = self.keys.get(path)
        if key is not None and (at_key or path not in self.values):
            return key
        return self.values.get(path, Mark(1, 1))


def has_step(data: Any, step: str | int) -> bool:
    """Whether ``step`` leads further into ``data``: a key of a mapping, or the index of an item."""
    if isinstance(data, list):
        return isinstance(step, int) and 0 <= step < len(data)
    return isinstance(data, dict) and step in data


def parse_document(text: str) -> Document:
    """Read ``text``. Does not raise: what is wrong is in ``problems``."""
    document = Document()
    unreadable = Reader.NON_PRINTABLE.search(text)
    if unreadable is not None:
        document.problems.append(_unreadable(text, unreadable.start()))
        document.broken = True
        return document
    reader, mark = _Reader(document), Mark(1, 1)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            reader.take(event)
            mark = _mark(event)
            if document.broken:
                return document
    except yaml.MarkedYAMLError as error:
        line, column, message, remedy = syntax_problem(error)
        document.problems.append(MarkedProblem(Mark(line, column), (), message, remedy))
        document.broken = True
    except (ValueError, OverflowError):  # the parser's chr() of an escape such as \UFFFFFFFF
        document.problems.append(
            MarkedProblem(mark, (), "an escape after this is no character", "correct or remove it")
        )
        document.broken = True
    return document


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is being read. ``path`` is None inside what is left out (a duplicate key's value)."""

    container: dict[str, Any] | list[Any]
    path: Path | None
    owner: Path
    key: str | None = None
    """Of a mapping: the key whose value comes next; None: a key comes next."""
    lost: bool = False
    """The value that comes next belongs to a key that could not be used."""
    seen: dict[str, Mark] = field(default_factory=dict)


class _Reader:
    """Builds a document from YAML events, without recursion."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.stack: list[_Frame] = []
        self.documents = 0
        self.skip = 0
        """Open collections of a key that is one, which no topology has."""

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._problem(event, "a second document begins here", "a topology is one document; remove the `---`")
                self.document.broken = True
        elif self.skip:
            self.skip += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            self.document.broken = self.skip > MAX_DEPTH
        elif isinstance(event, yaml.NodeEvent):
            self._node(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()

    def _node(self, event: yaml.NodeEvent) -> None:
        if event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            self._problem(
                event,
                f"anchors and aliases are not part of the language (`{sign}{event.anchor}`)",
                "write the value out; what many links share can go under `defaults`",
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            name = str(tag).replace("tag:yaml.org,2002:", "!!")
            self._problem(event, f"tags are not part of the language (`{name}`)", "remove it; quote what must be text")
        if self.stack and isinstance(self.stack[-1].container, dict) and not self._expects_value(self.stack[-1]):
            self._key(event, self.stack[-1])
        else:
            self._value(event)

    @staticmethod
    def _expects_value(frame: _Frame) -> bool:
        return frame.key is not None or frame.lost

    def _key(self, event: yaml.NodeEvent, frame: _Frame) -> None:
        frame.lost = True
        if not isinstance(event, yaml.ScalarEvent):
            if isinstance(event, yaml.CollectionStartEvent):
                self.skip = 1
                self._problem(event, "a key must be text, not a list or mapping", "write one word before the colon")
            return
        key, mark = event.value, _mark(event)
        if event.style is None:
            value, wrong, _ = read_plain(key)
            remedy = f'quote it: "{key}"'
            if key == "<<":
                wrong, remedy = "merge keys (`<<`) are not part of the language", "write the values out"
            elif not key:
                wrong, remedy = "a key is missing before the colon", "write one, or remove the colon"
            elif not wrong and not isinstance(value, str):
                wrong = f"key {key} is not text"
            if wrong:
                self._problem(event, wrong, remedy)
                return
        if self._unprintable(event):
            return
        if key in frame.seen:
            first = frame.seen[key].line
            self._problem(
                event, f"key `{key}` is given twice; the first is in line {first}", "remove one of the two", key=key
            )
            return
        frame.seen[key] = mark
        frame.key, frame.lost = key, False
        if frame.path is not None:
            self.document.keys[*frame.path, key] = mark

    def _value(self, event: yaml.NodeEvent) -> None:
        path = self._next_path()
        value: Any = None
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, path)
        elif isinstance(event, yaml.MappingStartEvent):
            value = {}
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
        written = isinstance(event, yaml.ScalarEvent) and (event.value or event.style)
        if path is not None and (written or path not in self.document.keys):
            self.document.values[path] = _mark(event)
        if self.stack:
            self._put(self.stack[-1], value)
        else:
            self.document.data = value
        if isinstance(event, yaml.CollectionStartEvent):
            owner = self.stack[-1].owner if path is None else path
            self.stack.append(_Frame(value, path, owner))
            if len(self.stack) > MAX_DEPTH:
                self._problem(event, f"nested more than {MAX_DEPTH} deep", "a topology needs no more than six levels")
                self.document.broken = True

    def _next_path(self) -> Path | None:
        if not self.stack:
            return ()
        frame = self.stack[-1]
        if frame.path is None or frame.lost:
            return None
        if isinstance(frame.container, list):
            return (*frame.path, len(frame.container))
        assert frame.key is not None
        return (*frame.path, frame.key)

    @staticmethod
    def _put(frame: _Frame, value: Any) -> None:
        if isinstance(frame.container, list):
            frame.container.append(value)
        elif not frame.lost:
            assert frame.key is not None
            frame.container[frame.key] = value
        frame.key, frame.lost = None, False

    def _scalar(self, event: yaml.ScalarEvent, path: Path | None) -> Any:
        text: str = event.value
        if self._unprintable(event) or event.style is not None:
            return text
        value, wrong, remedy = read_plain(text)
        if wrong:
            self._problem(event, wrong, remedy)
        elif path is not None and not isinstance(value, str):
            self.document.texts[path] = text
        return value

    def _unprintable(self, event: yaml.ScalarEvent) -> bool:
        for char in event.value:
            if (char < " " and char not in "\n\t") or char == "\x7f" or "\ud800" <= char <= "\udfff":
                self._problem(event, f"text contains the character U+{ord(char):04X}", "leave it out")
                return True
        return False

    def _problem(self, event: yaml.Event, message: str, remedy: str, key: str | None = None) -> None:
        path: Path = ()
        if self.stack:
            frame = self.stack[-1]
            step = key if key is not None else len(frame.container) if isinstance(frame.container, list) else frame.key
            path = frame.owner if frame.path is None or step is None else (*frame.path, step)
        self.document.problems.append(MarkedProblem(_mark(event), path, message, remedy))


def _unreadable(text: str, index: int) -> MarkedProblem:
    before = text[:index]
    mark = Mark(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)
    return MarkedProblem(mark, (), f"there is a character U+{ord(text[index]):04X} here", "leave it out")


def _mark(event: yaml.Event) -> Mark:
    start = event.start_mark
    assert start is not None  # only events made by hand have none
    return Mark(start.line + 1, start.column + 1)
