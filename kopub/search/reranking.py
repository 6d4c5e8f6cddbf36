"""The reordering of a search's first pages by a reranker.

A reranker reads question and page together.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kopub.errors import EngineError, KopubError, first_line
from kopub.fingerprints import fingerprint
from kopub.pages.corpus import Corpus
from kopub.reranking.base import Reranker, Seen
from kopub.search.pages import SearchedTables
from kopub.search.scores import ALL
from kopub.store.corpus_tables import TABLES
from kopub.store.table_store import TableStore

if TYPE_CHECKING:
    from kopub.reranking.pairs import Pair

PageKey = tuple[str, str]
"""The shard and id of a page."""
_PAGES, _TEXTS = TABLES.pages.name, TABLES.texts.name
_KEPT = "reranked_pairs"
"""The table of stored scores."""
_KEPT_SCHEMA = pa.schema([("pair", pa.string()), ("score", pa.float32())])
_MOST_KNOWN = 200_000
"""Most scores that a process keeps: some 40 MB."""
_STARTS = 3
"""Multiple of the last start's time that the server's start may take before a search continues without it."""


class PairSource:
    """The source of a reranker's pairs of a question and a page.

    Of the page it sees the picture as it was read, or the text from the tables, or both.
    """

    def __init__(self, store: SearchedTables, corpus: Corpus, sees: Seen) -> None:
        self._store, self._corpus, self._sees = store, corpus, sees
        self._tables: dict[str, tuple[object, dict[str, dict[str, Any]]]] = {}

    def keys(self, pages: Iterable[PageKey]) -> dict[PageKey, str]:
        """Return the fingerprint of what is seen of each page.

        Pages with nothing to see are left out. Raises `StoreError`.
        """
        keys: dict[PageKey, str] = {}
        for shard, page_id in pages:
            row = self._rows(shard).get(page_id)
            if row and (row.get("sha256") or row.get("text")):
                # Tables from before pages were set upright lack the column `upright`.
                keys[shard, page_id] = fingerprint([row.get("sha256"), row.get("upright") or None, row.get("text")])
        return keys

    def pairs(self, question: str, pages: Iterable[PageKey]) -> Iterator["tuple[PageKey, Pair]"]:
        """Yield the pair of the question with each page. Raises `SourceError` and `StoreError`."""
        from kopub.reranking.pairs import Pair

        by_shard: dict[str, list[str]] = {}
        for shard, page_id in pages:
            by_shard.setdefault(shard, []).append(page_id)
        for shard, ids in by_shard.items():
            rows = self._rows(shard)
            if self._sees == "text":
                for page_id in ids:
                    yield (shard, page_id), Pair("", question, rows[page_id]["text"])
                continue
            with self._corpus.reader(shard) as reader:
                for page_id in ids:
                    row = rows[page_id]
                    yield (shard, page_id), Pair("", question, row.get("text") or "", bytes(reader.page_of(row).data))

    def _rows(self, shard: str) -> dict[str, dict[str, Any]]:
        """Return the rows of a shard's pages by id, with the columns that are seen."""
        assets = {"image": (_PAGES,), "text": (_TEXTS,), "both": (_PAGES, _TEXTS)}[self._sees]
        versions = [self._store.published(asset).get(shard) for asset in assets]
        if shard not in self._tables or self._tables[shard][0] != versions:
            rows: dict[str, dict[str, Any]] = {}
            for asset in assets:
                columns = ["page_id", "text"] if asset == _TEXTS else ["page_id", "page_idx", "sha256", "upright"]
                for row in self._store.read(asset, shard, columns).to_pylist():
                    rows.setdefault(row["page_id"], {}).update(row)
            self._tables[shard] = versions, rows
        return self._tables[shard][1]


@dataclass(frozen=True, slots=True)
class RankedQuestion:
    """A question with its first pages, best first."""

    text: str
    pages: Sequence[PageKey]


