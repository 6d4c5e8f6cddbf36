"""The plan of a run: what it would make, why, and at what cost."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from kopub.config.settings import Resources
from kopub.errors import KopubError, SourceError, StoreError
from kopub.files import is_url
from kopub.layout.regions import READ_TASKS
from kopub.store import ledger
from kopub.store.corpus_tables import DOCUMENT_CHUNKS, TABLES
from kopub.store.table_source import SOURCE, Entry, FooterCache, Source
from kopub.store.table_store import JOURNAL, ShardStore
from kopub.store.versions import FOLDER as VERSIONS
from kopub.tables.asset import RowTable, ShardAsset
from kopub.tables.graph import GRAPH, Graph
from kopub.tables.provenance import recipe_of
from kopub.tables.staleness import (
    Standing,
    Standings,
    Tables,
    find_inputs,
    find_reasons,
    find_standings,
)

_COUNTED = 32
"""Most stale shards of an asset whose rows are counted, at some 20 ms each; beyond it, the plan gives upper bounds."""


@dataclass(frozen=True, slots=True)
class Redo:
    """The part of a shard to be made again.

    `exact` means that the pages were counted, not bounded from above.
    """

    pages: int
    regions: int
    share: float
    exact: bool
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a row of an asset.

    `measured` means that its engine has made rows here; otherwise the figures come from another machine.
    """

    seconds: float
    gpu_seconds: float
    measured: bool


@dataclass(frozen=True, slots=True)
class AssetPlan:
    """The plan of one asset, summed over its shards.

    The pages, regions and seconds of shards that are `perhaps` stale are only in the `at_most` figures.
    """

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
    """True if the seconds come from rows that its engine made here, or if there is nothing to make."""
    why: Mapping[str, int]


def survey(
    resources: Resources,
    footers: FooterCache,
    graph: Graph = GRAPH,
    *,
    unreadable: dict[str, str] | None = None,
    damage: set[str] | None = None,
) -> "Survey":
    """Return the standing of all shards of the corpus.

    `resources` are keyed by the names that assets use. Raises `StoreError` for tables that cannot be read, unless
    `unreadable` is given: it gets the reason by asset, whose tables then count as missing. Damaged corrections are
    added to `damage`.
    """
    assets = graph.on(resources).declared(resources)
    tables: dict[str, dict[str, Entry]] = {}
    for name in assets:
        try:
            tables[name] = footers.tables(name)
        except StoreError as error:
            if unreadable is None:
                raise
            tables[name], unreadable[name] = {}, str(error)
    store: ShardStore = resources["store"]
    standings = find_standings(assets, tables, resources["corpus"].manifest.keys, store.allow_downgrade, damage)
    return Survey(store, assets, tables, standings, graph.off(resources))


def sources_of(resources: Resources, graph: Graph = GRAPH) -> Source:
    """Return a function of asset and shard that tells what they read from the corpus."""
    assets = graph.on(resources).declared(resources)
    return lambda asset, shard: assets[asset].source(shard)


