"""The type and the limits of a field in words, for error messages and for the reference of settings. Pure."""

import types
from collections.abc import Iterable
from datetime import time
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel

_NAMES: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "truth values"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    time: ("a time (HH:MM)", "times"),
    Any: ("any value", "any values"),
    dict: ("a mapping", "mappings"),
    list: ("a list", "lists"),
}
_LIMITS = {
    "ge": "at least {}",
    "gt": "more than {}",
    "le": "at most {}",
    "lt": "less than {}",
    "min_length": "at least {} characters",
    "max_length": "at most {} characters",
    "pattern": "of the form {}",
}


def possible(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What a field takes: `a whole number, from 64 to 16384`."""
    null = "or null" if type(None) in alternatives(annotation) else ""
    return ", ".join(part for part in (type_text(annotation), limit_text(metadata), null) if part)


def type_text(annotation: Any, many: bool = False) -> str:
    """The type in words, without null; in the plural for `many`."""
    options = [option for option in alternatives(annotation) if option is not type(None)]
    return " or ".join(_plain_type_text(option, many) for option in options)


def _plain_type_text(kind: Any, many: bool) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(str(value) for value in arguments)}"
    if origin is list:
        return f"{'lists' if many else 'a list'} of {type_text(arguments[0], many=True)}"
    if origin is dict:
        return f"{'mappings' if many else 'a mapping'} of names to {type_text(arguments[1], many=True)}"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    if is_model(kind):
        kind = dict
    return _NAMES.get(kind, (getattr(kind, "__name__", str(kind)),) * 2)[many]


def limit_text(metadata: Iterable[Any]) -> str:
    """The limits in words: `from 64 to 16384`, `more than 0`, `at most 200 characters`; empty without limits."""
    bounds = {
        name: value
        for limit in metadata
        for name in ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern")
        if (value := getattr(limit, name, None)) is not None
    }
    if {"ge", "le"} <= bounds.keys():
        return f"from {bounds['ge']} to {bounds['le']}"
    return " and ".join(
        "not empty" if (name, value) == ("min_length", 1) else _LIMITS[name].format(value)
        for name, value in bounds.items()
    )


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; the annotation itself when it is none."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(option for member in get_args(annotation) for option in alternatives(member))
    return (annotation,)


def is_model(kind: Any) -> TypeGuard[type[BaseModel]]:
    """Whether the type is a pydantic model, as every section is."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def annotation_at(annotation: Any, path: Iterable[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The type and the metadata of the value at `path` in a value of type `annotation`; Any where none is declared."""
    metadata: tuple[Any, ...] = ()
    for key in path:
        inner = next((option for option in alternatives(annotation) if option is not type(None)), Any)
        annotation, metadata = Any, ()
        if is_model(inner):
            if field := inner.model_fields.get(str(key)):
                annotation, metadata = field.annotation, tuple(field.metadata)
        elif get_origin(inner) in (dict, list):
            annotation = get_args(inner)[-1]
    return annotation, metadata