class Reranking:
    """The reordering of questions' first pages by a reranker; threads may share it.

    A page without a score, such as one that cannot be decoded, comes after those with one, in its original order.
    """

    def __init__(self, engine: Reranker, pages: PairSource) -> None:
        self.engine: Reranker = engine
        self._pages = pages
        self.known: dict[str, float] = {}
        """The scores that were computed, or stored with this recipe, by the key of question and page."""
        self._busy = threading.Lock()
        self._asked = 0

    @property
    def recipe(self) -> str:
        """The fingerprint of everything that determines a score besides question and page."""
        return fingerprint(self.engine.recipe())

    def reordered(self, question: str, pages: Sequence[PageKey]) -> tuple[Sequence[PageKey], dict[PageKey, float]]:
        """Return the reordered pages, with the scores of the first ones.

        Raises a one-line `EngineError` if the server is gone, hangs or gives no scores, or if scoring fails in any
        other way, after at most `engine.search_seconds` and the time of a start.
        """
        ranked = RankedQuestion(question, pages[: self.engine.depth])
        if not self._busy.acquire(blocking=False):
            raise EngineError("it still works on another question")
        if len(self.known) > _MOST_KNOWN:
            self.known.clear()
        answers: SimpleQueue[dict[PageKey, float] | Exception] = SimpleQueue()
        try:
            threading.Thread(target=self._scored_once, args=(ranked, answers.put), daemon=True).start()
        except RuntimeError as error:  # the machine has no room for one more
            self._busy.release()
            raise EngineError(first_line(error)) from None
        patience = self.engine.search_seconds + _STARTS * self.engine.start_seconds
        try:
            scores = answers.get(timeout=patience)
        except Empty:
            raise EngineError("no scores within {seconds:.0f} s", patience) from None
        if isinstance(scores, Exception):
            problem = first_line(scores)
            is_told = isinstance(scores, KopubError) or problem == type(scores).__name__
            raise EngineError(problem if is_told else f"{type(scores).__name__}: {problem}") from scores
        return order(pages, scores), scores

    def scores(self, questions: Iterable[RankedQuestion]) -> Iterator[dict[PageKey, float]]:
        """Yield the scores of each question's pages; those that are known are not made again.

        Raises `EngineError`, `SourceError` and `StoreError`; what was scored by then is known.
        """
        from kopub.reranking.pairs import Pair

        keyed: list[tuple[str, dict[PageKey, str]]] = []
        for question in questions:
            of_pages = self._pages.keys(question.pages).items()
            keyed.append((question.text, {page: fingerprint([question.text, key]) for page, key in of_pages}))

        def unknown() -> Iterator[Pair]:
            for text, keys in keyed:
                pages = [page for page, key in keys.items() if key not in self.known]
                for page, pair in self._pages.pairs(text, pages):
                    yield Pair(keys[page], pair.question, pair.text, pair.picture)

        reasons: Counter[str] = Counter()
        for scored in self.engine.score(unknown()):
            if scored.score is None:
                reasons[scored.reason or "no reason"] += 1
            else:
                self.known[scored.id] = scored.score
        scores: list[dict[PageKey, float]] = []
        for _, keys in keyed:
            scores.append({page: self.known[key] for page, key in keys.items() if key in self.known})
        if reasons and not any(scores):
            raise EngineError(reasons.most_common(1)[0][0])
        yield from scores

    def _scored_once(self, ranked: RankedQuestion, put: Callable[[dict[PageKey, float] | Exception], None]) -> None:
        self._asked += 1
        try:
            put(next(self.scores([ranked])))
            # After two questions more will follow, and client processes take two seconds to start, a third for PyTorch.
            if self._asked > 1:
                self.engine.boot()
        # A refused connection, a killed process, a library's fault: whatever it is, the search continues without.
        except Exception as error:
            put(error)
        finally:
            self._busy.release()


def reranking_of(engine: Reranker, store: SearchedTables, corpus: Corpus) -> Reranking | None:
    """Return the reranking of a corpus's pages, or None if the engine is off."""
    return None if engine.off else Reranking(engine, PairSource(store, corpus, engine.sees))


def order(pages: Sequence[PageKey], scores: Mapping[PageKey, float]) -> list[PageKey]:
    """Return the pages by score, best first; those without a score follow in their order."""
    return sorted(pages, key=lambda page: -scores.get(page, -1.0))


def kept_scores(
    store: TableStore, reranking: Reranking, questions: Sequence[RankedQuestion]
) -> list[dict[PageKey, float]]:
    """Return the scores of questions, and store them, so that measuring again computes nothing.

    A run that is killed loses its scores, but one that fails keeps them. Raises as `Reranking.scores` does.
    """
    stored = store.find(_KEPT, ALL)
    if stored and stored[1].get("recipe") == reranking.recipe:
        pairs, scores = stored[0]["pair"].to_pylist(), stored[0]["score"].to_pylist()
        reranking.known.update(zip(pairs, scores, strict=True))
    before = len(reranking.known)
    try:
        return list(reranking.scores(questions))
    finally:
        if len(reranking.known) != before:
            columns = [pa.array(reranking.known.keys(), pa.string()), pa.array(reranking.known.values(), pa.float32())]
            store.write(_KEPT, ALL, pa.Table.from_arrays(columns, schema=_KEPT_SCHEMA), {"recipe": reranking.recipe})