@dataclass(frozen=True)
class Survey:
    """The existing tables, and how each compares with what would be made now."""

    store: ShardStore
    assets: Mapping[str, ShardAsset]
    tables: Tables
    standings: Standings
    off: Mapping[str, str]
    """The assets that these settings switch off, with the reason."""

    @property
    def outdated(self) -> dict[str, set[str]]:
        """Return the shards to be made again, by asset.

        They are the stale ones and those that depend on them, but none that was never made.
        """
        outdated: dict[str, set[str]] = {}
        for asset, shards in self.standings.items():
            outdated[asset] = {shard for shard, how in shards.items() if how in (Standing.STALE, Standing.MAYBE_STALE)}
        return outdated

    def with_rows_to_make(self, names: Sequence[str], shards: Sequence[str]) -> list[str]:
        """Return the assets of `names` whose engines have rows to make, by footers alone.

        An engine has rows to make if its table is missing, is stale or has failed rows, or if the engine of a parent
        among `names` has some. `names` lists each asset after its parents.
        """
        making: dict[str, set[str]] = {}
        for name in names:
            asset = self.assets[name]
            of_parents: set[str] = set()
            for parent in asset.tables_read:
                of_parents |= making.get(parent, set())
            making[name] = {shard for shard in shards if shard in of_parents or self._has_rows(asset, shard)}
        return [name for name in names if making[name] and self.assets[name].engines]

    def _has_rows(self, asset: ShardAsset, shard: str) -> bool:
        """Return whether a run makes rows of a table whose parents are unchanged."""
        standing = self.standings[asset.name][shard]
        if standing is Standing.MISSING and asset.reads:
            return all(shard in self.tables[name] for name in asset.tables_read)
        if standing is Standing.MISSING and asset.engines and isinstance(asset, RowTable):
            # A corpus without queries has no rows of query vectors to make. The step reports what cannot be read.
            with suppress(KopubError):
                return next(iter(asset.rows(shard)), None) is not None
            return False
        if standing is Standing.CURRENT:
            return self.tables[asset.name][shard].tried_again > 0
        return standing in (Standing.MISSING, Standing.STALE)

    def plans(self) -> list[AssetPlan]:
        """Return the plan of every asset, in the order of making. Raises `StoreError`."""
        costs = self.costs([asset for asset, shards in self.outdated.items() if shards])
        plans = []
        for asset, shards in self.standings.items():
            stale = [shard for shard, how in shards.items() if how is Standing.STALE]
            redo = {shard: self._redo(asset, shard, len(stale) <= _COUNTED) for shard in stale}
            perhaps: dict[str, Redo] = {}
            for shard, how in shards.items():
                if how is Standing.MAYBE_STALE:
                    regions, _ = self._regions(asset, shard, None)
                    pages = self.expected_rows(asset, shard, self.tables[asset][shard].rows)
                    perhaps[shard] = Redo(pages, regions, 1.0, False, ())
            plans.append(sum_shards(asset, shards, redo, perhaps, costs.get(asset, Cost(0.0, 0.0, True))))
        return plans

    def costs(self, assets: Iterable[str]) -> dict[str, Cost]:
        """Return the cost of a row of each of the `assets`.

        It is the recent cost if the same engine has made rows here. The ledger is not searched for an asset that is
        current throughout, because nobody waits for its rows.
        """
        outdated = []
        for name in assets:
            if all(standing.stands for standing in self.standings[name].values()):
                continue
            # The cost of what another engine made says nothing.
            entry = next(iter(self.tables[name].values()), None)
            before = entry.made_with if entry else ""
            if not before or _engines(before) == _engines(self.assets[name].made_with):
                outdated.append(name)
        measured = ledger.rates(self.store, outdated)
        costs = {}
        for name in assets:
            if (rate := measured.get(name)) is not None:
                costs[name] = Cost(rate.seconds_each, rate.gpu_seconds_each, True)
            else:
                asset = self.assets[name]
                manifest = asset.corpus.manifest
                typical = sum(
                    asset.typical_seconds(shard.bytes / shard.rows / 1e6) * shard.rows for shard in manifest.shards
                )
                seconds = typical / manifest.rows
                costs[name] = Cost(seconds, seconds * asset.gpus, False)
        return costs

    def _redo(self, name: str, shard: str, count: bool) -> Redo:
        asset, entry = self.assets[name], self.tables[name][shard]
        inputs = find_inputs(asset, self.tables, shard)
        why = tuple(find_reasons(entry, asset, inputs))
        contents = {parent: content for parent, content in inputs.items() if content is not None}
        if (name, shard, recipe_of(asset.recipe_hash, contents)) in self._replaced:
            return Redo(0, 0, 0.0, True, (*why, "a replaced table of the same recipe is kept"))
        # Each row's fingerprint holds the own recipe. If that is unchanged, or a run has begun, rows must be compared.
        # Files of a release have no recipe: which of them change is known only once they are made.
        own_changed = entry.made_with != asset.made_with
        every = isinstance(asset, RowTable) and own_changed and (name, shard) not in self._begun
        pages, exact = self.expected_rows(name, shard, entry.rows), every
        # The rows of a shard can be listed only if its parents are current.
        can_list = all(self.standings[parent][shard] is Standing.CURRENT for parent in asset.tables_read)
        # Only the corpus itself can tell of a table without parents.
        if count and can_list and not exact and isinstance(asset, RowTable) and asset.parents:
            # Like a run, it takes rows that a killed run or a kept version finished as done.
            store, keys = asset.store, [asset.table.key, "fingerprint", "state"]
            tables = [store.read(name, shard, keys)]
            tables += [store.read(name, shard, keys, version.recipe) for version in store.versions(name, shard)]
            tables += [part.select(keys) for part in store.parts(JOURNAL, name, shard).read()]
            pages, exact = len(asset.unfinished(list(asset.rows(shard)), *tables)), True
        # If only prompts changed, the answers for other tasks are kept.
        prompt = f"{asset.engine_section or name}.prompts."
        tasks: set[str] | None = None
        if why and all(line.startswith(prompt) for line in why):
            tasks = {line.removeprefix(prompt).partition(" ")[0] for line in why}
        regions, share = self._regions(name, shard, tasks)
        share_of_pages = pages / entry.rows if entry.rows else 1.0
        return Redo(pages, round(regions * share_of_pages), share, exact, why)

    def expected_rows(self, name: str, shard: str, rows_now: int | None) -> int:
        """Return how many rows of a shard are to be made.

        Pages that only moved to another file do not count. `rows_now` are those of its table, None without one.
        """
        asset, tables = self.assets[name], self.tables[name]
        # A row of chunks is a document, named after its first page.
        of_pages = isinstance(asset, RowTable) and asset.table.key == TABLES.pages.key and name != DOCUMENT_CHUNKS.name
        rows = asset.expected_rows(shard, rows_now)
        for other, count in (self._moved.get(shard, {}) if of_pages else {}).items():
            if other in tables and tables[other].made_with == asset.made_with:
                rows -= count
        return max(0, rows)

    @cached_property
    def _moved(self) -> Mapping[str, Mapping[str, int]]:
        """The number of pages that changed files share with earlier ones, by both shards.

        A run finds the same pages with `MovedRows`. Only the pages before a file's first new page are counted.
        """
        pages = self.assets.get(TABLES.pages.name)
        if pages is None:
            return {}
        manifest, entries = pages.corpus.manifest, self.tables[pages.name]
        changed: set[str] = set()
        for key in manifest.keys:
            if key in entries and entries[key].made_from.get(SOURCE) != pages.source(key):
                changed.add(key)
        before = (entries.keys() - set(manifest.keys)) | changed
        now: list[str] = []
        for key in manifest.keys:
            lacks_tables = any(key not in self.tables[name] for name in self.assets)
            # A remote file would have to be fetched just to count its pages.
            if (key in changed or lacks_tables) and not is_url(manifest.place(manifest.shard(key).file)):
                now.append(key)
        if not before or not now or max(len(before), len(now)) > _COUNTED:
            return {}
        places: dict[tuple[str, str | None], str] = {}
        for shard in sorted(before):
            with suppress(StoreError):
                rows = self.store.read(pages.name, shard, ["page_id", "sha256"]).to_pylist()
                places |= {(row["page_id"], row["sha256"]): shard for row in rows}
        pages_by_shard: dict[str, Counter[str]] = {}
        for key in now:
            counts: Counter[str] = Counter()
            # The run reports a file that cannot be read.
            with suppress(SourceError):
                for row in pages.corpus.rows(key):
                    sha256 = None if row.data is None else hashlib.sha256(row.data).hexdigest()
                    if (row.page_id, sha256) not in places:
                        break
                    counts[places[row.page_id, sha256]] += 1
            pages_by_shard[key] = counts
        return pages_by_shard

    def _regions(self, asset: str, shard: str, tasks: set[str] | None) -> tuple[int, float]:
        """Return how many regions are read again, and their share of those to read."""
        layout = self.assets[asset].reads_regions_of
        if layout is None:
            return 0, 1.0
        counts = self.tables[layout.table.name][shard].regions
        reread = getattr(self.assets[asset].engine, "reread", ())
        every = again = 0
        for task in READ_TASKS:
            count = counts.get(task, 0) - (0 if task in reread else counts.get(f"known_{task}", 0))
            every += count
            again += count if tasks is None or task in tasks else 0
        return again, again / every if every else 1.0

    @cached_property
    def _begun(self) -> set[tuple[str, str]]:
        """The (asset, shard) pairs with finished rows of an unfinished run."""
        begun: set[tuple[str, str]] = set()
        for name in self.store.parts(JOURNAL).names():
            asset, shard, _ = name.split("/")
            begun.add((asset, shard))
        return begun

    @cached_property
    def _replaced(self) -> set[tuple[str, str, str]]:
        """The (asset, shard, recipe) of each replaced table that the store still holds."""
        replaced: set[tuple[str, str, str]] = set()
        for name in map(PurePosixPath, self.store.parts(VERSIONS).names()):
            replaced.add((name.parts[0], name.parent.name, name.stem.partition("-")[2]))
        return replaced


