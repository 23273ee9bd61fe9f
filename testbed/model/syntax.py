"""What the YAML parser says, in words for people who write topologies."""

from __future__ import annotations

import yaml

_WORDS: tuple[tuple[str, str, str], ...] = (
    # part of the parser's words, ours, remedy
    (r"'\t'", "a tab cannot stand here", "indent with spaces"),
    ("that cannot start any token", "text cannot begin with this character", "quote the text"),
    (
        "mapping values are not allowed",
        "a colon cannot stand here",
        "check the indentation, or quote text with a colon",
    ),
    (
        "could not find expected ':'",
        "a colon is missing after this",
        "write `key: value`, with a space after the colon",
    ),
    ("expected ',' or ']'", "a list in brackets lacks a comma or its closing `]`", ""),
    ("expected ',' or '}'", "a mapping in braces lacks a comma or its closing `}`", ""),
    ("expected <block end>", "the indentation fits nothing above", "indent it like the lines that it belongs to"),
    ("sequence entries are not allowed", "a dash cannot stand here", "put the list on lines of its own"),
    ("found unknown escape character", "a backslash in double quotes begins an escape", "use single quotes"),
    ("found undefined tag handle", "tags are not part of the language", "quote text that begins with `!`"),
)


def syntax_problem(error: yaml.MarkedYAMLError) -> tuple[int, int, str, str]:
    """(line, column, message, remedy); line and column count from 1."""
    mark = error.problem_mark or error.context_mark
    said = error.problem or "not valid"
    begin = error.context_mark
    if "unexpected end of stream" in said and "quoted" in (error.context or ""):
        mark, message, remedy = begin or mark, "the quotes that begin here are not closed", "close them"
    elif "could not find expected ':'" in said:
        mark, message, remedy = begin or mark, *_words(said)
    else:
        message, remedy = _words(said)
    if not remedy:
        remedy = f"it begins in line {begin.line + 1}" if begin is not None else "check the line and the one above"
    return (mark.line + 1 if mark else 1), (mark.column + 1 if mark else 1), message, remedy


def _words(said: str) -> tuple[str, str]:
    for part, message, remedy in _WORDS:
        if part in said:
            return message, remedy
    return f"not valid YAML: {said}", ""
