"""The task of each label, which a profile may change. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from resources.errors import ConfigError
from resources.layout.regions import LABELS, Task

_TABLES = frozenset({"table"})
_FORMULAS = frozenset({"display_formula", "inline_formula"})
PICTURES = frozenset({"chart", "image"})
_REPEATED = frozenset({"header", "header_image", "footer", "footer_image", "number", "reference"})
"""Not read unless a profile says so: running heads repeat on every page, a `reference` list holds its entries (one
that holds none is read)."""


def _default_task(label: str) -> Task:
    if label in _TABLES:
        return Task.TABLE
    if label in _FORMULAS:
        return Task.FORMULA
    if label in PICTURES:
        return Task.SKIP
    return Task.ABANDON if label in _REPEATED else Task.TEXT


DEFAULT_TASKS: Mapping[str, Task] = MappingProxyType({label: _default_task(label) for label in LABELS})


def tasks_by_label(changes: Mapping[str, str]) -> dict[str, Task]:
    """The default task of every label with a profile's changes. Raises `ConfigError` for an unknown name."""
    check_labels("layout.tasks", changes)
    unknown = sorted(set(changes.values()) - set(Task))
    if unknown:
        raise ConfigError(f"layout.tasks: {', '.join(unknown)} is no task; use one of {', '.join(Task)}")
    return {**DEFAULT_TASKS, **{label: Task(task) for label, task in changes.items()}}


def check_labels(field: str, named: Mapping[str, object]) -> None:
    """Raise `ConfigError` if a field of a profile names a label that PP-DocLayoutV3 does not have."""
    unknown = sorted(set(named) - set(LABELS))
    if unknown:
        raise ConfigError(f"{field}: {', '.join(unknown)} is no label; use one of {', '.join(LABELS)}")
