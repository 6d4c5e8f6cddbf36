"""What is wrong with a value, as one line that says what is possible. Pure."""

import re
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from resources.config.wording.field_text import alternatives, annotation_at, is_model, possible
from resources.config.wording.near_names import did_you_mean
from resources.printable import visible

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SHOWN = 60
_UNKNOWN = ("extra_forbidden", "invalid_key")
_RAISED = ("value_error", "assertion_error")
"""Errors of validators, whose message says everything."""
_NAMES_KEY = re.compile(r"[a-z_]+(\.[a-z_]+)*: ")
"""How the message of a validator of several fields begins: with the field that it is about."""


def first_problem(
    error: ValidationError,
    model: Any,
    section: str = "",
    sources: Mapping[tuple[str, ...], str] | None = None,
) -> str:
    """The first problem of a value of type `model`, which stands at `section`.

    `sources` names where values come from that are not in the file, by the path of their key.
    """
    # A misspelt key is the cause of the missing one.
    found = min(error.errors(), key=lambda each: each["type"] not in _UNKNOWN)
    path = found["loc"]
    source = (sources or {}).get(tuple(str(part) for part in path))
    return f"{_told(found, model, section)} ({source})" if source else _told(found, model, section)


def _told(found: "ErrorDetails", model: Any, section: str) -> str:
    path = found["loc"]
    if found["type"] in _UNKNOWN:
        return _unknown_key(model, section, path)
    at = ".".join(str(part) for part in ((section, *path) if section else path)) or "it"
    if found["type"] in _RAISED:
        message = visible(str(found.get("ctx", {}).get("error", found["msg"])))
        return f"{at}{'.' if _NAMES_KEY.match(message) else ': '}{message}"
    if found["type"] == "missing":
        field = _model_at(model, path[:-1]).model_fields[str(path[-1])]
        return f"{at} is missing: {field.description or possible(field.annotation, field.metadata)}"
    if found["type"] == "recursion_loop":
        return f"{at} contains itself"
    quotes = ", in quotes" if found["type"] == "string_type" and isinstance(found["input"], int | float | date) else ""
    must = possible(*annotation_at(model, path))
    return f"{at} is {visible(repr(found['input']), _SHOWN)}, and must be {must}{quotes}"


def _unknown_key(model: Any, section: str, path: tuple[Any, ...]) -> str:
    known = list(_model_at(model, path[:-1]).model_fields)
    key, parents = visible(str(path[-1]), _SHOWN), ".".join(str(part) for part in (section, *path[:-1]) if part)
    guess, names = did_you_mean(key, known), ", ".join(known)
    if not parents:
        return f"there is no section {key!r}{guess}; there are {names}"
    return f"{parents} has no key {key!r}{guess}; it has {names}"


def _model_at(model: Any, path: tuple[Any, ...]) -> type[BaseModel]:
    annotation, _ = annotation_at(model, path)
    return next(each for each in alternatives(annotation) if is_model(each))
