"""The store held against the settings: the standing of every table, and what it would take to bring it up to date."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kopub_assets.materialize.loop import Key
from kopub_assets.recipes import ENGINE, PARENTS, engines_of, made_with, own_recipe, recipe
from kopub_assets.sources import SOURCES
from kopub_assets.upgrades.plan import (
    AssetPlan,
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
from resources.layout.regions import Task
from resources.pages.corpus import Corpus
from resources.states import FINAL
from resources.store import ledger
from resources.store.footer_cache import Catalogue, Entry
from resources.store.shard_store import JOURNAL, ShardStore
from resources.store.versions import FOLDER as VERSIONS

_COUNTED = 32
"""Stale shards of an asset whose rows are counted: some 20 ms each. Of more the plan says at most how many."""
_READ = frozenset({Task.TEXT, Task.TABLE, Task.FORMULA})
_OWED = frozenset(
    {"layout_regions", "ocr_results", "parsed_texts", "corpus_image_embeddings", "corpus_text_embeddings"}
)
"""Assets whose module says what a shard owes from the tables above it alone. The others read the corpus itself."""
_KEY = ["page_id", "fingerprint", "state"]


@dataclass(frozen=True)
class Survey:
    """What there is, what there should be, and how the one stands to the other."""

    store: ShardStore
    corpus: Corpus
    tables: Mapping[str, Mapping[str, Entry]]
    wanted: Mapping[str, Wanted]
    standings: Standings

    @property
    def outdated(self) -> dict[str, set[str]]:
        """Shards to be made again, by asset: the stale ones and what depends on them. Never one that was not made."""
        return {
            asset: {shard for shard, found in shards.items() if found in (Standing.STALE, Standing.PERHAPS)}
            for asset, shards in self.standings.items()
        }

    def plans(self) -> list[AssetPlan]:
        """For every asset, in the order they are made. Raises `StoreError`."""
        rates = ledger.rates(self.store, [asset for asset, shards in self.outdated.items() if shards])
        plans = []
        for asset, shards in self.standings.items():
            stale = [shard for shard, how in shards.items() if how is Standing.STALE]
            kept, begun = (self._kept(asset), self._begun(asset)) if stale else (set(), set())
            redo = {shard: self._redo(asset, shard, kept, begun, len(stale) <= _COUNTED) for shard in stale}
            perhaps = {shard: self._all(asset, shard) for shard, how in shards.items() if how is Standing.PERHAPS}
            rate = rates.get(asset)
            each = (rate.seconds_each, rate.gpu_seconds_each) if rate else None
            plans.append(summed(asset, shards, redo, perhaps, each))
        return plans

    def _redo(self, asset: str, shard: str, kept: set[tuple[str, str]], begun: set[str], count: bool) -> Redo:
        entry, wanted = self.tables[asset][shard], self.wanted[asset]
        made_from = made_from_now(self.tables, asset, shard, self._source)
        why = tuple(reasons(entry, wanted, asset, made_from))
        known = {name: held for name, held in made_from.items() if held is not None}
        if (shard, recipe(wanted.own, known)) in kept:
            return Redo(0, 0, 0.0, True, (*why, "its table of before is kept"))
        # Every row holds its own recipe; where that is as it was, or somebody has begun, the rows are looked at.
        pages, exact = self._pages(asset, shard), own_changed(entry, wanted) and shard not in begun
        # What is owed can be told from parents that are themselves as they should be.
        first = all(self.standings[parent][shard] is Standing.CURRENT for parent in PARENTS[asset])
        if count and first and not exact:
            counted = _rows_to_make(self.store, asset, shard, wanted.own)
            pages, exact = (pages, False) if counted is None else (counted, True)
        regions, share = self._regions(asset, shard, tasks_asked(why))
        share_of_pages = pages / entry.rows if entry.rows else 1.0
        return Redo(pages, round(regions * share_of_pages), share, exact, why)

    def _all(self, asset: str, shard: str) -> Redo:
        return Redo(self._pages(asset, shard), self._regions(asset, shard, None)[0], 1.0, False, ())

    def _pages(self, asset: str, shard: str) -> int:
        return self.corpus.manifest.shard(shard).rows if asset == "raw_pages" else self.tables[asset][shard].rows

    def _regions(self, asset: str, shard: str, tasks: set[str] | None) -> tuple[int, float]:
        """Regions that are read again, and their share of those that would be for another model."""
        if ENGINE.get(asset) != "recognition":
            return 0, 1.0
        counts = self.tables["layout_regions"][shard].regions
        every = sum(counts.get(task, 0) for task in _READ)
        asked = sum(counts.get(task, 0) for task in _READ if tasks is None or task in tasks)
        return asked, asked / every if every else 1.0

    def _begun(self, asset: str) -> set[str]:
        """Shards of which a run that did not come to its end has finished rows."""
        return {name.partition("/")[0] for name in self.store.parts(JOURNAL, asset).names()}

    def _kept(self, asset: str) -> set[tuple[str, str]]:
        """(shard, recipe) of the tables of before that the store still has."""
        names = [PurePosixPath(name) for name in self.store.parts(VERSIONS, asset).names()]
        return {(name.parent.name, name.stem.partition("-")[2]) for name in names}

    def _source(self, asset: str, shard: str) -> str | None:
        return source_of(self.corpus, asset, shard)


def survey(resources: Mapping[str, Any], catalogue: Catalogue) -> Survey:
    """Of all shards of the corpus; `resources` by the names that assets ask for them. Raises `StoreError`."""
    store, corpus = resources["store"], resources["corpus"]
    wanted = {}
    for asset in PARENTS:
        engines = engines_of(asset, resources)
        wanted[asset] = Wanted(own_recipe(asset, *engines), made_with(asset, *engines))
    tables = {asset: catalogue.tables(asset) for asset in PARENTS}
    found = standings(tables, wanted, corpus.manifest.keys, partial(source_of, corpus))
    return Survey(store, corpus, tables, wanted, found)


def source_of(corpus: Corpus, asset: str, shard: str) -> str | None:
    """Fingerprint of what an asset reads of the corpus itself for a shard; None where it reads its parents alone."""
    read = SOURCES.get(asset)
    return read(corpus, shard) if read else None


def _rows_to_make(store: ShardStore, asset: str, shard: str, own: str) -> int | None:
    """How many rows a run of the asset would compute, by their fingerprints; None where it takes the corpus to say.

    Counts what a killed run or a kept version has finished as done, as the run does. Raises `StoreError`.
    """
    if asset not in _OWED:
        return None
    # An asset's module is part of Dagster's definitions, which nobody needs who only wants a plan of what they made.
    owed = resolve_name(f"kopub_assets.{asset}:owed")
    tables = [store.read(asset, shard, _KEY)]
    tables += [store.read(asset, shard, _KEY, version.recipe) for version in store.versions(asset, shard)]
    tables += [part.select(_KEY) for part in store.parts(JOURNAL, asset, shard).read()]
    finished = {key for table in tables for key in _finished(table)}
    return sum((row.id, row.fingerprint) not in finished for row in owed(store, own, shard))


def _finished(table: pa.Table) -> list[Key]:
    final = table.filter(pc.field("state").isin(FINAL))
    return list(zip(final["page_id"].to_pylist(), final["fingerprint"].to_pylist(), strict=True))
