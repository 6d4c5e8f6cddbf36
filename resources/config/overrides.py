"""Changes to a profile and its pins that are only thought of: `SECTION.KEY=VALUE` and `PIN.KEY=VALUE`. Pure."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from resources.errors import ConfigError

Sections = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Changed:
    """The sections of a profile that make results, and the model pins, as they would be."""

    sections: Sections
    pins: Sections


def changed_sections(
    changes: Mapping[str, str], sections: Mapping[str, dict[str, Any]], pins: Mapping[str, dict[str, Any]]
) -> Changed:
    """`sections` and `pins` with the values of `changes` at their dotted keys.

    A key begins with a section (recognition.prompts.table) or a pin (glm_ocr.revision). What may
    follow a section is for its engine to say. Raises `ConfigError` for a key that nothing would
    read.
    """
    changed = Changed(deepcopy(dict(sections)), deepcopy(dict(pins)))
    used = {section.get("model") for section in sections.values()}
    for key, text in changes.items():
        name, *path = key.split(".")
        if not path or not all(path):
            raise ConfigError(f"--set {key}: write SECTION.KEY=VALUE, as in embedding.dim=512")
        if name in changed.sections:
            _put(key, changed.sections[name], path, _value(key, text))
        elif name not in pins:
            known = ", ".join([*sections, *pins])
            raise ConfigError(f"--set {key}: {name!r} is neither a section nor a pin; there are {known}")
        elif name not in used:
            raise ConfigError(f"--set {key}: no engine of this profile uses the pin {name}")
        elif path[0] not in pins[name]:
            raise ConfigError(f"--set {key}: the pin {name} has no key {path[0]!r}; it has {', '.join(pins[name])}")
        else:
            _put(key, changed.pins[name], path, _value(key, text))
    return changed


def _put(key: str, section: dict[str, Any], path: list[str], value: Any) -> None:
    *folders, last = path
    for folder in folders:
        section = section.setdefault(folder, {})
        if not isinstance(section, dict):
            raise ConfigError(f"--set {key}: {folder!r} is a value and has no keys")
    section[last] = value


def _value(key: str, text: str) -> Any:
    """As in an environment variable: lists and mappings are JSON, all else the text that the engine makes sense of."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--set {key}: {text!r} is not JSON ({error})") from None
