"""Checks a profile against the fields of its engines, and makes their resources.

Finds the engines by their entry points, makes a pydantic section of each engine's fields, and fills in pins and places.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, create_model, field_validator
from pydantic_core import PydanticCustomError

from kopub.config.choices import CorpusIndex, Documents, Figures, Pdf, ReadingRoom, Search, Upgrades
from kopub.config.environment import Override, overrides_of, put
from kopub.config.profile_files import Pins, checked_pins
from kopub.config.wording import alternatives, first_problem
from kopub.embedding.base import Embedder
from kopub.engine import Engine, Resource
from kopub.errors import ConfigError, did_you_mean, first_line, near_names
from kopub.figures.figure import FigureNoter
from kopub.fingerprints import CodeVersion
from kopub.folders import PINS, placed, store_url
from kopub.layout.base import LayoutDetector
from kopub.recognition.base import Recognizer
from kopub.release.gates import Gates
from kopub.release.hub import HubTarget
from kopub.release.local import LocalRelease
from kopub.reranking.base import Reranker
from kopub.sinks.base import Sink
from kopub.states import phrase
from kopub.store.table_store import ShardStore

SERVER = "server"
"""Key of the section of a model server within the section of its engine."""


class Section(BaseModel):
    """The keys of a section.

    Values have the declared types; texts are converted if a number is declared.
    """

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True, protected_namespaces=()
    )

    resource: ClassVar[type[Any]]
    """The class that the section configures."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        types = alternatives(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and not {bool, Any} & set(types) and {int, float} & set(types):
            raise PydanticCustomError("number_type", "a truth value is no number")
        return value


@cache
def section_of(resource: type[Resource]) -> type[Section]:
    """Return the section whose keys are the fields of `resource`."""
    return _model(resource, {})


@cache
def engine_section(name: str, engine: type[Engine]) -> type[Section]:
    """Return the section of the engine that entry points call `name`."""
    keys: dict[str, Any] = {"engine": (Literal[name], Field(description="Name of the engine."))}
    if takes_pin(engine):
        keys["model"] = (str | None, Field(default=None, description="Pin of `models.yaml` that the weights are."))
    return _model(engine, keys)


def takes_pin(engine: type[Engine]) -> bool:
    """Return whether `model` can name a pin.

    The engine has a model server, or fields for a repository and its commit.
    """
    server = nested_resource(engine, SERVER)
    served = server is not None and {"model", "revision"} <= server.model_fields.keys()
    return served or {"repo", "revision"} <= engine.model_fields.keys()


def make(section: Section, where: str) -> Any:
    """Return the resource of the section at `where`.

    Raises `ConfigError`.
    """
    resource = section.resource
    values = {}
    for name in resource.model_fields:
        if name in section.model_fields_set:
            value = getattr(section, name)
            values[name] = make(value, f"{where}.{name}") if isinstance(value, Section) else value
    try:
        return resource(**values)
    except ValidationError as error:
        raise ConfigError(first_problem(error, type(section), where)) from None


def _model(resource: type[Resource], keys: dict[str, Any]) -> type[Section]:
    fields = dict(keys)
    for name, declared in resource.model_fields.items():
        nested = nested_resource(resource, name)
        field = copy(declared)
        fields[name] = (section_of(nested) if nested else declared.annotation, field)
    section = create_model(f"{resource.__name__}Section", __base__=Section, __doc__=resource.__doc__, **fields)
    section.resource = resource
    return section


def nested_resource(resource: type[Resource], name: str) -> type[Resource] | None:
    """Return the resource that a field holds, if it holds one."""
    if name not in resource.model_fields:
        return None
    for option in alternatives(resource.model_fields[name].annotation):
        for kind in (option, *get_args(option)):
            if isinstance(kind, type) and issubclass(kind, Resource):
                return kind
    return None


OTHERS: Mapping[str, type[BaseModel]] = {
    "figures": section_of(Figures),
    "documents": section_of(Documents),
    "corpus": CorpusIndex,
    "store": section_of(ShardStore),
    "release": section_of(LocalRelease),
    "hub": section_of(HubTarget),
    "pdf": section_of(Pdf),
    "gates": section_of(Gates),
    "upgrades": Upgrades,
    "search": Search,
    "reading_room": ReadingRoom,
}
"""The sections that do not choose an engine."""

_SHAPES = ("pdf",)
"""Sections that decide the contents of tables, so that a plan can be made for another value."""

PLACES: Mapping[tuple[str, str], tuple[str, Callable[[str], str | Path]]] = {
    ("store", "url"): ("store", store_url),
    ("release", "folder"): ("release", store_url),
    ("release", "made_in"): ("release", placed),
}
"""Keys that name a place: the default folder in the home, and the function that makes a path absolute."""

_CHOICES = ("engine", "model")
"""Keys of every section that choose the engine and its weights."""
_AS_WRITTEN = dict[str, dict[str, Any]]
"""The type of the engines' sections before their engines are known."""


