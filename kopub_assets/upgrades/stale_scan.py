"""The store held against the settings: the standing of every table, and what it would take to bring it up to date."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from kopub_assets.graph import GRAPH, Graph
from kopub_assets.materialize.asset import ShardAsset
from kopub_assets.materialize.metadata.provenance import recipe_of
from kopub_assets.materialize.row_table import RowTable
from kopub_assets.upgrades.plan import (
    AssetPlan,
    Cost,
    Redo,
    Standing,
    Standings,
    Wanted,
    made_from_now,
    own_changed,
    reasons,
    standings,
    summed,
    tasks_asked,
)
from resources.layout.regions import READ_TASKS
from resources.store.footer_cache import Entry, FooterCache
from resources.store.records import ledger
from resources.store.shard_store import ShardStore
from resources.store.table_source import Source
from resources.store.table_store import JOURNAL
from resources.store.versions import FOLDER as VERSIONS

_COUNTED = 32
"""Stale shards of an asset whose rows are counted: some 20 ms each. Of more the plan says at most how many."""
_NOTHING = Cost(0.0, 0.0, True)


@dataclass(frozen=True)
class Survey:
    """What there is, what there should be, and how the one stands to the other."""

    store: ShardStore
    assets: Mapping[str, ShardAsset]
    tables: Mapping[str, Mapping[str, Entry]]
    wanted: Mapping[str, Wanted]
    standings: Standings
    off: Mapping[str, str]
    """The assets that these settings want nothing of, with the reason."""

    @property
    def outdated(self) -> dict[str, set[str]]:
        """Shards to be made again, by asset: the stale ones and what depends on them. Never one that was not made."""
        return {
            asset: {shard for shard, found in shards.items() if found in (Standing.STALE, Standing.PERHAPS)}
            for asset, shards in self.standings.items()
        }

    def plans(self) -> list[AssetPlan]:
        """For every asset, in the order they are made. Raises `StoreError`."""
        costs = self.costs([asset for asset, shards in self.outdated.items() if shards])
        plans = []
        for asset, shards in self.standings.items():
            stale = [shard for shard, how in shards.items() if how is Standing.STALE]
            redo = {shard: self._redo(asset, shard, len(stale) <= _COUNTED) for shard in stale}
            perhaps = {shard: self._all(asset, shard) for shard, how in shards.items() if how is Standing.PERHAPS}
            plans.append(summed(asset, shards, redo, perhaps, costs.get(asset, _NOTHING)))
        return plans

    def costs(self, assets: Iterable[str]) -> dict[str, Cost]:
        """What a row of each of the `assets` takes: as it was here lately, where the same engine made it.

        What is current throughout is not asked for: nobody waits for its rows.
        """
        asked = [asset for asset in assets if self._is_to_make(asset) and not self._changes_engine(asset)]
        measured = ledger.rates(self.store, asked)
        found = {}
        for name in assets:
            if (rate := measured.get(name)) is not None:
                found[name] = Cost(rate.seconds_each, rate.gpu_seconds_each, True)
            else:
                asset = self.assets[name]
                manifest = asset.corpus.manifest
                typical = sum(
                    asset.typical_seconds(shard.bytes / shard.rows / 1e6) * shard.rows for shard in manifest.shards
                )
                seconds = typical / manifest.rows
                found[name] = Cost(seconds, seconds * asset.gpus, False)
        return found

    def _is_to_make(self, asset: str) -> bool:
        return any(not how.stands for how in self.standings[asset].values())

    def _changes_engine(self, asset: str) -> bool:
        """Whether its tables were made by another engine: what their rows took says nothing of the one wanted now."""
        made = next(iter(self.tables[asset].values()), None)
        return (
            made is not None
            and bool(made.made_with)
            and _engines(made.made_with) != _engines(self.assets[asset].made_with)
        )

    def _redo(self, asset: str, shard: str, count: bool) -> Redo:
        entry, wanted = self.tables[asset][shard], self.wanted[asset]
        made_from = made_from_now(self.tables, wanted, asset, shard, self._beside)
        why = tuple(reasons(entry, wanted, asset, made_from))
        known = {name: content for name, content in made_from.items() if content is not None}
        if (asset, shard, recipe_of(wanted.own, known)) in self._kept:
            return Redo(0, 0, 0.0, True, (*why, "a replaced table of the same recipe is kept"))
        # Every row holds its own recipe; where that is as it was, or somebody has begun, the rows are looked at.
        pages, exact = self._pages(asset, shard), own_changed(entry, wanted) and (asset, shard) not in self._begun
        # The rows of a shard can be listed only where its parents are current.
        first = all(self.standings[parent][shard] is Standing.CURRENT for parent in wanted.parents)
        if count and first and not exact:
            counted = _rows_to_make(self.assets[asset], shard)
            pages, exact = (pages, False) if counted is None else (counted, True)
        regions, share = self._regions(asset, shard, tasks_asked(why, wanted.section))
        share_of_pages = pages / entry.rows if entry.rows else 1.0
        return Redo(pages, round(regions * share_of_pages), share, exact, why)

    def _all(self, asset: str, shard: str) -> Redo:
        return Redo(self._pages(asset, shard), self._regions(asset, shard, None)[0], 1.0, False, ())

    def _pages(self, asset: str, shard: str) -> int:
        return self.assets[asset].expected_rows(shard, self.tables[asset][shard].rows)

    def _regions(self, asset: str, shard: str, tasks: set[str] | None) -> tuple[int, float]:
        """Regions that are read again, and their share of those that would be for another model."""
        layout = self.assets[asset].reads_regions_of
        if layout is None:
            return 0, 1.0
        counts = self.tables[layout.table.name][shard].regions
        reread = getattr(self.assets[asset].engine, "reread", ())
        to_read = {
            task: counts.get(task, 0) - (0 if task in reread else counts.get(f"known_{task}", 0)) for task in READ_TASKS
        }
        every = sum(to_read.values())
        asked = sum(count for task, count in to_read.items() if tasks is None or task in tasks)
        return asked, asked / every if every else 1.0

    @cached_property
    def _begun(self) -> set[tuple[str, str]]:
        """(asset, shard) of which a run that did not come to its end has finished rows."""
        names = (name.split("/") for name in self.store.parts(JOURNAL).names())
        return {(asset, shard) for asset, shard, _ in names}

    @cached_property
    def _kept(self) -> set[tuple[str, str, str]]:
        """(asset, shard, recipe) of the replaced tables that the store still has."""
        names = (PurePosixPath(name) for name in self.store.parts(VERSIONS).names())
        return {(name.parts[0], name.parent.name, name.stem.partition("-")[2]) for name in names}

    def _beside(self, asset: str, shard: str) -> Mapping[str, str]:
        return self.assets[asset].beside_parents(shard)


def survey(resources: Mapping[str, Any], footers: FooterCache, graph: Graph = GRAPH) -> Survey:
    """Of all shards of the corpus; `resources` by the names that assets ask for them. Raises `StoreError`."""
    assets = graph.on(resources).declared(resources)
    wanted = {
        name: Wanted(
            tuple(parent.table.name for parent in asset.reads),
            asset.own_recipe,
            asset.made_with,
            asset.engine_section or name,
            asset.versions,
        )
        for name, asset in assets.items()
    }
    tables = {name: footers.tables(name) for name in assets}
    keys = resources["corpus"].manifest.keys
    store: ShardStore = resources["store"]
    found = standings(
        tables, wanted, keys, lambda asset, shard: assets[asset].beside_parents(shard), store.allow_downgrade
    )
    return Survey(store, assets, tables, wanted, found, graph.off(resources))


def sources_of(resources: Mapping[str, Any], graph: Graph = GRAPH) -> Source:
    """What the assets of `graph` read of the corpus that `resources` hold, by asset and shard."""
    assets = graph.on(resources).declared(resources)
    return lambda asset, shard: assets[asset].source(shard)


def _engines(made_with: str) -> list[str]:
    return [engine["engine"] for engine in json.loads(made_with)["engines"]]


def _rows_to_make(asset: ShardAsset, shard: str) -> int | None:
    """How many rows a run of the asset would compute, by their fingerprints; None where it takes the corpus to say.

    Counts what a killed run or a kept version has finished as done, as the run does. Raises `StoreError`.
    """
    if not isinstance(asset, RowTable) or not asset.parents:
        return None
    store, name, keys = asset.store, asset.name, [asset.table.key, "fingerprint", "state"]
    tables = [store.read(name, shard, keys)]
    tables += [store.read(name, shard, keys, version.recipe) for version in store.versions(name, shard)]
    tables += [part.select(keys) for part in store.parts(JOURNAL, name, shard).read()]
    return len(asset.unfinished(list(asset.rows(shard)), *tables))
