"""Engines by section and name, as the entry points of installed packages list them."""

import inspect
from collections import defaultdict
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from resources.code_version import CodeVersion
from resources.config.wording import did_you_mean
from resources.embedding.base import Embedder
from resources.engine import Engine
from resources.errors import ConfigError
from resources.figures.base import FigureNoter
from resources.layout.base import LayoutDetector
from resources.printable import first_line
from resources.recognition.base import Recognizer

PROTOCOLS: Mapping[str, type[Engine]] = {
    "layout": LayoutDetector,
    "recognition": Recognizer,
    "embedding": Embedder,
    "notes": FigureNoter,
}
"""What an engine of each section must be. The entry point group of a section is `kopub.<section>`."""

LEFT_OUT: Mapping[str, str] = {"notes": "none"}
"""The engine of a section that a profile leaves out; the other sections must be there."""

_PROJECT = "kopub"
_RESERVED = frozenset({"engine", "model"})
"""Keys of every section that choose the engine and its weights."""

EntryPoints = dict[str, list[EntryPoint]]


def find_engines() -> dict[str, EntryPoints]:
    """Return the entry points of each section by name. Imports no engine."""
    installed = entry_points()
    found: dict[str, EntryPoints] = {}
    for section in PROTOCOLS:
        by_name: EntryPoints = defaultdict(list)
        for point in installed.select(group=f"{_PROJECT}.{section}"):
            by_name[point.name].append(point)
        found[section] = dict(sorted(by_name.items()))
    return found


def load_engine(section: str, name: object, found: Mapping[str, EntryPoints]) -> type[Engine]:
    """Return the engine of that name. Imports its module, and no other engine's. Raises `ConfigError`."""
    points = found[section].get(name) if isinstance(name, str) else None
    if points is None:
        raise ConfigError(_no_such_engine(section, name, found[section]))
    if len(points) > 1:
        packages = " and ".join(sorted(_package(point) for point in points))
        raise ConfigError(f"{section}.engine {name!r} is in two packages, {packages}: uninstall one of them")
    (point,) = points
    where = f"{section}.engine {name!r} of {_package(point)} ({point.value}) cannot be used"
    try:
        engine = point.load()
    except Exception as error:  # the module of somebody else may raise anything
        raise ConfigError(f"{where}: {type(error).__name__}: {first_line(error)}") from error
    if problem := _problem_with(engine, PROTOCOLS[section]):
        raise ConfigError(f"{where}: {problem}")
    return engine


def _no_such_engine(section: str, name: object, found: EntryPoints) -> str:
    if not any(_package(point) == _PROJECT for points in found.values() for point in points):
        return "the engines of KoPub are not installed: run `pip install -e .` in its checkout again"
    if name is None:
        return f"{section} names no engine: set {section}.engine to one of {', '.join(found)}"
    guess = did_you_mean(name, found) if isinstance(name, str) else ""
    return f"{section}.engine is {name!r}{guess}; choose one of {', '.join(found)}"


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "a package without a name"


def _problem_with(engine: object, protocol: type[Engine]) -> str:
    if not (isinstance(engine, type) and issubclass(engine, protocol)):
        return f"it is no subclass of {protocol.__module__}.{protocol.__qualname__}"
    if inspect.isabstract(engine):
        return f"it does not define {', '.join(sorted(engine.__abstractmethods__))}"
    if not isinstance(getattr(engine, "code_version", None), CodeVersion):
        return "it declares no code_version"
    if reserved := sorted(_RESERVED & engine.model_fields.keys()):
        return f"it has a field {reserved[0]!r}, which is a key of every profile section"
    return ""
