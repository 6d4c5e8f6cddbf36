"""Values that stand outside of a profile's file: `KOPUB_<SECTION>__<KEY>=VALUE` and `--set SECTION.KEY=VALUE`. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_origin

from pydantic import BaseModel

from resources.config.wording.field_text import alternatives, annotation_at
from resources.config.wording.near_names import did_you_mean
from resources.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Override:
    """A value as text, for the key at `path`, whose first part is a section. `source` is how a person wrote the key."""

    source: str
    path: tuple[str, ...]
    text: str


def overrides_of(
    changes: Mapping[str, str], sections: Iterable[str], pins: Mapping[str, BaseModel]
) -> tuple[list[Override], list[Override]]:
    """The overrides of sections, and those of pins, by the dotted keys of `--set`.

    A key begins with a section (recognition.prompts.table) or a pin (glm_ocr.revision). Raises `ConfigError`
    for a key that begins otherwise.
    """
    sections = list(sections)
    of_sections, of_pins = [], []
    for key, text in changes.items():
        source, path = f"--set {key}", tuple(key.split("."))
        if len(path) < 2 or not all(path):
            raise ConfigError(f"{source}: write SECTION.KEY=VALUE, as in embedding.dim=512")
        if path[0] in sections:
            of_sections.append(Override(source, path, text))
        elif path[0] in pins:
            of_pins.append(Override(source, path, text))
        else:
            known = [*sections, *pins]
            raise ConfigError(
                f"{source}: {path[0]!r} is neither a section nor a pin{did_you_mean(path[0], known)}; "
                f"there are {', '.join(known)}"
            )
    return of_sections, of_pins


def put(override: Override, values: dict[str, Any], model: Any) -> None:
    """Set the value of an override in `values`, which are of type `model`.

    A text becomes a list or a mapping where the type demands one, by JSON. All other types make sense of
    texts by themselves. Raises `ConfigError`.
    """
    annotation, _ = annotation_at(model, override.path)
    value = _value(override, annotation)
    *parents, last = override.path
    for key in parents:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{override.source}: {key!r} is a value and has no keys")
    if isinstance(value, dict) and isinstance(values.get(last), dict):
        _merge(value, values[last])
    else:
        values[last] = value


def _merge(changes: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(value, values[key])
        else:
            values[key] = value


def _value(override: Override, annotation: Any) -> Any:
    types = alternatives(annotation)
    if override.text == "null" and type(None) in types:
        return None
    if Any in types:
        try:
            return json.loads(override.text)
        except ValueError:
            return override.text
    if not any(_is_container(option) for option in types):
        return override.text
    try:
        return json.loads(override.text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{override.source}: {override.text!r} is not JSON ({error})") from None


def _is_container(option: Any) -> bool:
    kind = get_origin(option) or option
    return isinstance(kind, type) and issubclass(kind, list | dict | BaseModel)
