"""The one answer to "is it stale?": what has changed for each table."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from kopub.errors import DamagedTable, shortened
from kopub.states import phrase
from kopub.store.rows import is_setting
from kopub.store.table_source import SOURCE, Entry
from kopub.tables.asset import ShardAsset
from kopub.tables.provenance import newer_code, recipe_of

_VALUE_WIDTH = 60
"""Most characters shown of an old or new value."""


class Standing(StrEnum):
    """The state of a table, compared with what would be made now."""

    CURRENT = "current"
    STALE = "stale"
    """Its own recipe, its source or a parent's rows changed."""
    MAYBE_STALE = "perhaps"
    """Something upstream is stale; the table is made again only if that turns out different."""
    MISSING = "missing"
    BLOCKED = "waiting"
    """It has been made, but something upstream is missing or damaged."""
    NEWER = "newer"
    """A newer release of KoPub made it, and this one leaves it as it is."""

    @property
    def stands(self) -> bool:
        """Return whether a run leaves the table as it is."""
        return self in (Standing.CURRENT, Standing.NEWER)


Tables = Mapping[str, Mapping[str, Entry]]
"""The footers of all tables by asset and shard."""
Standings = dict[str, dict[str, Standing]]
"""The standing by asset, in the order in which assets are made, and by shard."""


def find_standings(
    assets: Mapping[str, ShardAsset],
    tables: Tables,
    shards: Sequence[str],
    allow_downgrade: bool,
    damage: set[str] | None = None,
) -> Standings:
    """Return the standing of every table, by asset and shard.

    `assets` lists each one after its parents. With `allow_downgrade`, a table of newer code is stale like any other.
    Damaged corrections are added to `damage`, and the tables that need them wait. Raises `DamagedTable` without it.
    """
    standings: Standings = {}
    for name, asset in assets.items():
        standings[name] = {}
        for shard in shards:
            above: set[Standing] = set()
            for parent in asset.reads:
                of_parent = standings[parent.table.name]
                above.add(of_parent[shard])
                # A missing table of another shard does not prevent a table from being made.
                others = {of_parent[other] for other in asset.other_shards(shard)}
                above |= others & {Standing.STALE, Standing.MAYBE_STALE}
            try:
                standing = find_standing(asset, tables, shard, above)
            except DamagedTable as error:
                if damage is None:
                    raise
                damage.add(str(error))
                standing = Standing.BLOCKED
            if standing is Standing.STALE and not allow_downgrade:
                newer = newer_code(tables[name][shard].made_with, asset.made_with)
                standing = Standing.NEWER if newer else standing
            standings[name][shard] = standing
    return standings


def find_standing(asset: ShardAsset, tables: Tables, shard: str, above: Collection[Standing] = ()) -> Standing:
    """Return the standing of one table; `above` holds its parents'. Raises `KopubError`."""
    entry = tables[asset.name].get(shard)
    if entry is None:
        return Standing.MISSING
    inputs = find_inputs(asset, tables, shard)
    contents = {name: content for name, content in inputs.items() if content is not None}
    if len(contents) < len(inputs) or {Standing.MISSING, Standing.BLOCKED}.intersection(above):
        return Standing.BLOCKED
    if entry.recipe != recipe_of(asset.recipe_hash, contents):
        return Standing.STALE
    return Standing.MAYBE_STALE if {Standing.STALE, Standing.MAYBE_STALE}.intersection(above) else Standing.CURRENT


def find_inputs(asset: ShardAsset, tables: Tables, shard: str) -> dict[str, str | None]:
    """Return what a table would be made from, by name; None for a missing parent."""
    inputs: dict[str, str | None] = {**asset.extra_inputs(shard)}
    for parent in asset.reads:
        entry = tables[parent.table.name].get(shard)
        inputs[parent.table.name] = entry and entry.content
    return inputs


def find_reasons(entry: Entry, asset: ShardAsset, inputs: Mapping[str, str | None]) -> list[str]:
    """Return why a table is stale: a line per change of its recipe or `inputs`."""
    changes = differences(entry.made_with, asset.made_with, asset.name, asset.engine_section or asset.name)
    versions = asset.versions
    lines = []
    for change in changes:
        why = versions[change.name].since(change.old) if change.name in versions else ""
        lines.append(phrase("{change} ({changelog})", str(change), why) if why else str(change))
    lines += settings_changed(entry.made_from, inputs)
    for name, content in inputs.items():
        if not is_setting(name) and entry.made_from.get(name) != content:
            lines.append("the source changed" if name == SOURCE else phrase("{name} changed", name))
    return lines or ["its recipe is not known"]


def settings_changed(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    """Return a line for each changed setting outside the engine's section."""
    changes: list[str] = []
    for name in sorted(filter(is_setting, {*before, *now})):
        if before.get(name) != now.get(name):
            changes.append(str(RecipeChange(name, before.get(name), now.get(name))))
    return changes


@dataclass(frozen=True, slots=True)
class RecipeChange:
    """A difference between two recipes: name in a profile, old and new value."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return phrase("{name} {old} -> {new}", self.name, _as_text(self.old), _as_text(self.new))


@cache
def differences(before: str, now: str, asset: str, section: str) -> tuple[RecipeChange, ...]:
    """Return the differences between two own recipes of `asset`, with the engine of `section`."""
    if not before or before == now:
        return ()
    values: list[dict[str, Any]] = []
    for recipe in (before, now):
        own = json.loads(recipe)
        leaves: dict[str, Any] = {f"{asset}.version": own["version"]}
        for engine in own["engines"]:
            fields = {**engine, **engine["parameters"]}
            fields.pop("parameters", None)
            leaves |= dict(_leaves(section, fields))
        values.append(leaves | own.get("settings", {}))
    old, new = values
    engine = f"{section}.engine"
    names = [engine] if old.get(engine) != new.get(engine) else sorted({*old, *new})
    return tuple(RecipeChange(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner)
    else:
        yield path, value


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return '""' if text == "" else shortened(text, _VALUE_WIDTH)