class _Profile(BaseModel):
    """The keys of every profile.

    The sections are added when the engines are known.
    """

    model_config = ConfigDict(extra="forbid")

    shards_per_run: int | None = Field(
        default=None, ge=1, description="Shards in one run of a backfill; null puts a contiguous range into one run."
    )


PROTOCOLS: Mapping[str, type[Engine]] = {
    "layout": LayoutDetector,
    "recognition": Recognizer,
    "embedding": Embedder,
    "notes": FigureNoter,
    "reranking": Reranker,
    "sinks": Sink,
}
"""The protocol of each section's engines. The entry point group of a section is `kopub.<section>`."""

LEFT_OUT: Mapping[str, str] = {"notes": "none", "reranking": "none", "sinks": "none"}
"""The engine of a section that a profile leaves out; the other sections are required."""
SECTIONS = (*PROTOCOLS, *OTHERS)
VALUES = tuple(_Profile.model_fields)
"""Keys of a profile that are not sections."""


def checked_profile(
    written: Mapping[Any, Any],
    home: Path,
    pins: Pins,
    name: str,
    overrides: Sequence[Override],
    changes: Mapping[str, str] | None,
) -> Any:
    """Return the profile `written`, with a validated section under each name.

    `overrides` come from the environment and `changes` from `--set`, which is applied last. Raises `ConfigError`.
    """
    changed, changed_pins = overrides_of(changes or {}, (*PROTOCOLS, *_SHAPES), pins)
    overrides = [*sorted(overrides, key=lambda override: len(override.path)), *changed]
    values: dict[Any, Any] = {section: {} for section in OTHERS}
    values |= {key: {} if value is None else deepcopy(value) for key, value in written.items()}
    for section, engine in LEFT_OUT.items():
        values.setdefault(section, {"engine": engine})

    of_choice = []
    for override in overrides:
        section, *keys = override.path
        if section in PROTOCOLS and (not keys or keys[0] in _CHOICES):
            of_choice.append(override)
            put(override, values, _AS_WRITTEN)
    with named(name):
        engines = _engines(values)
    model = profile_model(engines)
    for override in overrides:
        if override not in of_choice:
            put(override, values, model)
    for override in changed_pins:
        pin = override.path[0]
        if pin not in [values[section].get("model") for section in PROTOCOLS]:
            raise ConfigError("{source}: no engine of this profile uses the pin {pin}", override.source, pin)
        written_pins = {key: value.model_dump() for key, value in pins.items()}
        put(override, written_pins, Pins)
        pins = checked_pins(written_pins, override.source)
    with named(name):
        for section, (_, engine) in engines.items():
            _fill_in_pin(section, values[section], engine, pins)
            _fill_in_folders(section, values[section], engine, home, values["corpus"])
        for place in PLACES:
            section, key = place
            default, resolve = PLACES[place]
            if isinstance(values[section], dict):
                path = values[section].setdefault(key, str(home / default))
                if isinstance(path, str):
                    values[section][key] = _resolve(f"{section}.{key}", path, resolve)
        try:
            return model.model_validate(values)
        except ValidationError as error:
            sources = {override.path: override.source for override in overrides}
            raise ConfigError(first_problem(error, model, sources=sources)) from None


def profile_model(engines: Mapping[str, tuple[str, type[Engine]]]) -> type[BaseModel]:
    """Return the schema of a profile with these engines.

    `engines` has the name and class of each engine by section.
    """
    sections: dict[str, Any] = {
        **{section: (engine_section(*engine), Field()) for section, engine in engines.items()},
        **{section: (model, Field()) for section, model in OTHERS.items()},
    }
    return create_model("Profile", __base__=_Profile, **sections)


@contextmanager
def named(profile: str) -> Iterator[None]:
    """Prefix the errors of a profile with its name."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError("profile {profile}: {reason}", profile, error) from None


def _engines(values: Mapping[Any, Any]) -> dict[str, tuple[str, type[Engine]]]:
    """Return the names and classes of a profile's engines by section."""
    installed = find_engines()
    engines = {}
    for section in PROTOCOLS:
        if section not in values:
            near = near_names(section, (str(key) for key in values if key not in SECTIONS))
            instead = phrase(" in place of {name!r}", near[0]) if near else ""
            form = "there is no section {section!r}: write {section}: {{engine: NAME}}{instead}, with one of {engines}"
            raise ConfigError(form, section, instead, ", ".join(installed[section]))
        if not isinstance(values[section], dict):
            form = "{section} is {value!r:.60}, and must be a mapping, as {{engine: NAME}}"
            raise ConfigError(form, section, values[section])
        name = values[section].get("engine")
        engines[section] = (name, load_engine(section, name, installed))
    return engines


