"""Which tables would come out otherwise now, why, and what is to be made again. Pure."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from kopub_assets.recipes import ENGINE, PARENTS, recipe
from resources.store.footer_cache import Entry
from resources.store.table_source import SOURCE

_VALUE_WIDTH = 60
"""Characters of an old or new value that are shown."""


class Standing(StrEnum):
    """How a table stands to what would be made now."""

    CURRENT = "current"
    STALE = "stale"
    """Its own recipe, its source or a parent's rows changed."""
    PERHAPS = "perhaps"
    """Something above it is stale; it is made again only where that comes out otherwise."""
    MISSING = "missing"
    WAITING = "waiting"
    """It has been made, but something above it is missing."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An asset's own recipe as it is now, and what it is the fingerprint of, as JSON."""

    own: str
    made_with: str


Standings = dict[str, dict[str, Standing]]
"""By asset, in the order they are made, and shard."""
Tables = Mapping[str, Mapping[str, Entry]]
Source = Callable[[str, str], str | None]
"""Fingerprint of what an asset reads of the corpus itself for a shard, if it does."""


def made_from_now(tables: Tables, asset: str, shard: str, source: Source) -> dict[str, str | None]:
    """What a table would be made from; None for a parent that is missing."""
    parents = {parent: _held(tables, parent, shard) for parent in PARENTS[asset]}
    read = source(asset, shard)
    return parents if read is None else {SOURCE: read, **parents}


def standings(tables: Tables, wanted: Mapping[str, Wanted], shards: Sequence[str], source: Source) -> Standings:
    """Of every asset and shard."""
    found: Standings = {}
    for asset, parents in PARENTS.items():
        found[asset] = {}
        for shard in shards:
            above = {found[parent][shard] for parent in parents}
            found[asset][shard] = _standing(tables, wanted[asset], asset, shard, source, above)
    return found


def _standing(tables: Tables, wanted: Wanted, asset: str, shard: str, source: Source, above: set[Standing]) -> Standing:
    entry = tables[asset].get(shard)
    if entry is None:
        return Standing.MISSING
    if above & {Standing.MISSING, Standing.WAITING}:
        return Standing.WAITING
    made_from = {name: held for name, held in made_from_now(tables, asset, shard, source).items() if held is not None}
    if entry.recipe != recipe(wanted.own, made_from):
        return Standing.STALE
    return Standing.PERHAPS if above & {Standing.STALE, Standing.PERHAPS} else Standing.CURRENT


def _held(tables: Tables, asset: str, shard: str) -> str | None:
    entry = tables[asset].get(shard)
    return entry.held if entry else None


def own_changed(entry: Entry, wanted: Wanted) -> bool:
    """Whether every row is made again, because its own recipe is another."""
    return entry.made_with != wanted.made_with


def reasons(entry: Entry, wanted: Wanted, asset: str, made_from: Mapping[str, str | None]) -> list[str]:
    """Why a table is stale, a line each: what of its own recipe changed, and what of that which it was made from."""
    lines = list(differences(entry.made_with, wanted.made_with, ENGINE.get(asset, asset)))
    before = entry.made_from
    if before:
        lines += [
            "the source changed" if name == SOURCE else f"{name} changed"
            for name, held in made_from.items()
            if before.get(name) != held
        ]
    return lines or ["it was made before recipes were recorded"]


@cache
def differences(before: str | None, now: str, section: str) -> tuple[str, ...]:
    """Old and new value of everything that differs between two own recipes, named as a profile names it."""
    if before is None or before == now:
        return ()
    old, new = _values(json.loads(before), section), _values(json.loads(now), section)
    engine = f"{section}.engine"
    if old.get(engine) != new.get(engine):
        return (_change(engine, old.get(engine), new.get(engine)),)
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return tuple(name if name.startswith("code ") else _change(name, old.get(name), new.get(name)) for name in changed)


def _values(own: Mapping[str, Any], section: str) -> dict[str, Any]:
    """The leaves of an own recipe by name: `recognition.prompts.table`, `code resources.texts.markdown`."""
    leaves: dict[str, Any] = {f"code {module}": value for module, value in own.get("modules", {}).items()}
    for engine in own["engines"]:
        shown = {**engine, **engine["parameters"]}
        for name in ("parameters", "code"):
            shown.pop(name, None)
        leaves |= dict(_leaves(section, shown))
    return leaves


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner)
    else:
        yield path, value


def _change(name: str, old: Any, new: Any) -> str:
    return f"{name} {_shown(old)} -> {_shown(new)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text == "":
        return '""'
    return text if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 1]}…"


def tasks_asked(lines: Sequence[str]) -> set[str] | None:
    """The tasks whose regions are read again for these reasons; None for all. Answers to other prompts are kept."""
    prompt = f"{ENGINE['ocr_results']}.prompts."
    if lines and all(line.startswith(prompt) for line in lines):
        return {line.removeprefix(prompt).partition(" ")[0] for line in lines}
    return None


@dataclass(frozen=True, slots=True)
class Redo:
    """What of one shard is to be made again. `exact` when the pages were counted, not only bounded from above."""

    pages: int
    regions: int
    share: float
    exact: bool
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AssetPlan:
    """The sum of an asset. What `perhaps` adds to pages, regions and seconds is in the `at_most` figures alone."""

    asset: str
    shards: Mapping[Standing, Sequence[str]]
    pages: int
    pages_at_most: int
    regions: int
    regions_at_most: int
    exact: bool
    seconds: float | None
    seconds_at_most: float | None
    gpu_seconds: float | None
    gpu_seconds_at_most: float | None
    why: Mapping[str, int]


def summed(
    asset: str,
    of_shards: Mapping[str, Standing],
    redo: Mapping[str, Redo],
    perhaps: Mapping[str, Redo],
    rate: tuple[float, float] | None,
) -> AssetPlan:
    """The plan of an asset from its shards; `rate` is (seconds, GPU seconds) of a row, None if none was recorded."""
    every = [*redo.values(), *perhaps.values()]
    work, most = (sum(each.pages * each.share for each in some) for some in (redo.values(), every))
    if not every:
        rate = (0.0, 0.0)
    seconds, gpu_seconds = rate or (0.0, 0.0)
    return AssetPlan(
        asset=asset,
        shards={standing: [s for s, found in of_shards.items() if found is standing] for standing in Standing},
        pages=sum(each.pages for each in redo.values()),
        pages_at_most=sum(each.pages for each in every),
        regions=sum(each.regions for each in redo.values()),
        regions_at_most=sum(each.regions for each in every),
        exact=all(each.exact for each in redo.values()),
        seconds=work * seconds if rate else None,
        seconds_at_most=most * seconds if rate else None,
        gpu_seconds=work * gpu_seconds if rate else None,
        gpu_seconds_at_most=most * gpu_seconds if rate else None,
        why=dict(Counter(line for each in redo.values() for line in each.why)),
    )
