"""What pydantic finds, in words for people who write topologies: what is wrong, where, what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from testbed.errors import Path, Problem, halves
from testbed.model.document import Document, has_step
from testbed.model.shape import choices_at, fields_with, model_at

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "set_type": "a list",
    "dict_type": "a mapping of keys to values",
    "mapping_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}


def explain_all(error: ValidationError, document: Document, model: type[BaseModel], base: Path) -> list[Problem]:
    """The problems behind a validation error of what stands at ``base``, where a ``model`` is expected.

    Where a value may be text or a list and is a list with a wrong item, only the item is a problem.
    """
    errors = error.errors(include_url=False)
    found = [explain(item, document, model, base) for item in errors]
    inside = {problem.path[:depth] for problem in found for depth in range(len(problem.path))}
    return [
        problem
        for item, problem in zip(errors, found, strict=True)
        if not (item["type"] in _WANTED and problem.path in inside)
    ]


def explain(error: ErrorDetails, document: Document, model: type[BaseModel], base: Path) -> Problem:
    """The problem behind one of the errors."""
    loc: Path = (*base, *error["loc"])
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    at_key = loc[-1:] == ("[key]",)
    path = document.resolve(loc)
    name = describe(_known(loc, document, model, base))
    if kind == "extra_forbidden":
        return _unknown_key(path, model, base)
    if kind == "missing":
        return _missing(path, loc, name, document, model, base)
    if value is None:
        return no_value(path)
    if kind == "value_error":
        message, remedy = halves(context["error"])
        return Problem(path, message if at_key else f"{name}: {message}", remedy, at_key)
    if kind == "literal_error":
        return _not_one_of(path, name, value, model, base)
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return Problem(path, f"{name} is {_shown(value)}", f"it must be {words} {context[key]}")
    if kind in ("too_short", "too_long"):
        return _wrong_length(path, name, value, context)
    if kind in ("string_too_short", "string_too_long"):
        bound = context.get("min_length", context.get("max_length"))
        words = "at least" if kind == "string_too_short" else "at most"
        return Problem(path, f"{name} is {len(value)} characters long", f"it must be {words} {bound}", at_key)
    if kind in _WANTED:
        return _wrong_type(path, name, _WANTED[kind], value, document)
    return Problem(path, f"{name}: {error['msg'][:1].lower()}{error['msg'][1:]}", "", at_key)


def no_value(path: Path) -> Problem:
    """A key with nothing after its colon, or a ``null``, where a value is needed."""
    return Problem(path, f"{describe(path)} has no value", "give it one, or remove the key")


def unknown(key: str, valid: Sequence[str]) -> str:
    """The remedy for a key that is none of ``valid``."""
    near = get_close_matches(key.lower(), valid, 1)
    return f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(valid) or 'no key at all'}"


def describe(path: Path) -> str:
    """The last key of ``path`` in backquotes, with the number of the item if a list is meant."""
    keys = [step for step in path if isinstance(step, str)]
    name = f"`{keys[-1]}`" if keys else "the topology"
    return f"{name} item {path[-1] + 1}" if path and isinstance(path[-1], int) else name


def _known(loc: Path, document: Document, model: type[BaseModel], base: Path) -> Path:
    """``loc`` without what pydantic puts between, such as ``[key]``, and without an item that is missing."""
    at, known = document.data, list[str | int]()
    for number, step in enumerate(loc):
        written = has_step(at, step)
        inside = model_at(model, loc[len(base) : number])
        if written:
            at = at[step]
        if written or (inside is not None and step in inside.model_fields):
            known.append(step)
    return tuple(known)


def _unknown_key(path: Path, model: type[BaseModel], base: Path) -> Problem:
    key = str(path[-1])
    inside = model_at(model, path[len(base) : -1])
    remedy = "remove it"
    if inside is not None:
        valid = list(inside.model_fields)
        under = fields_with(inside, key)
        near = get_close_matches(key.lower(), valid, 1, cutoff=0.8)
        remedy = f"it belongs under `{under[0]}`" if under and not near else unknown(key, valid)
    return Problem(path, f"unknown key `{key}`", remedy, at_key=True)


def _missing(path: Path, loc: Path, name: str, document: Document, model: type[BaseModel], base: Path) -> Problem:
    key = loc[-1]
    if isinstance(key, int):
        at: Any = document.data
        for step in path:
            at = at[step]
        return Problem(path, f"{name} has {_items(len(at))}", f"it must have at least {key + 1}")
    inside = model_at(model, loc[len(base) : -1])
    field = inside.model_fields.get(str(key)) if inside is not None else None
    meaning = (field.description or "").rstrip(".") if field is not None else ""
    return Problem(path, f"`{key}` is missing", f"add it: {meaning[:1].lower()}{meaning[1:]}" if meaning else "add it")


def _not_one_of(path: Path, name: str, value: Any, model: type[BaseModel], base: Path) -> Problem:
    choices = choices_at(model, path[len(base) :])
    near = get_close_matches(str(value).lower(), choices, 1)
    remedy = f"did you mean {near[0]}?" if near else f"write one of {', '.join(choices)}"
    return Problem(path, f"{name} is {_shown(value)}, which is not one of {', '.join(choices)}", remedy)


def _wrong_length(path: Path, name: str, value: Any, context: dict[str, Any]) -> Problem:
    length = context.get("actual_length", len(value) if hasattr(value, "__len__") else None)
    have = f"{name} has {_items(length)}" if length is not None else f"{name} has the wrong number of items"
    if "min_length" in context and (length is None or length < context["min_length"]):
        return Problem(path, have, f"it must have at least {context['min_length']}")
    return Problem(path, have, f"it must have at most {context.get('max_length')}")


def _items(number: int) -> str:
    return {0: "no items", 1: "only one item"}.get(number, f"{number} items")


def _wrong_type(path: Path, name: str, wanted: str, value: Any, document: Document) -> Problem:
    message = f"{name} must be {wanted}, not {_kind(value)}"
    written = document.texts.get(path, "")
    if wanted == "text" and written:
        return Problem(path, message, f'quote it: "{written}"')
    if isinstance(value, str):
        if wanted == "a whole number" and value.strip().isascii() and value.strip().isdigit():
            return Problem(path, message, f"write it without quotes: {value.strip()}")
        if wanted == "true or false" and value in ("true", "false"):
            return Problem(path, message, f"write it without quotes: {value}")
        if wanted == "a list":
            return Problem(path, message, f"put it in brackets: [{_cut(value)}]")
    if wanted == "a list" and isinstance(value, dict):
        return Problem(path, message, "begin each item with a dash")
    if wanted.startswith("a mapping"):
        return Problem(path, message, "write `key: value` lines below it, or {key: value, ...} beside it")
    return Problem(path, message, f"write {wanted}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    kinds = {str: "text", int: "a number", float: "a number with decimals", list: "a list", dict: "a mapping"}
    return kinds.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return _kind(value)
    return repr(_cut(value)) if isinstance(value, str) else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
