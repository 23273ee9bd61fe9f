"""What a pydantic model expects at a path: its keys, its choices. For remedies that name what would be right."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, RootModel

from testbed.errors import Path


def model_at(annotation: Any, path: Path) -> type[BaseModel] | None:
    """The model that is expected at ``path`` below ``annotation``; None if it is no model."""
    for found in _at(annotation, path):
        if _is_model(found):
            model: type[BaseModel] = found
            return model
    return None


def choices_at(annotation: Any, path: Path) -> list[str]:
    """The values of the ``Literal`` at ``path``; empty if it is none."""
    return [
        str(choice) for found in _at(annotation, path) if get_origin(found) is Literal for choice in get_args(found)
    ]


def fields_with(model: type[BaseModel], key: str) -> list[str]:
    """The fields of ``model`` whose own model has a field ``key``."""
    return [
        name
        for name, field in model.model_fields.items()
        if (inner := model_at(field.annotation, ())) is not None and key in inner.model_fields
    ]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel) and not issubclass(annotation, RootModel)


def _at(annotation: Any, path: Path) -> list[Any]:
    """Every alternative that the annotation allows at ``path``."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _at(get_args(annotation)[0], path)
    if origin in (Union, types.UnionType):
        return [found for part in get_args(annotation) for found in _at(part, path)]
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        return _at(annotation.model_fields["root"].annotation, path)
    if not path:
        return [annotation]
    step, rest = path[0], path[1:]
    if _is_model(annotation):
        field = annotation.model_fields.get(str(step))
        if field is not None:
            return _at(field.annotation, rest)
        # the short form of a link has no key for its endpoints
        return (
            _at(annotation.model_fields["endpoints"].annotation, path) if "endpoints" in annotation.model_fields else []
        )
    arguments = get_args(annotation)
    if origin is dict and len(arguments) == 2:
        return _at(arguments[1], rest)
    if origin in (list, tuple, set, frozenset) and arguments:
        index = step if isinstance(step, int) and step < len(arguments) and arguments[-1] is not Ellipsis else 0
        return _at(arguments[index], rest)
    return []