def sum_shards(
    asset: str,
    of_shards: Mapping[str, Standing],
    redo: Mapping[str, Redo],
    perhaps: Mapping[str, Redo],
    cost: Cost,
) -> AssetPlan:
    """Return the plan of an asset, summed over its shards."""
    pages, regions, work, exact, why = 0, 0, 0.0, True, Counter[str]()
    for part in redo.values():
        pages += part.pages
        regions += part.regions
        work += part.pages * part.share
        exact &= part.exact
        why.update(part.why)
    pages_at_most, regions_at_most, most = pages, regions, work
    for part in perhaps.values():
        pages_at_most += part.pages
        regions_at_most += part.regions
        most += part.pages * part.share
    shards: dict[Standing, list[str]] = {standing: [] for standing in Standing}
    for shard, standing in of_shards.items():
        shards[standing].append(shard)
    return AssetPlan(
        asset=asset,
        shards=shards,
        pages=pages,
        pages_at_most=pages_at_most,
        regions=regions,
        regions_at_most=regions_at_most,
        exact=exact,
        seconds=work * cost.seconds,
        seconds_at_most=most * cost.seconds,
        gpu_seconds=work * cost.gpu_seconds,
        gpu_seconds_at_most=most * cost.gpu_seconds,
        measured=cost.measured or not most,
        why=dict(why),
    )


def _engines(made_with: str) -> list[str]:
    return [engine["engine"] for engine in json.loads(made_with)["engines"]]
