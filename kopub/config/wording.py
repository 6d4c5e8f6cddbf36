"""Describes in words the values that a field takes, and the faults of a value.

Pure.
"""

import re
import types
from collections.abc import Iterable, Mapping
from datetime import date, time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from kopub.errors import did_you_mean, visible

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SHOWN = 60
_UNKNOWN = ("extra_forbidden", "invalid_key")
_RAISED = ("value_error", "assertion_error")
"""Errors of validators, whose messages are complete."""
_NAMES_KEY = re.compile(r"[a-z_]+(\.[a-z_]+)*: ")
"""The beginning of a message from a validator of several fields: the field concerned."""


def first_problem(
    error: ValidationError,
    model: Any,
    section: str = "",
    sources: Mapping[tuple[str, ...], str] | None = None,
) -> str:
    """Return the first problem of a value of type `model` at `section`.

    `sources` names the origins of values that are not in the file, by the path of their key.
    """
    # A misspelt key is the cause of the missing one.
    first = min(error.errors(), key=lambda fault: fault["type"] not in _UNKNOWN)
    path = first["loc"]
    source = (sources or {}).get(tuple(str(part) for part in path))
    return f"{_describe_fault(first, model, section)} ({source})" if source else _describe_fault(first, model, section)


def _describe_fault(fault: "ErrorDetails", model: Any, section: str) -> str:
    path = fault["loc"]
    if fault["type"] in _UNKNOWN:
        keys = list(_model_at(model, path[:-1]).model_fields)
        key, parents = visible(str(path[-1]), _SHOWN), ".".join(str(part) for part in (section, *path[:-1]) if part)
        guess, names = did_you_mean(key, keys, in_brackets=True), ", ".join(keys)
        if not parents:
            return f"there is no section {key!r}{guess}; there are {names}"
        return f"{parents} has no key {key!r}{guess}; it has {names}"
    at = ".".join(str(part) for part in ((section, *path) if section else path)) or "it"
    if fault["type"] in _RAISED:
        message = visible(str(fault.get("ctx", {}).get("error", fault["msg"])))
        return f"{at}{'.' if _NAMES_KEY.match(message) else ': '}{message}"
    if fault["type"] == "missing":
        field = _model_at(model, path[:-1]).model_fields[str(path[-1])]
        return f"{at} is missing: {field.description or possible(field.annotation, field.metadata)}"
    if fault["type"] == "recursion_loop":
        return f"{at} contains itself"
    quotes = ", in quotes" if fault["type"] == "string_type" and isinstance(fault["input"], int | float | date) else ""
    must = possible(*annotation_at(model, path))
    return f"{at} is {visible(repr(fault['input']), _SHOWN)}, and must be {must}{quotes}"


def _model_at(model: Any, path: tuple[Any, ...]) -> type[BaseModel]:
    annotation, _ = annotation_at(model, path)
    return next(option for option in alternatives(annotation) if is_model(option))


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


def possible(annotation: Any, metadata: Iterable[Any]) -> str:
    """Return the values that a field takes: `a whole number, from 64 to 16384`."""
    null = "or null" if type(None) in alternatives(annotation) else ""
    return ", ".join(part for part in (type_text(annotation), limit_text(metadata), null) if part)


def type_text(annotation: Any, many: bool = False) -> str:
    """Return the type in words, without null; in the plural for `many`."""
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
    """Return the limits in words; empty without limits.

    `from 64 to 16384`, `more than 0`, `at most 200 characters`.
    """
    bounds: dict[str, Any] = {}
    for limit in metadata:
        for name in _LIMITS:
            value = getattr(limit, name, None)
            if value is not None:
                bounds[name] = value
    if {"ge", "le"} <= bounds.keys():
        return f"from {bounds['ge']} to {bounds['le']}"
    return " and ".join(
        "not empty" if (name, value) == ("min_length", 1) else _LIMITS[name].format(value)
        for name, value in bounds.items()
    )


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation itself if it is not one."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(option for member in get_args(annotation) for option in alternatives(member))
    return (annotation,)


def is_model(kind: Any) -> TypeGuard[type[BaseModel]]:
    """Return whether the type is a pydantic model, as every section is."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def annotation_at(annotation: Any, path: Iterable[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the type and metadata of the value at `path`; `Any` if undeclared."""
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