def _fill_in_pin(section: str, values: dict[str, Any], engine: type[Engine], pins: Pins) -> None:
    """Fill in the repository and commit of the pin that `model` names."""
    if not takes_pin(engine):
        return
    served = SERVER in engine.model_fields
    if served and values.get(SERVER) is None:
        values[SERVER] = {}
    target, key = (values[SERVER], "model") if served else (values, "repo")
    if not isinstance(target, dict):
        return
    name = values.get("model")
    if name is None and key not in target:
        other = f"{section}.{SERVER}.{key}" if served else f"{section}.{key}"
        form = "{section} names no model: set {section}.model to one of {pins}, or {instead}"
        raise ConfigError(form, section, ", ".join(pins), other)
    if name is None:
        return
    if not isinstance(name, str) or name not in pins:
        guess = did_you_mean(str(name), pins, in_brackets=True)
        form = "{section}.model is {name!r}, which {file} does not pin{guess}; it pins {pins}"
        raise ConfigError(form, section, name, PINS.name, guess, ", ".join(pins))
    # The commit of a pin is none of another repository.
    if target.setdefault(key, pins[name].repo) == pins[name].repo:
        target.setdefault("revision", pins[name].revision)


def _fill_in_folders(section: str, values: dict[str, Any], engine: type[Engine], home: Path, corpus: Any) -> None:
    """Fill in the folders of an engine that keeps answers or reads the corpus."""
    if "reuse_folder" in engine.model_fields:
        values.setdefault("reuse_folder", str(home / "reuse" / section))
        if isinstance(folder := values["reuse_folder"], str) and folder:
            values["reuse_folder"] = _resolve(f"{section}.reuse_folder", folder, placed)
    if "index" in engine.model_fields and isinstance(corpus, dict):
        values.setdefault("index", corpus.get("url") or "")
    if "home" in engine.model_fields and isinstance(folder := values.setdefault("home", str(home)), str):
        values["home"] = _resolve(f"{section}.home", folder, placed)


def _resolve(where: str, place: str, resolve: Callable[[str], str | Path]) -> str:
    try:
        return str(resolve(place))
    except ValueError as error:
        raise ConfigError("{where}: {reason}", where, error) from None


_PROJECT = "kopub"

EntryPoints = dict[str, list[EntryPoint]]


def find_engines() -> dict[str, EntryPoints]:
    """Return the entry points of each section by name.

    Imports no engine.
    """
    installed = entry_points()
    points: dict[str, EntryPoints] = {}
    for section in PROTOCOLS:
        by_name: EntryPoints = defaultdict(list)
        for point in installed.select(group=f"{_PROJECT}.{section}"):
            by_name[point.name].append(point)
        points[section] = dict(sorted(by_name.items()))
    return points


def load_engine(section: str, name: object, installed: Mapping[str, EntryPoints]) -> type[Engine]:
    """Return the engine called `name`.

    Imports only the module of this engine. Raises `ConfigError`.
    """
    points = installed[section].get(name) if isinstance(name, str) else None
    if points is None:
        if not any(_package(point) == _PROJECT for same in installed[section].values() for point in same):
            raise ConfigError("the engines of KoPub are not installed: run `pip install -e .` in its checkout again")
        engines = ", ".join(installed[section])
        if name is None:
            raise ConfigError("{section} names no engine: set {section}.engine to one of {engines}", section, engines)
        guess = did_you_mean(name, installed[section], in_brackets=True) if isinstance(name, str) else ""
        form = "{section}.engine is {name!r}{guess}; choose one of {engines}"
        raise ConfigError(form, section, name, guess, engines)
    if len(points) > 1:
        packages = ", ".join(sorted(_package(point) for point in points))
        form = "{section}.engine {name!r} is in two packages, {packages}: uninstall one of them"
        raise ConfigError(form, section, name, packages)
    (point,) = points
    form = "{section}.engine {name!r} of {package} ({module}) cannot be used"
    where = phrase(form, section, name, _package(point), point.value)
    try:
        engine = point.load()
    except Exception as error:  # a third party's module may raise anything
        raise ConfigError("{finding}: {kind}: {error}", where, type(error).__name__, first_line(error)) from error
    if problem := _problem_with(engine, PROTOCOLS[section]):
        raise ConfigError("{finding}: {reason}", where, problem)
    return engine


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "a package without a name"


def _problem_with(engine: object, protocol: type[Engine]) -> str:
    if not (isinstance(engine, type) and issubclass(engine, protocol)):
        return phrase("it is no subclass of {name}", f"{protocol.__module__}.{protocol.__qualname__}")
    if inspect.isabstract(engine):
        return phrase("it does not define {names}", ", ".join(sorted(engine.__abstractmethods__)))
    if not isinstance(getattr(engine, "code_version", None), CodeVersion):
        return "it declares no code_version"
    if reserved := sorted(engine.model_fields.keys() & _CHOICES):
        return phrase("it has a field {name!r}, which is a key of every profile section", reserved[0])
    return ""
