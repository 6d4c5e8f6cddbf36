"""Which tables would come out otherwise now, why, and what is to be made again. Pure."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from kopub_assets.materialize.metadata.provenance import newer_code, recipe_of
from resources.code_version import CodeVersion
from resources.store.footer_cache import Entry
from resources.store.page_rows import is_setting
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
    NEWER = "newer"
    """A newer release of KoPub made it, and this one leaves it as it is."""

    @property
    def stands(self) -> bool:
        """Whether a run leaves the table as it is."""
        return self in (Standing.CURRENT, Standing.NEWER)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an asset's tables would be made with now: its parents, its own recipe, and what that is of, as JSON.

    `section` of a profile holds its engine; `versions` are those of the code behind its rows, by their names in a plan.
    """

    parents: tuple[str, ...]
    own: str
    made_with: str
    section: str
    versions: Mapping[str, CodeVersion]


Standings = dict[str, dict[str, Standing]]
"""By asset, in the order they are made, and shard."""
Tables = Mapping[str, Mapping[str, Entry]]
Beside = Callable[[str, str], Mapping[str, str]]
"""What an asset's table of a shard is made from besides its parents: of the corpus itself, and of the settings."""


def made_from_now(tables: Tables, wanted: Wanted, asset: str, shard: str, beside: Beside) -> dict[str, str | None]:
    """What a table would be made from; None for a parent that is missing."""
    return {**beside(asset, shard), **{parent: _content(tables, parent, shard) for parent in wanted.parents}}


def standings(
    tables: Tables, wanted: Mapping[str, Wanted], shards: Sequence[str], beside: Beside, allow_downgrade: bool
) -> Standings:
    """Of every asset and shard; with `allow_downgrade` a table of newer code is stale as any other."""
    found: Standings = {}
    for asset, of_asset in wanted.items():
        found[asset] = {}
        for shard in shards:
            above = {found[parent][shard] for parent in of_asset.parents}
            standing = _standing(tables, of_asset, asset, shard, beside, above)
            if standing is Standing.STALE and not allow_downgrade:
                newer = newer_code(tables[asset][shard].made_with, of_asset.made_with)
                standing = Standing.NEWER if newer else standing
            found[asset][shard] = standing
    return found


def _standing(tables: Tables, wanted: Wanted, asset: str, shard: str, beside: Beside, above: set[Standing]) -> Standing:
    entry = tables[asset].get(shard)
    if entry is None:
        return Standing.MISSING
    if above & {Standing.MISSING, Standing.WAITING}:
        return Standing.WAITING
    now = made_from_now(tables, wanted, asset, shard, beside)
    if entry.recipe != recipe_of(wanted.own, {name: content for name, content in now.items() if content is not None}):
        return Standing.STALE
    return Standing.PERHAPS if above & {Standing.STALE, Standing.PERHAPS} else Standing.CURRENT


def _content(tables: Tables, asset: str, shard: str) -> str | None:
    entry = tables[asset].get(shard)
    return entry.content if entry else None


def own_changed(entry: Entry, wanted: Wanted) -> bool:
    """Whether every row is made again, because its own recipe is another."""
    return entry.made_with != wanted.made_with


def reasons(entry: Entry, wanted: Wanted, asset: str, made_from: Mapping[str, str | None]) -> list[str]:
    """Why a table is stale, a line each: what of its own recipe changed, and what of that which it was made from."""
    changes = differences(entry.made_with, wanted.made_with, asset, wanted.section)
    lines = [_with_reason(change, wanted.versions) for change in changes]
    lines += settings_changed(entry.made_from, made_from)
    lines += [
        "the source changed" if name == SOURCE else f"{name} changed"
        for name, content in made_from.items()
        if not is_setting(name) and entry.made_from.get(name) != content
    ]
    return lines or ["its recipe is not known"]


def settings_changed(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    """A line for each setting besides those of an engine that a table was, or would be, made with."""
    names = sorted(name for name in {*before, *now} if is_setting(name) and before.get(name) != now.get(name))
    return [str(Change(name, before.get(name), now.get(name))) for name in names]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that differs between two recipes, by its name in a profile, with its old and new value."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.old)} -> {_shown(self.new)}"


@cache
def differences(before: str, now: str, asset: str, section: str) -> tuple[Change, ...]:
    """Everything that differs between two own recipes of `asset`, whose engine is the one of `section`."""
    if not before or before == now:
        return ()
    old, new = (_values(json.loads(recipe), asset, section) for recipe in (before, now))
    engine = f"{section}.engine"
    names = [engine] if old.get(engine) != new.get(engine) else sorted({*old, *new})
    return tuple(Change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def _with_reason(change: Change, versions: Mapping[str, CodeVersion]) -> str:
    """A change as a line; that of a version with the reasons for its steps."""
    why = versions[change.name].since(change.old) if change.name in versions else ""
    return f"{change} ({why})" if why else str(change)


def _values(own: Mapping[str, Any], asset: str, section: str) -> dict[str, Any]:
    """The leaves of an own recipe by name: `recognition.prompts.table`, `ocr_results.version`."""
    leaves: dict[str, Any] = {f"{asset}.version": own["version"]}
    for engine in own["engines"]:
        shown = {**engine, **engine["parameters"]}
        shown.pop("parameters", None)
        leaves |= dict(_leaves(section, shown))
    return leaves | own.get("settings", {})


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner)
    else:
        yield path, value


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text == "":
        return '""'
    return text if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 1]}…"


def tasks_asked(lines: Sequence[str], section: str) -> set[str] | None:
    """The tasks whose regions are read again for these reasons; None for all. Answers to other prompts are kept."""
    prompt = f"{section}.prompts."
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
class Cost:
    """What a row of an asset takes. `measured` says that its engine made rows here, else it is of another machine."""

    seconds: float
    gpu_seconds: float
    measured: bool


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
    seconds: float
    seconds_at_most: float
    gpu_seconds: float
    gpu_seconds_at_most: float
    measured: bool
    """Whether the seconds are of rows that its engine made here; true where there is nothing to make."""
    why: Mapping[str, int]


def summed(
    asset: str,
    of_shards: Mapping[str, Standing],
    redo: Mapping[str, Redo],
    perhaps: Mapping[str, Redo],
    cost: Cost,
) -> AssetPlan:
    """The plan of an asset from its shards, and what a row of it takes."""
    every = [*redo.values(), *perhaps.values()]
    work, most = (sum(each.pages * each.share for each in some) for some in (redo.values(), every))
    return AssetPlan(
        asset=asset,
        shards={standing: [s for s, found in of_shards.items() if found is standing] for standing in Standing},
        pages=sum(each.pages for each in redo.values()),
        pages_at_most=sum(each.pages for each in every),
        regions=sum(each.regions for each in redo.values()),
        regions_at_most=sum(each.regions for each in every),
        exact=all(each.exact for each in redo.values()),
        seconds=work * cost.seconds,
        seconds_at_most=most * cost.seconds,
        gpu_seconds=work * cost.gpu_seconds,
        gpu_seconds_at_most=most * cost.gpu_seconds,
        measured=cost.measured or not most,
        why=dict(Counter(line for each in redo.values() for line in each.why)),
    )
