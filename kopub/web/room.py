"""The room that the views show: the current corpus, search, and pictures."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import kopub
from kopub.api.sources.home import HomeSource
from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.gold import has_known_answers
from kopub.corrections.log import CorrectionLog
from kopub.diff.compare import ShardDiff
from kopub.diff.html import Upgrade, compared_page
from kopub.errors import SourceError, StoreError
from kopub.evaluation import reading_scores as reading
from kopub.recognition.regions import crop_index
from kopub.search import metrics as finding
from kopub.search.scores import stored_scores
from kopub.states import Reason, State, count_states
from kopub.store.append_log import REASONS, stored_reasons
from kopub.store.corpus_tables import OCR_SCORES, RELEASED_FILES, SCORES, TABLES
from kopub.store.table_source import CorpusCheck, FooterCache, IsOfCorpus
from kopub.store.table_store import ShardStore
from kopub.tables.graph import GRAPH
from kopub.tables.lineage import CURRENT, PREVIOUS, compare_versions, edition, upgrades_between
from kopub.web.answers import ScoredBenchmark, WordLoader, scored
from kopub.web.pictures import PictureCache

if TYPE_CHECKING:
    from kopub.config.settings import Settings
    from kopub.search.searcher import Searcher
    from kopub.web.own_pages import Editor

DOUBTFUL = "doubtful"
LISTS = (DOUBTFUL, State.PARTIAL.value, State.FAILED.value, State.QUARANTINED.value, State.BLANK.value)
"""The lists of pages to look at."""
CALLS = LISTS[:4]
"""The lists that a person should go through."""
_OTHERS = (TABLES.query_vectors, RELEASED_FILES, SCORES, OCR_SCORES)
_LOOK_AGAIN = 2.0
"""Seconds for which a look at the store counts as current, because a look takes longer than showing a page."""


@dataclass(frozen=True, slots=True)
class TableCounts:
    """A table: its asset, number of made shards, and number of rows by state."""

    name: str
    made: int
    states: Mapping[str, int]


class Now:
    """The corpus and its tables at one time, with counts that are made only once."""

    def __init__(self, corpus: kopub.Corpus, settings: "Settings", is_of_corpus: IsOfCorpus) -> None:
        self.corpus = corpus
        self._settings, self._is_of_corpus = settings, is_of_corpus
        self._changes: tuple[str, tuple[ShardDiff, Sequence[Upgrade]]] | None = None
        self.others = {table.name: settings.store.published(table.name) for table in _OTHERS}
        """The tables that are not about pages, with stamps that change if their files are replaced."""
        self.checked: set[str] = set()
        """The pages that a person marked as right."""
        seen = self.others["corrections"] = {}
        for page_id, history in CorrectionLog(settings.store).by_page().items():
            seen[page_id] = history.seen
            if history.checked:
                self.checked.add(page_id)

    def count(self) -> None:
        """Count what the home page shows, so that no visitor waits for it. Raises `StoreError`."""
        for counted in (self.lists, self.tables, self.replaced, self.scores):
            len(counted)

    @cached_property
    def lists(self) -> Mapping[str, kopub.Pages]:
        """The pages to look at, by name of the list."""
        pages = self.corpus.pages
        doubtful = pages.doubtful.without(self.checked)
        return {kind: doubtful if kind == DOUBTFUL else pages.where(state=kind) for kind in LISTS}

    @cached_property
    def reasons(self) -> Mapping[str, Reason]:
        """The reasons in all tables, by what they say."""
        return stored_reasons(self._settings.store.parts(REASONS))

    @cached_property
    def tables(self) -> Sequence[TableCounts]:
        """The tables of the corpus in order, unless off and never made."""
        footers, keys = FooterCache(self._settings.store), self._settings.corpus.manifest.keys
        off = GRAPH.off(self._settings.resources)
        counted = []
        for asset in GRAPH.names:
            entries = footers.tables(asset)
            of_corpus = [entries[key] for key in keys if key in entries and self._is_of_corpus(asset, key)]
            if asset in off and not of_corpus:
                continue
            states = count_states(())
            for entry in of_corpus:
                for state in states:
                    states[state] += entry.states.get(state, 0)
            counted.append(TableCounts(asset, len(of_corpus), states))
        return counted

    def documents_beside(self, document_id: str) -> tuple[kopub.Document | None, kopub.Document | None]:
        """Return the documents before and after a document.

        Both are None if an upgrade has just removed the document.
        """
        documents, at = self.corpus.documents, self._document_places.get(document_id)
        if at is None:
            return None, None
        return documents[at - 1] if at else None, documents[at + 1] if at + 1 < len(documents) else None

    @cached_property
    def _document_places(self) -> Mapping[str, int]:
        return {document: at for at, document in enumerate(self.corpus.documents.ids)}

    @cached_property
    def figures(self) -> pa.Table:
        """The figures in corpus order, as people corrected them, of schema `FIGURES`."""
        store, asset = self._settings.store, TABLES.readings.name
        published, corrected = store.published(asset), CorrectedTables(store)
        tables: list[pa.Table] = []
        for shard in self.corpus.shards:
            if shard in published and self._is_of_corpus(asset, shard):
                readings = corrected.read(asset, shard, ["page_id", "image_crops"])
                crops = readings["image_crops"].combine_chunks()
                figures = crops.flatten()
                regions = pa.array([crop_index(path) for path in figures.field("path").to_pylist()], pa.int32())
                pages = readings["page_id"].combine_chunks().take(crops.value_parent_indices())
                tables.append(pa.Table.from_arrays([pages, regions, figures.field("label")], schema=FIGURES))
        return pa.concat_tables(tables) if tables else FIGURES.empty_table()

    @cached_property
    def replaced(self) -> Sequence[str]:
        """The shards with tables of the same pages kept from before an upgrade."""
        store = self._settings.store
        replaced: list[str] = []
        for shard in self.corpus.shards:
            for asset in _COMPARED:
                versions = store.versions(asset, shard) if store.has(asset, shard) else []
                if not versions:
                    continue
                before = store.read(asset, shard, ["page_id"], version=versions[0].recipe)["page_id"].to_pylist()
                now = store.read(asset, shard, ["page_id"])["page_id"].to_pylist()
                # A shard that then belonged to another corpus, with none of its present pages, has nothing to compare.
                if not set(before).isdisjoint(now):
                    replaced.append(shard)
                    break
        return replaced

    def changes(self, shard: str) -> tuple[ShardDiff, Sequence[Upgrade]]:
        """Return what the last upgrade changed in a shard.

        The result of the last shard is cached.
        """
        if self._changes is None or self._changes[0] != shard:
            store = self._settings.store
            old, new = edition(store, shard, PREVIOUS), edition(store, shard, CURRENT)
            diff = compare_versions(store, shard, old, new)
            self._changes = shard, (diff, upgrades_between(store, shard, old, new))
        return self._changes[1]

    @cached_property
    def scored(self) -> Sequence[ScoredBenchmark]:
        """The benchmarks of the pages with known answers."""
        return scored(self._settings.store, self._settings.corpus)

    @cached_property
    def known_answers(self) -> frozenset[str]:
        """The ids of the pages with known answers."""
        ids: set[str] = set()
        for benchmark in self.scored:
            ids.update(sample.id for sample in benchmark.samples)
        return frozenset(ids)

    @cached_property
    def scores(self) -> "Sequence[MeanScore]":
        """Return the scores that were measured on the current tables."""
        store, keys = self._settings.store, self._settings.corpus.manifest.keys
        means: list[MeanScore] = []
        if has_known_answers(self._settings.corpus, store):
            scores = stored_scores(store, OCR_SCORES)
            if scores is not None and reading.are_of_readings_now(store, keys, self._is_of_corpus):
                for row in reading.headline(scores):
                    means.append(MeanScore(READING, row["benchmark"], row["metric"], row["value"], row["samples"]))
        scores = stored_scores(store, SCORES)
        if scores is not None and finding.HISTORY.is_of_tables_now(store, keys, self._is_of_corpus):
            queries = max(scores["queries"].to_pylist(), default=0)
            for retriever, values in finding.headline(scores).items():
                means.append(MeanScore(FINDING, retriever, "nDCG@10", values["ndcg@10"], queries))
        return means


class Room:
    """The reading room of a home, which threads may share.

    Raises `SourceError` and `StoreError` if nothing can be opened.
    """

    def __init__(
        self, settings: "Settings", searcher: "Searcher", check: CorpusCheck, editor: "Editor | None" = None
    ) -> None:
        self.editor = editor
        """The right to correct pages, or None if the room is only for reading."""
        self.settings, self.searcher = settings, searcher
        self.words = WordLoader(searcher)
        self.pictures = PictureCache()
        self._check = check
        self._lock = Lock()
        self._now = self._look(kopub.Corpus(HomeSource(settings.corpus.place, settings.store)))
        self._now.count()
        self._looked = time.monotonic()

    @property
    def now(self) -> Now:
        """The corpus as it is now, or was a moment ago.

        While the index or a table is damaged, it is the last corpus before the damage.
        """
        if time.monotonic() - self._looked > _LOOK_AGAIN and self._lock.acquire(blocking=False):
            try:
                self._renew()
            except (SourceError, StoreError):
                pass
            finally:
                self._looked = time.monotonic()
                self._lock.release()
        return self._now

    def forget_look(self) -> None:
        """Forget the last look, because this process has just changed something."""
        self._looked = -math.inf

    def look_again(self) -> None:
        """Look at the present corpus, however recent the last look is. Raises `StoreError`."""
        with self._lock:
            self._renew()
            self._looked = time.monotonic()

    def page_found(self, page_id: str) -> kopub.Page:
        """Return a page that a search found.

        It may be newer than the last look. Raises `NoSuchPage` and `StoreError`.
        """
        if page_id not in self.now.corpus.pages:
            self.look_again()
        return self._now.corpus.page(page_id)

    def _renew(self) -> None:
        now = self._look(self._now.corpus.refreshed())
        if (now.corpus, now.others) != (self._now.corpus, self._now.others):
            self._now = now

    def _look(self, corpus: kopub.Corpus) -> Now:
        """Return the current tables of a corpus. Raises `StoreError`."""
        # This loads the catalogue into memory, so that no request waits for it.
        corpus.documents  # noqa: B018
        return Now(corpus, self.settings, self._check.look())

    @property
    def sources(self) -> Mapping[str, str]:
        """The name of the source by shard; empty if there is only one source."""
        manifest = self.settings.corpus.manifest
        several = len(manifest.sources) > 1
        return {shard.key: shard.source for shard in manifest.shards} if several else {}

    @property
    def name(self) -> str:
        """The name of the corpus for people."""
        return self.settings.corpus.manifest.name


READING, FINDING = "reading", "finding"


@dataclass(frozen=True, slots=True)
class MeanScore:
    """A mean over `samples`; its `kind` is reading (a benchmark's) or finding (a retriever's)."""

    kind: str
    of: str
    metric: str
    value: float
    samples: int


_COMPARED = (TABLES.regions.name, TABLES.readings.name)
"""The tables whose replaced versions are worth comparing."""


def page_versions(store: ShardStore, shard: str, page_id: str) -> Mapping[str, Any] | None:
    """Return the last upgrade's changes of a page, or None without any.

    Raises `StoreError`.
    """
    old, new = edition(store, shard, PREVIOUS), edition(store, shard, CURRENT)
    changed = compare_versions(store, shard, old, new, page_id).changed
    if not changed:
        return None
    compared = compared_page(changed[0])
    changes: list[Mapping[str, Any]] = []
    for change in compared["changes"]:
        kinds, labels = ", ".join(change["change"].kinds), " → ".join(change["labels"])
        changes.append({"kinds": kinds, "labels": labels, "texts": change["texts"]})
    return {
        "sides": list(zip(("before", "now"), compared["sides"], strict=True)),
        "states": list(changed[0].states.items()),
        "changes": changes,
    }


FIGURES = pa.schema([("page_id", pa.string()), ("region", pa.int32()), ("label", pa.string())])
"""A row for each figure: its page, the index of its region, and that region's label."""
