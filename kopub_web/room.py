"""What the views look into: the corpus as it is now, its search, and its pictures."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

import kopub
from kopub.sources.home import HomeSource
from kopub_web.answers import Scored, scored
from kopub_web.figures import figures_of
from kopub_web.pictures import Pictures
from kopub_web.scores import Score, reading_scores, retrieval_scores
from kopub_web.versions import replaced_shards, shard_versions
from kopub_web.words_ahead import WordsAhead
from resources.diff.compare import ShardDiff
from resources.diff.html import Upgrade
from resources.errors import StoreError
from resources.states import State, count_states
from resources.store.corpus_tables import OCR_SCORES, RELEASED_FILES, SCORES, TABLES
from resources.store.footer_cache import FooterCache
from resources.store.table_source import CorpusCheck, IsOfCorpus

if TYPE_CHECKING:
    import pyarrow as pa

    from resources.config.settings import Settings
    from resources.search.searcher import Searcher

DOUBTFUL = "doubtful"
LISTS = (DOUBTFUL, State.PARTIAL.value, State.FAILED.value, State.QUARANTINED.value, State.BLANK.value)
"""The lists of pages to look at."""
CALLS = LISTS[:4]
"""Those that a person should go through."""
_OTHERS = (TABLES.query_vectors, RELEASED_FILES, SCORES, OCR_SCORES)
_LOOK_AGAIN = 2.0
"""Seconds for which what was seen of the store counts as now: a look takes longer than a page."""


@dataclass(frozen=True, slots=True)
class TableCounts:
    """A table: its asset, its shards that are made, and its rows by state."""

    name: str
    made: int
    states: Mapping[str, int]


class Now:
    """The corpus and its tables at one time; what is counted of them is counted once."""

    def __init__(self, corpus: kopub.Corpus, settings: "Settings", is_of_corpus: IsOfCorpus) -> None:
        self.corpus = corpus
        self._settings, self._is_of_corpus = settings, is_of_corpus
        self._changes: tuple[str, tuple[ShardDiff, Sequence[Upgrade]]] | None = None
        self.others = {table.name: settings.store.published(table.name) for table in _OTHERS}
        """The tables that are not of pages, with what tells their files from those that they replace."""

    def count(self) -> None:
        """Count what the first page shows, so that nobody waits for it. Raises `StoreError`."""
        for counted in (self.lists, self.tables, self.replaced, self.scores):
            len(counted)

    @cached_property
    def lists(self) -> Mapping[str, kopub.Pages]:
        """The pages to look at, by the name of the list."""
        pages = self.corpus.pages
        return {kind: pages.doubtful if kind == DOUBTFUL else pages.where(state=kind) for kind in LISTS}

    @cached_property
    def tables(self) -> Sequence[TableCounts]:
        """The tables of the corpus, in the order they are made, without those that are off and were never made."""
        from kopub_assets.graph import GRAPH

        footers, keys = FooterCache(self._settings.store), self._settings.corpus.manifest.keys
        off = GRAPH.off(self._settings.resources)
        counted = []
        for asset in GRAPH.names:
            entries = footers.tables(asset)
            made = [entries[key] for key in keys if key in entries and self._is_of_corpus(asset, key)]
            if asset in off and not made:
                continue
            states = {state: sum(entry.states.get(state, 0) for entry in made) for state in count_states(())}
            counted.append(TableCounts(asset, len(made), states))
        return counted

    @cached_property
    def figures(self) -> "pa.Table":
        """The figures, of schema `FIGURES`."""
        return figures_of(self._settings.store, self.corpus.shards, self._is_of_corpus)

    @cached_property
    def replaced(self) -> Sequence[str]:
        """The shards of which tables before an upgrade are kept, of the same pages."""
        return replaced_shards(self._settings.store, self.corpus.shards)

    def changes(self, shard: str) -> tuple[ShardDiff, Sequence[Upgrade]]:
        """What the last upgrade changed in a shard; of the shard that was asked for last it is kept."""
        if self._changes is None or self._changes[0] != shard:
            self._changes = shard, shard_versions(self._settings.store, shard)
        return self._changes[1]

    @cached_property
    def scored(self) -> Sequence[Scored]:
        """The benchmarks of the pages with known answers."""
        return scored(self._settings.store, self._settings.corpus.gold)

    @cached_property
    def known_answers(self) -> frozenset[str]:
        """The ids of the pages with known answers."""
        return frozenset(sample.id for each in self.scored for sample in each.samples)

    @cached_property
    def scores(self) -> Sequence[Score]:
        """What was measured of the tables as they are."""
        store, keys = self._settings.store, self._settings.corpus.manifest.keys
        known = self._settings.corpus.gold is not None
        found = reading_scores(store, keys, self._is_of_corpus) if known else []
        return [*found, *retrieval_scores(store, keys, self._is_of_corpus)]


def _opened(settings: "Settings") -> kopub.Corpus:
    if not settings.corpus.url:
        return kopub.open(settings.home, store=settings.store.url)
    # A machine that shares all of it may have an empty home.
    return kopub.Corpus(HomeSource(settings.corpus.place, settings.store))


class Room:
    """The reading room of a home. Threads may share it.

    Raises `SourceError` and `StoreError` where nothing can be opened.
    """

    def __init__(self, settings: "Settings", searcher: "Searcher", check: CorpusCheck) -> None:
        self.settings, self.searcher = settings, searcher
        self.words = WordsAhead(searcher)
        self.pictures = Pictures()
        self._check = check
        self._lock = Lock()
        self._now = self._look(_opened(settings))
        self._now.count()
        self._looked = time.monotonic()

    @property
    def now(self) -> Now:
        """The corpus as it is now, or was a moment ago. What a damaged table hides now is shown as it was before."""
        if time.monotonic() - self._looked > _LOOK_AGAIN and self._lock.acquire(blocking=False):
            try:
                found = self._look(self._now.corpus.refreshed())
                if (found.corpus, found.others) != (self._now.corpus, self._now.others):
                    self._now = found
            except StoreError:
                pass
            finally:
                self._looked = time.monotonic()
                self._lock.release()
        return self._now

    def _look(self, corpus: kopub.Corpus) -> Now:
        """Raises `StoreError`."""
        # A request then finds the catalogue in memory.
        corpus.documents  # noqa: B018
        return Now(corpus, self.settings, self._check.look())

    @property
    def sources(self) -> Mapping[str, str]:
        """The name of the source by shard, where the corpus has several; empty where it has one."""
        manifest = self.settings.corpus.manifest
        several = len(manifest.sources) > 1
        return {shard.key: shard.source for shard in manifest.shards} if several else {}

    @property
    def name(self) -> str:
        """The corpus as people call it."""
        return self.settings.corpus.manifest.name
