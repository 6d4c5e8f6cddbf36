"""Profiles and model pins as they stand in their files."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from resources.config.places import PINS, PROFILES
from resources.config.wording.near_names import did_you_mean
from resources.config.wording.problems import first_problem
from resources.errors import ConfigError
from resources.printable import first_line, visible


class Pin(BaseModel):
    """A model at one commit of a Hub repository."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repo: str = Field(min_length=1, description="Repository of the Hub, `owner/name`.")
    revision: str = Field(pattern=r"^[0-9a-f]{40}$", description="Commit of the repository, 40 hex digits.")


EXTENDS = "extends"
"""The key of a profile that names another one, to which it is an addition."""

Pins = dict[str, Pin]
_PINS = TypeAdapter(Pins)


def profile_path(name: str) -> Path:
    """The file that `KOPUB_PROFILE` names. Raises `ConfigError`."""
    return _profile_file(name, "KOPUB_PROFILE is", Path())


def _profile_file(name: str, said: str, folder: Path) -> Path:
    """The file of a profile's name, or of a path in `folder`. Raises `ConfigError`, which begins with `said`."""
    path = folder / name if name.endswith((".yaml", ".yml")) else PROFILES / f"{name}.yaml"
    try:
        found = path.is_file() and path != PINS
    except (OSError, ValueError):
        found = False
    if not found:
        known = sorted(file.stem for file in PROFILES.glob("*.yaml") if file != PINS)
        raise ConfigError(
            f"{said} {name!r}{did_you_mean(name, known)}; choose one of {', '.join(known)}, or the path of a YAML file"
        )
    return path


def read_profile(path: Path) -> dict[Any, Any]:
    """The sections of a profile as they are written, on those of the profile that it extends. Raises `ConfigError`."""
    return _read_profile(path, ())


def _read_profile(path: Path, extended_by: tuple[Path, ...]) -> dict[Any, Any]:
    content = _read_yaml(path)
    if content is None:
        raise ConfigError(f"{path.name} is empty: it must have the sections layout, recognition and embedding")
    if not isinstance(content, dict):
        raise ConfigError(f"{path.name} has no sections: it is a {_KINDS.get(type(content), 'value')}, not a mapping")
    if EXTENDS not in content:
        return content
    name, chain = content.pop(EXTENDS), (*extended_by, path.resolve())
    if not isinstance(name, str):
        raise ConfigError(f"{path.name}: {EXTENDS} is {name!r}, and must be the name of a profile, as h200")
    below = _profile_file(name, f"{path.name}: {EXTENDS} is", path.parent)
    if below.resolve() in chain:
        raise ConfigError(
            f"{path.name}: {EXTENDS} is {name!r}, which extends {path.name} in turn; take one of them out"
        )
    return _on_top(content, _read_profile(below, chain))


def _on_top(content: Mapping[Any, Any], below: Mapping[Any, Any]) -> dict[Any, Any]:
    """`below` with the keys of `content` in place of its own; mappings of the two are put together in the same way.

    One with another `engine` takes the place of the whole: keys of one engine mean nothing to another.
    """
    together = dict(below)
    for key, value in content.items():
        there = below.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            same = value.get("engine", there.get("engine")) == there.get("engine")
            together[key] = _on_top(value, there) if same else value
        else:
            together[key] = value
    return together


def read_pins(path: Path = PINS) -> Pins:
    """The model pins by name. Raises `ConfigError`."""
    return checked_pins(_read_yaml(path), path.name)


def checked_pins(content: Any, where: str = PINS.name) -> Pins:
    """`content` as pins. Raises `ConfigError`, which begins with `where`."""
    try:
        return _PINS.validate_python(content)
    except ValidationError as error:
        raise ConfigError(f"{where}: {first_problem(error, dict[str, Pin])}") from None


_KINDS = {list: "list", str: "text", int: "number", float: "number", bool: "truth value"}


class _Loader(yaml.SafeLoader):
    """YAML in which a key stands once: the standard loader keeps the last of two, in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> Any:
    try:
        # The loader reads no more than YAML's plain types: lists, mappings, texts, numbers, truth values and dates.
        return yaml.load(path.read_text("utf-8-sig"), _Loader)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path.name} is not UTF-8: save it in that encoding") from None
    except yaml.MarkedYAMLError as error:
        at = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path.name} is not YAML{at}: {first_line(error.problem or error)}") from None
    except RecursionError:
        raise ConfigError(f"{path.name} is nested too deeply to be read") from None
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        # A value that its YAML tag does not allow, as the date 2026-13-01, is whatever Python raises for it.
        raise ConfigError(
            f"{path.name} is not YAML: it holds a value that cannot be read ({visible(str(error))})"
        ) from None
