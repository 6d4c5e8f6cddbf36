"""The plan of a run: what it would make, why, and at what cost."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from kopub_assets.asset import RowTable, ShardAsset
from kopub_assets.graph import GRAPH, Graph
from kopub_assets.provenance import recipe_of
from kopub_assets.staleness import (
    Standing,
    Standings,
    Tables,
    find_inputs,
    find_reasons,
    find_standings,
    own_changed,
)
from resources.config.settings import Resources
from resources.errors import SourceError, StoreError
from resources.files import is_url
from resources.layout.regions import READ_TASKS
from resources.pages.corpus import Corpus
from resources.store import ledger
from resources.store.corpus_tables import TABLES
from resources.store.table_source import SOURCE, FooterCache, Source
from resources.store.table_store import JOURNAL, ShardStore
from resources.store.versions import FOLDER as VERSIONS

_COUNTED = 32
"""Stale shards of an asset whose rows are counted: some 20 ms each. Of more the plan says at most how many."""


@dataclass(frozen=True, slots=True)
class Redo:
    """The part of a shard to be made again.

    `exact` says that the pages were counted, not bounded from above.
    """

    pages: int
    regions: int
    share: float
    exact: bool
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a row of an asset.

    `measured` says that its engine made rows here; else it is of another machine.
    """

    seconds: float
    gpu_seconds: float
    measured: bool


@dataclass(frozen=True, slots=True)
class AssetPlan:
    """The sum of an asset over its shards.

    What `perhaps` adds to pages, regions and seconds is in the `at_most` figures alone.
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
    """True where the seconds are of rows that its engine made here, and where there is nothing to make."""
    why: Mapping[str, int]


def survey(resources: Resources, footers: FooterCache, graph: Graph = GRAPH) -> "Survey":
    """Return how all shards of the corpus stand.

    `resources` have the names by which assets ask for them. Raises `StoreError`.
    """
    assets = graph.on(resources).declared(resources)
    tables = {name: footers.tables(name) for name in assets}
    store: ShardStore = resources["store"]
    standings = find_standings(assets, tables, resources["corpus"].manifest.keys, store.allow_downgrade)
    return Survey(store, assets, tables, standings, graph.off(resources))


def sources_of(resources: Resources, graph: Graph = GRAPH) -> Source:
    """Return what the assets read of the corpus, by asset and shard."""
    assets = graph.on(resources).declared(resources)
    return lambda asset, shard: assets[asset].source(shard)


@dataclass(frozen=True)
class Survey:
    """The tables there are, and how each stands to what would be made now."""

    store: ShardStore
    assets: Mapping[str, ShardAsset]
    tables: Tables
    standings: Standings
    off: Mapping[str, str]
    """The assets that these settings want nothing of, with the reason."""

    @property
    def outdated(self) -> dict[str, set[str]]:
        """Return the shards to be made again, by asset.

        These are the stale ones and what depends on them; none that was never made.
        """
        return {
            asset: {shard for shard, found in shards.items() if found in (Standing.STALE, Standing.MAYBE_STALE)}
            for asset, shards in self.standings.items()
        }

    def plans(self) -> list[AssetPlan]:
        """Return the plan of every asset, in the order they are made. Raises `StoreError`."""
        costs = self.costs([asset for asset, shards in self.outdated.items() if shards])
        plans = []
        for asset, shards in self.standings.items():
            stale = [shard for shard, how in shards.items() if how is Standing.STALE]
            redo = {shard: self._redo(asset, shard, len(stale) <= _COUNTED) for shard in stale}
            perhaps = {shard: self._all(asset, shard) for shard, how in shards.items() if how is Standing.MAYBE_STALE}
            plans.append(sum_shards(asset, shards, redo, perhaps, costs.get(asset, Cost(0.0, 0.0, True))))
        return plans

    def costs(self, assets: Iterable[str]) -> dict[str, Cost]:
        """Return the cost of a row of each of the `assets`.

        It is that of late, where the same engine made rows here. What is current throughout is not asked for: nobody
        waits for its rows.
        """
        asked = [
            asset
            for asset in assets
            if any(not how.stands for how in self.standings[asset].values()) and not self._changes_engine(asset)
        ]
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

    def _changes_engine(self, asset: str) -> bool:
        """Return whether another engine made its tables: their cost says nothing now."""
        made = next(iter(self.tables[asset].values()), None)
        return (
            made is not None
            and bool(made.made_with)
            and _engines(made.made_with) != _engines(self.assets[asset].made_with)
        )

    def _redo(self, name: str, shard: str, count: bool) -> Redo:
        asset, entry = self.assets[name], self.tables[name][shard]
        inputs = find_inputs(asset, self.tables, shard)
        why = tuple(find_reasons(entry, asset, inputs))
        known = {parent: content for parent, content in inputs.items() if content is not None}
        if (name, shard, recipe_of(asset.recipe_hash, known)) in self._kept:
            return Redo(0, 0, 0.0, True, (*why, "a replaced table of the same recipe is kept"))
        # Every row holds its own recipe; where that is as it was, or somebody has begun, the rows are looked at. Files
        # of a release hold none: which of them change is known once they are made.
        every = isinstance(asset, RowTable) and own_changed(entry, asset) and (name, shard) not in self._begun
        pages, exact = self._pages(name, shard), every
        # The rows of a shard can be listed only where its parents are current.
        first = all(self.standings[parent.table.name][shard] is Standing.CURRENT for parent in asset.reads)
        if count and first and not exact:
            counted = _rows_to_make(asset, shard)
            pages, exact = (pages, False) if counted is None else (counted, True)
        regions, share = self._regions(name, shard, _tasks_asked(why, asset.engine_section or name))
        share_of_pages = pages / entry.rows if entry.rows else 1.0
        return Redo(pages, round(regions * share_of_pages), share, exact, why)

    def _all(self, asset: str, shard: str) -> Redo:
        return Redo(self._pages(asset, shard), self._regions(asset, shard, None)[0], 1.0, False, ())

    def _pages(self, asset: str, shard: str) -> int:
        return self.expected_rows(asset, shard, self.tables[asset][shard].rows)

    def expected_rows(self, name: str, shard: str, made: int | None) -> int:
        """Return the rows of a shard to make, without moved pages.

        Those only went to other files. Its table has `made` rows, None where there is none.
        """
        asset, tables = self.assets[name], self.tables[name]
        of_pages = isinstance(asset, RowTable) and asset.table.key == TABLES.pages.key
        moved = sum(
            count
            for other, count in (self._moved.get(shard, {}) if of_pages else {}).items()
            if other in tables and tables[other].made_with == asset.made_with
        )
        return max(0, asset.expected_rows(shard, made) - moved)

    @cached_property
    def _moved(self) -> Mapping[str, Mapping[str, int]]:
        """Return the pages of changed files that tables of earlier files hold.

        They are by shard, and by the shard of the earlier file. As `MovedRows` finds them in a run. Of a file the pages
        before its first new one are counted.
        """
        pages = self.assets.get(TABLES.pages.name)
        if pages is None:
            return {}
        manifest, made = pages.corpus.manifest, self.tables[pages.name]
        changed = {key for key in manifest.keys if key in made and made[key].made_from.get(SOURCE) != pages.source(key)}
        before = (made.keys() - set(manifest.keys)) | changed
        now = [
            key
            for key in manifest.keys
            if key in changed or any(key not in self.tables[name] for name in self.assets)
            # A file elsewhere would be fetched for it.
            if not is_url(manifest.place(manifest.shard(key).file))
        ]
        if not before or not now or max(len(before), len(now)) > _COUNTED:
            return {}
        held: dict[tuple[str, str | None], str] = {}
        for shard in sorted(before):
            with suppress(StoreError):
                rows = self.store.read(pages.name, shard, ["page_id", "sha256"]).to_pylist()
                held |= {(row["page_id"], row["sha256"]): shard for row in rows}
        return {key: _moved_from(pages.corpus, key, held) for key in now}

    def _regions(self, asset: str, shard: str, tasks: set[str] | None) -> tuple[int, float]:
        """Return how many regions are read again, and their share.

        The share is of those that another model would read.
        """
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
        """Return the (asset, shard) with finished rows of an unfinished run."""
        names = (name.split("/") for name in self.store.parts(JOURNAL).names())
        return {(asset, shard) for asset, shard, _ in names}

    @cached_property
    def _kept(self) -> set[tuple[str, str, str]]:
        """(asset, shard, recipe) of the replaced tables that the store still has."""
        names = (PurePosixPath(name) for name in self.store.parts(VERSIONS).names())
        return {(name.parts[0], name.parent.name, name.stem.partition("-")[2]) for name in names}


def _moved_from(corpus: Corpus, shard: str, held: Mapping[tuple[str, str | None], str]) -> Counter[str]:
    """Return how many of a shard's first pages each earlier shard holds."""
    found: Counter[str] = Counter()
    # A file that cannot be read is told by the run.
    with suppress(SourceError):
        for row in corpus.rows(shard):
            sha256 = None if row.data is None else hashlib.sha256(row.data).hexdigest()
            if (row.page_id, sha256) not in held:
                break
            found[held[row.page_id, sha256]] += 1
    return found


