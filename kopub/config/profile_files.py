"""Profiles and model pins as written in their files."""

import json
import os
import re
from collections.abc import Hashable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from kopub.config.wording import first_problem
from kopub.errors import ConfigError, did_you_mean, first_line, visible
from kopub.folders import PINS, PROFILES
from kopub.states import Reason, phrase


class Pin(BaseModel):
    """A model at one commit of a Hub repository."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    repo: str = Field(min_length=1, description="Repository of the Hub, `owner/name`.")
    revision: str = Field(pattern=r"^[0-9a-f]{40}$", description="Commit of the repository, 40 hex digits.")


class Card(BaseModel):
    """The GPU that a profile is for."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    gpu: str = Field(min_length=1, description="Words of the name that the driver gives it, such as RTX 4090.")
    memory_gb: float = Field(gt=0, allow_inf_nan=False, description="Its memory in GB.")
    measured: bool = Field(description="Whether the profile was measured on it, not estimated from another card.")


class PublishedReader(BaseModel):
    """The facts about a reader before it has read anything here."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    reads: str = Field(min_length=1, description="What one request holds: regions, or whole pages.")
    korean: float = Field(ge=0, le=100, description="Its published score on Korean pages, MDPBench's.")
    measured: list[str] = Field(default=[], description="GPUs on which it was measured with what its file says.")


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile: its name, its sections as written, and its card.

    `cpu` has no card.
    """

    name: str
    sections: dict[Any, Any]
    card: Card | None


_PROFILE = Reason("profile ")
EXTENDS = "extends"
"""The key of a profile that names another profile, which it extends."""
_CARD = "card"
"""The key that describes the card."""
_READER, _BY_MEMORY = "reader", "cards"
"""Keys of a reader's file: facts published about it, and different settings by least memory of a card in GB."""
_READERS = PROFILES / "readers"
"""Readers that can be put on the profile of a card: `rtx4090+paddleocr_vl`."""
_OF_THE_CARD = ("server", "in_flight", "processes", "threads", "line_height")
"""Keys of `recognition` that another reader takes over; from `server`, all except these:"""
_OF_THE_MODEL = ("model", "revision", "env", "extra_flags", "mm_processor", "max_image_tokens", "speculative")

_FOLDERS = {
    "store": ["url"],
    "corpus": ["url"],
    "release": ["folder", "made_in"],
    "gates": ["benchmarks"],
    "sinks": ["url"],
    "recognition": ["reuse_folder", "weights_file"],
}
"""The keys of each section of a profile that name folders or files."""

Pins = dict[str, Pin]
_PINS = TypeAdapter(Pins)


def find_profile(name: str, prefix: str = _PROFILE) -> Profile:
    """Return the profile of a name or path, or of a card with a reader.

    Raises `ConfigError`, which begins with `prefix` if there is no such profile.
    """
    written = _find(name, prefix, Path(), ())
    stem = Path(name).stem if _is_path(name) else name
    return Profile(stem, written, _pop_card(stem, written))


def named_from_anywhere(name: str) -> str:
    """Return the name of a profile for a process in another folder.

    A path is made absolute.
    """
    return os.path.abspath(name) if any(map(_is_path, name.split("+"))) else name


def known_profiles() -> list[str]:
    """Return the names of the profiles that come with the project."""
    return sorted(file.stem for file in PROFILES.glob("*.yaml") if file != PINS)


def known_readers() -> list[str]:
    """Return the names of the readers that can be put on a card's profile."""
    return [name for name in _additions() if _READER in _read_profile(_READERS / f"{name}.yaml", ())]


def _additions() -> list[str]:
    """Return the additions to a profile: readers and changes.

    A change may be to any of the readers.
    """
    return sorted(file.stem for file in _READERS.glob("*.yaml"))


def published_reader(name: str) -> PublishedReader:
    """Return the published facts about one of `known_readers`. Raises `ConfigError`."""
    path = _READERS / f"{name}.yaml"
    return _describe(path.name, _read_profile(path, ()).get(_READER), PublishedReader, _READER)


