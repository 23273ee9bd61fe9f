"""The strict YAML loader: what it reads, where things stand, and that no input makes it fail or hang."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import TopologyError
from testbed.model.document import MAX_DEPTH, Mark, parse_document
from testbed.plan.load import load_text

TEXT = """\
name: lab
links:
  - endpoints: [a, "b:eth1"]
    delay: 10ms
  - [c, d]
"""


def test_positions_of_keys_values_and_items() -> None:
    document = parse_document(TEXT)
    assert not document.problems
    assert document.mark(("name",)) == Mark(1, 7)
    assert document.mark(("name",), at_key=True) == Mark(1, 1)
    assert document.mark(("links",)) == Mark(2, 1), "a list under a key stands at its key"
    assert document.mark(("links", 0)) == Mark(3, 5)
    assert document.mark(("links", 0, "endpoints", 1)) == Mark(3, 20)
    assert document.mark(("links", 0, "delay")) == Mark(4, 12)
    assert document.mark(("links", 1, 1)) == Mark(5, 9)


def test_a_path_that_does_not_exist_stands_where_its_nearest_part_does() -> None:
    document = parse_document(TEXT)
    assert document.mark(("links", 1, "endpoints", 1)) == Mark(5, 9), "short form of a link"
    assert document.mark(("links", 0, "rate")) == Mark(3, 5)
    assert document.mark(("tor", "relays")) == Mark(1, 1)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("abc", "abc"),
        ("10.0.0.1/30", "10.0.0.1/30"),
        ("fd00::1/64", "fd00::1/64"),
        ("+30s", "+30s"),
        ("a:b", "a:b"),
        ("v1.2.3", "v1.2.3"),
        ("0", 0),
        ("-12", -12),
        ("0.50", 0.5),
        ("true", True),
        ("null", None),
        ("'NO'", "NO"),
        ('"0755"', "0755"),
        ('"~"', "~"),
        ('"1e3"', "1e3"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        (">\n  one\n  line\n", "one line\n"),
    ],
)
def test_C3_read_exactly_as_written(written: str, value: object) -> None:
    document = parse_document(f"key: {written}")
    assert not document.problems
    assert document.data == {"key": value}
    assert type(document.data["key"]) is type(value)


AMBIGUOUS = """
y Y yes Yes n NO no on On OFF True TRUE False Null NULL ~ 0755 00 0o17 0O17 0x1F -0x1 0b11 1_000 +5 1e3 1E3 1.5e3
-1e-3 1. .5 .inf -.Inf .NaN 12:30 190:20:30.15 2026-11-30 2026-11-30T12:00:00Z = 1234567890123456789
"""


@pytest.mark.parametrize("written", AMBIGUOUS.split())
def test_C3_refused_unless_quoted(written: str) -> None:
    """All that YAML 1.1 or 1.2 takes for something else than text or a plain decimal number."""
    (problem,) = parse_document(f"key: {written}").problems
    assert problem.mark == Mark(1, 6)
    assert f'quote it if text is meant: "{written}"' in problem.remedy
    assert not parse_document(f'key: "{written}"').problems


@given(st.text(alphabet="0123456789abcdefnoxyesNOYTtruefalsil.:_+-~=<>eE", min_size=1, max_size=8))
def test_C3_a_plain_scalar_is_read_as_every_yaml_reader_would_or_refused(written: str) -> None:
    try:
        old = yaml.safe_load(f"key: {written}")
    except yaml.YAMLError:
        return
    document = parse_document(f"key: {written}")
    if document.problems or not isinstance(old, dict) or set(old) != {"key"}:
        return
    assert document.data == old
    assert type(document.data["key"]) is type(old["key"])


words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]))
scalars = st.none() | st.booleans() | st.integers(-(10**16), 10**16) | words
keys = st.text("abcxyz-", min_size=1, max_size=6)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)


@given(json_values)
def test_json_is_read_as_itself(value: object) -> None:
    document = parse_document(json.dumps({"root": value}, ensure_ascii=False))
    assert not document.problems
    assert document.data == {"root": value}


@given(st.text(max_size=200))
def test_no_text_makes_it_fail(text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        load_text(text, "file.yaml")
    assert all(line.startswith("file.yaml:") for line in caught.value.lines)


WHOLE = [
    "name: lab\n",
    "nodes:\n",
    "  a:\n",
    "links:\n",
    "- [a, core]\n",
    "tor: {relays: 3}\n",
    "null",
    "1e3",
    "  ",
    "\n",
]
BROKEN = [
    "&a ",
    "*a",
    "!!str ",
    "? ",
    ": ",
    "\t",
    "|\n",
    "---\n",
    "...\n",
    "\u2028",
    "\ud7ff",
    "\x00",
    "\\UFFFFFFFF",
    "<<",
]
pieces = st.sampled_from([*WHOLE, *BROKEN, *"'\"\\[]{},-%#"])


@given(st.lists(pieces, max_size=25).map("".join))
def test_no_broken_topology_makes_it_fail(text: str) -> None:
    with contextlib.suppress(TopologyError):
        load_text(text)


def test_billion_laughs_are_refused_at_once() -> None:
    laughs = "a0: &a0 [ha, ha]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    document = parse_document(laughs)
    assert document.data["a59"] == [None, None, None]
    assert all("anchors and aliases" in problem.message for problem in document.problems)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_deep_nesting_is_refused_without_recursion(opening: str) -> None:
    document = parse_document(opening * 50_000)
    assert document.broken
    assert len(document.problems) == 1


def test_nesting_up_to_the_limit_is_read() -> None:
    inside = MAX_DEPTH - 1
    assert not parse_document("a: " + "[" * inside + "]" * inside).problems
    assert parse_document("a: " + "[" * (inside + 1) + "]" * (inside + 1)).broken
