"""The nftables ruleset of a node: loaded in one transaction, and found again in what the kernel has.

The plan's text is the only description, so that what must be there is read off it: tables, chains with the number of
their rules, sets and maps with elements. Grammar: nft(8).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.errors import ApplyError

Item = tuple[str, str, str, str]
"""Family, table, kind (``chain``, ``set``, ``map`` ...) and name; kind and name are empty for the table itself."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FAMILIES = ("ip", "ip6", "inet", "arp", "bridge", "netdev")
_OBJECTS = ("chain", "set", "map", "counter", "quota", "limit", "flowtable", "ct")
_TOKEN = re.compile(r'"[^"]*"|#[^\n]*|\\\n|[{};\n]|[^\s{};"#\\]+')
_DEPTH = {"{": 1, "}": -1}
_NO_RULE = ("type", "policy", "comment")


def load(namespace: Path, text: str, where: str) -> None:
    """Load ``text`` in a namespace, in place of what its tables held. ApplyError with nft's first words."""
    fresh = "".join(f"table {family} {name}\ndelete table {family} {name}\n" for family, name in tables(text))
    _nft(namespace, ["-f", "-"], fresh + text, where)


def run(namespace: Path, script: str, where: str) -> None:
    """Run nft commands in a namespace, all or none. ApplyError with nft's first words."""
    _nft(namespace, ["-f", "-"], script, where)


def missing(namespace: Path, text: str, where: str) -> list[str]:
    """What of ``text`` is not in the namespace, in words; empty if all of it is there."""
    wanted = items(text)
    held = held_items(json.loads(_nft(namespace, ["-j", "list", "ruleset"], "", where) or "{}"))
    lacks = []
    for item, least in wanted.items():
        family, table, kind, name = item
        what = f"{kind} {name} of table {family} {table}" if kind else f"table {family} {table}"
        if item not in held:
            lacks.append(what)
        elif held[item] < least:
            of = "rules" if kind == "chain" else "elements"
            lacks.append(f"{of} in {what}")
    return lacks


def tables(text: str) -> list[tuple[str, str]]:
    """Family and name of the tables that ``text`` makes, each once."""
    return list(dict.fromkeys((family, name) for family, name, kind, _ in items(text) if not kind))


def items(text: str) -> dict[Item, int]:
    """What ``text`` makes, with the least number of rules of a chain; 1 for a set or map that is given elements."""
    found: dict[Item, int] = {}
    tokens = list(_tokens(text))
    at = 0
    while at < len(tokens):
        if tokens[at] == "table":
            head = _until_brace(tokens, at + 1)
            family = head[0] if len(head) > 1 and head[0] in _FAMILIES else "ip"
            at = _table(tokens, at + 1 + len(head) + 1, (family, head[-1]), found)
        else:
            at += 1
    return found


def _table(tokens: list[str], at: int, table: tuple[str, str], found: dict[Item, int]) -> int:
    """Read a table's body from the token after its brace; the place after its closing brace."""
    found.setdefault((*table, "", ""), 0)
    while at < len(tokens) and tokens[at] != "}":
        if tokens[at] in _OBJECTS:
            head = _until_brace(tokens, at)
            body = at + len(head) + 1
            end = _closing(tokens, body)
            item = (*table, head[0], head[-1])
            inside = tokens[body:end]
            if head[0] == "chain":
                found[item] = found.get(item, 0) + _rules(inside)
            elif head[0] in ("set", "map"):
                found[item] = 1 if "elements" in inside else 0
            else:
                found[item] = 0
            at = end
        at += 1
    return at + 1


def _rules(tokens: list[str]) -> int:
    """The number of statements in a chain that are rules."""
    count, depth, first = 0, 0, True
    for word in tokens:
        if depth == 0 and word in (";", "\n"):
            first = True
            continue
        if first and word not in _NO_RULE:
            count += 1
        first = False
        depth += _DEPTH.get(word, 0)
    return count


def _until_brace(tokens: list[str], at: int) -> list[str]:
    end = at
    while end < len(tokens) and tokens[end] not in ("{", ";", "\n"):
        end += 1
    return tokens[at:end]


def _closing(tokens: list[str], at: int) -> int:
    """The place of the brace that closes the block that ``at`` is in."""
    depth = 1
    while at < len(tokens):
        depth += _DEPTH.get(tokens[at], 0)
        if depth == 0:
            return at
        at += 1
    return at


def _tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        if not match[0].startswith("#") and match[0] != "\\\n":
            yield match[0]


def held_items(listed: dict[str, Any]) -> dict[Item, int]:
    """The same as ``items`` of what ``nft -j list ruleset`` prints."""
    found: dict[Item, int] = {}
    for entry in listed.get("nftables", ()):
        for kind, data in entry.items():
            if kind == "table":
                found[data["family"], data["name"], "", ""] = 0
            elif kind == "rule":
                found[data["family"], data["table"], "chain", data["chain"]] += 1
            elif kind in ("set", "map"):
                found[data["family"], data["table"], kind, data["name"]] = int(bool(data.get("elem")))
            elif kind != "metainfo":
                name = "ct" if kind.startswith("ct ") else kind
                found.setdefault((data["family"], data["table"], name, data["name"]), 0)
    return found


def _nft(namespace: Path, arguments: list[str], script: str, where: str) -> str:
    command = ["nsenter", f"--net={namespace}", "--", "nft", *arguments]
    environment = {**os.environ, "PATH": _PATH, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"status {done.returncode}"
        raise ApplyError(f"nft refused the ruleset: {said[:500]}", where=where)
    return done.stdout