def _find(name: str, prefix: str, folder: Path, extended_by: tuple[Path, ...]) -> dict[Any, Any]:
    """Return the keys of a profile, `card` among them; a path is one in `folder`."""
    card, plus, reader = name.rpartition("+")
    if not plus or _is_path(name):
        path = folder / name if _is_path(name) else PROFILES / f"{name}.yaml"
        if not _is_file(path):
            names = known_profiles()
            form = "{prefix}{name}: there is no such profile{guess}; there are {names}, or the path of a YAML file"
            guess = did_you_mean(name, names, in_brackets=True)
            raise ConfigError(form, prefix, name or repr(name), guess, ", ".join(names))
        if path.resolve() in extended_by:
            form = "{prefix}{name} extends {other} in turn; take one of them out"
            raise ConfigError(form, prefix, name, extended_by[-1].name)
        return _read_profile(path, extended_by)
    below = _find(card, prefix, folder, extended_by)
    path = _READERS / f"{reader}.yaml"
    if not _is_file(path):
        names = _additions()
        guess = did_you_mean(reader, names, in_brackets=True)
        form = "{prefix}{name}: there is no reader {reader!r}{guess}; there are {names}"
        raise ConfigError(form, prefix, name, reader, guess, ", ".join(names))
    addition = _read_profile(path, ())
    return _with_reader(addition, below, f"{prefix}{name}") if _READER in addition else _on_top(addition, below)


def _is_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file() and path != PINS
    except (OSError, ValueError):
        return False


def _read_profile(path: Path, extended_by: tuple[Path, ...]) -> dict[Any, Any]:
    content = _read_yaml(path)
    if content is None:
        raise ConfigError("{file} is empty: it must have the sections layout, recognition and embedding", path.name)
    if not isinstance(content, dict):
        form = "{file} has no sections: it is a {kind}, not a mapping"
        raise ConfigError(form, path.name, _KINDS.get(type(content), "value"))
    # The relative folders of a profile lie beside its file.
    for section, keys in _FOLDERS.items():
        values = content.get(section)
        if isinstance(values, dict):
            values.update({key: _beside(path, values[key]) for key in keys if key in values})
    if EXTENDS not in content:
        return content
    name, chain = content.pop(EXTENDS), (*extended_by, path.resolve())
    if not isinstance(name, str):
        form = "{file}: {key} is {name!r}, and must be the name of a profile, as h200"
        raise ConfigError(form, path.name, EXTENDS, name)
    return _on_top(content, _find(name, f"{path.name}: {EXTENDS}: ", path.parent, chain))


def _beside(path: Path, folder: Any) -> Any:
    """Return a relative folder, or several by name, as beside `path`.

    Anything else is returned as it is, and checked later.
    """
    if isinstance(folder, dict):
        return {name: _beside(path, each) for name, each in folder.items()}
    place = re.sub("^(file|local)://", "", folder) if isinstance(folder, str) else ""
    # Postgres may be `host=HOST dbname=NAME`.
    if not place.strip() or place.startswith("~") or ":" in place or re.search(r"\b(host|dbname) *=", place):
        return folder
    return os.path.abspath(path.parent / place)