def sum_shards(
    asset: str,
    of_shards: Mapping[str, Standing],
    redo: Mapping[str, Redo],
    perhaps: Mapping[str, Redo],
    cost: Cost,
) -> AssetPlan:
    """Return the plan of an asset, summed over its shards."""
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


def _tasks_asked(lines: Sequence[str], section: str) -> set[str] | None:
    """Return the tasks whose regions are read again; None for all.

    Answers for other tasks are kept.
    """
    prompt = f"{section}.prompts."
    if lines and all(line.startswith(prompt) for line in lines):
        return {line.removeprefix(prompt).partition(" ")[0] for line in lines}
    return None


def _engines(made_with: str) -> list[str]:
    return [engine["engine"] for engine in json.loads(made_with)["engines"]]


def _rows_to_make(asset: ShardAsset, shard: str) -> int | None:
    """Return how many rows a run would compute, from their fingerprints.

    None where it takes the corpus to say. Counts what a killed run or a kept version has finished as done, as the run
    does. Raises `StoreError`.
    """
    if not isinstance(asset, RowTable) or not asset.parents:
        return None
    store, name, keys = asset.store, asset.name, [asset.table.key, "fingerprint", "state"]
    tables = [store.read(name, shard, keys)]
    tables += [store.read(name, shard, keys, version.recipe) for version in store.versions(name, shard)]
    tables += [part.select(keys) for part in store.parts(JOURNAL, name, shard).read()]
    return len(asset.unfinished(list(asset.rows(shard)), *tables))
