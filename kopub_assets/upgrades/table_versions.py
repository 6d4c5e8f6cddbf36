"""Which versions of a shard's tables belong together: each was made from the contents of the others."""

import json
from collections.abc import Iterator, Mapping

from kopub_assets.graph import GRAPH
from kopub_assets.hf_release import HfRelease
from kopub_assets.materialize.metadata.provenance import content_of
from resources.errors import StoreError
from resources.store.shard_store import ShardStore

Versions = dict[str, str | None]
"""A version of each table of a shard: of what is kept by its recipe, None for the table now."""

CURRENT, PREVIOUS = "current", "previous"
COMPARED = tuple(asset for asset in GRAPH.names if asset != HfRelease.table.name)
"""A release is files, whose own history is elsewhere."""


def ancestry(store: ShardStore, asset: str, shard: str, version: str | None = None) -> Versions:
    """A table and all that it was made from, back to the source; what is not kept any more is left out."""
    found: Versions = {asset: version}
    for parent, content in contents_of_parents(store, asset, shard, version).items():
        for kept in _versions(store, parent, shard):
            if content_of(store, parent, shard, kept) == content:
                # What a table says of its parent goes before what another parent says of the same one.
                found = {**ancestry(store, parent, shard, kept), **found, parent: kept}
                break
    return {name: found[name] for name in GRAPH.names if name in found}


def replaced_parents(store: ShardStore, asset: str, shard: str, version: str | None = None) -> list[str]:
    """The parents that hold something else now than what the table was made from."""
    return [
        parent
        for parent, content in contents_of_parents(store, asset, shard, version).items()
        if not store.has(parent, shard) or content_of(store, parent, shard) != content
    ]


def edition(store: ShardStore, shard: str, name: str) -> Versions:
    """The tables of a shard as they were: `current`, `previous`, or those that belong to a table's recipe.

    `previous` is every table as it was before it was last replaced, and what that was made from. A
    recipe may be cut short. Raises `StoreError` when there is no such version, or more than one.
    """
    made = [asset for asset in COMPARED if store.has(asset, shard)]
    if not made:
        raise StoreError(f"{shard} has not been made yet: materialize it first")
    if name == CURRENT:
        return dict.fromkeys(made)
    if name == PREVIOUS:
        return _previous(store, shard, made)
    return _belonging(store, shard, made, *_named(store, shard, made, name))


def _previous(store: ShardStore, shard: str, made: list[str]) -> Versions:
    found: Versions = {}
    for asset in reversed(made):
        if asset not in found:
            kept = store.versions(asset, shard)
            if replaced_parents(store, asset, shard):
                # An upgrade is under way: this table is still the one from before it.
                found = {**ancestry(store, asset, shard), **found}
            elif kept:
                found = {**ancestry(store, asset, shard, kept[0].recipe), **found}
            else:
                found[asset] = None
    if not any(found.values()):
        raise StoreError(f"{shard} has no older version: nothing was replaced, or store.keep_versions is 0")
    return found


def _named(store: ShardStore, shard: str, made: list[str], name: str) -> tuple[str, str | None]:
    """The table whose recipe begins with `name`."""
    known = {
        (asset, version): version or store.metadata(asset, shard)["recipe"]
        for asset in made
        for version in _versions(store, asset, shard)
    }
    found = [table for table, recipe in known.items() if recipe.startswith(name)]
    if len(found) != 1 or not name:
        kept = ", ".join(f"{version} ({asset})" for asset, version in known if version) or "none"
        raise StoreError(
            f"{shard} has {len(found) or 'no'} version{'s' if len(found) > 1 else ''} {name!r}: "
            f"say {CURRENT}, {PREVIOUS} or one that is kept: {kept}"
        )
    return found[0]


def _belonging(store: ShardStore, shard: str, made: list[str], asset: str, version: str | None) -> Versions:
    """A table, what it was made from, and what was made from those; other tables as they are now."""
    found = ancestry(store, asset, shard, version)
    contents = {name: content_of(store, name, shard, kept) for name, kept in found.items()}
    for name in made:
        if name not in found:
            for kept in _versions(store, name, shard):
                of = contents_of_parents(store, name, shard, kept)
                if all(of[parent] == contents[parent] for parent in of if parent in contents):
                    found[name] = kept
                    contents[name] = content_of(store, name, shard, kept)
                    break
    return found


def _versions(store: ShardStore, asset: str, shard: str) -> Iterator[str | None]:
    """The table now, then what is kept, newest first."""
    if store.has(asset, shard):
        yield None
        yield from (version.recipe for version in store.versions(asset, shard))


def contents_of_parents(store: ShardStore, asset: str, shard: str, version: str | None) -> Mapping[str, str]:
    """The content of each parent that a table was made from."""
    made_from = json.loads(store.metadata(asset, shard, version)["made_from"])
    return {parent: made_from[parent] for parent in GRAPH.parents(asset) if parent in made_from}