def _on_top(content: Mapping[Any, Any], below: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return `below` with the keys of `content` in place of its own.

    Nested mappings are merged in the same way. A mapping with another `engine` replaces the old one entirely, since the
    keys of one engine mean nothing to another; one with another model or repository inherits no `revision`.
    """
    together = dict(below)
    if any(key in content and content[key] != below.get(key) for key in ("model", "repo")):
        together.pop("revision", None)
    for key, value in content.items():
        there = below.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            same = value.get("engine", there.get("engine")) == there.get("engine")
            together[key] = _on_top(value, there) if same else value
        else:
            together[key] = value
    return together


def _with_reader(reader: dict[Any, Any], card: Mapping[Any, Any], subject: str) -> dict[Any, Any]:
    """Return the profile of a card with another reader, whose server keeps its size.

    A layout engine that is the reader itself has the reader's server.
    """
    there, engine = card.get("recognition"), reader["recognition"]["engine"]
    server = there.get("server") if isinstance(there, dict) else None
    if not isinstance(there, dict) or not isinstance(server, dict):
        form = "{subject}: a reader needs the profile of a card, as rtx4090+{engine}; `kopub profiles` lists them"
        raise ConfigError(form, subject, engine)
    described = None if card.get(_CARD) is None else _describe(subject, card[_CARD], Card, _CARD)
    published = _describe(subject, reader.pop(_READER), PublishedReader, _READER)
    by_memory = reader.pop(_BY_MEMORY, {})
    memory = described.memory_gb if described else 0
    fitting = max((least for least in by_memory if least <= memory), default=None)
    if there.get("engine") != engine:
        there = {key: there[key] for key in _OF_THE_CARD if key in there}
        there["server"] = {key: value for key, value in server.items() if key not in _OF_THE_MODEL}
        there["engine"] = engine
        if described:
            measured = described.measured and described.gpu in published.measured
            card = {**card, _CARD: {**described.model_dump(), "measured": measured}}
    merged = _on_top(reader, {**card, "recognition": there})
    merged = merged if fitting is None else _on_top(by_memory[fitting], merged)
    layout = merged.get("layout")
    # Anything else than a mapping is refused with the other mistakes of a profile.
    if isinstance(layout, dict) and layout.get("engine") == engine:
        merged["layout"] = {**layout, "server": deepcopy(merged["recognition"]["server"])}
    return merged


def _pop_card(name: str, written: dict[Any, Any]) -> Card | None:
    content = written.pop(_CARD, None)
    return None if content is None else _describe(name, content, Card, _CARD)


Described = TypeVar("Described", bound=BaseModel)


def _describe(name: str, content: Any, model: type[Described], key: str) -> Described:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigError("{name}: {reason}", name, first_problem(error, model, key)) from None


def read_pins() -> Pins:
    """Return the model pins by name.

    Raises `ConfigError`.
    """
    return checked_pins(_read_yaml(PINS), PINS.name)


def checked_pins(content: Any, where: str) -> Pins:
    """Return `content` as pins.

    Raises `ConfigError`, which begins with `where`.
    """
    try:
        return _PINS.validate_python(content)
    except ValidationError as error:
        raise ConfigError("{where}: {reason}", where, first_problem(error, dict[str, Pin])) from None


_KINDS = {list: "list", str: "text", int: "number", float: "number", bool: "truth value"}


_MOST_PIECES = 100_000
"""Most pieces of JSON that a file may come to, once each alias (`*name`) stands for what it names."""


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys, where the standard one keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands there twice", key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> Any:
    try:
        # The loader reads only YAML's plain types: lists, mappings, texts, numbers, truth values and dates.
        content = yaml.load(path.read_text("utf-8-sig"), _Loader)
        if any(islice(json.JSONEncoder(default=str, skipkeys=True).iterencode(content), _MOST_PIECES, None)):
            raise ValueError("its aliases repeat too many values")
        return content
    except OSError as error:
        raise ConfigError("{path} cannot be read: {error}", path, error.strerror or error) from None
    except UnicodeDecodeError:
        raise ConfigError("{file} is not UTF-8: save it in that encoding", path.name) from None
    except yaml.MarkedYAMLError as error:
        at = phrase(" in line {line}", error.problem_mark.line + 1) if error.problem_mark else ""
        form = "{file} is not YAML{at}: {error}"
        raise ConfigError(form, path.name, at, first_line(error.problem or error)) from None
    except RecursionError:
        raise ConfigError("{file} is nested too deeply to be read", path.name) from None
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        # A value that its YAML tag does not allow, like the date 2026-13-01, raises various errors of Python.
        form = "{file} is not YAML: it holds a value that cannot be read ({error})"
        raise ConfigError(form, path.name, visible(str(error))) from None
