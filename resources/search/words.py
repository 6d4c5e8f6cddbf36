"""The pages that share words with a query: BM25 over the texts of all shards, in one file that is memory-mapped."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resources.figures.notes import notes_text
from resources.fingerprints import fingerprint
from resources.printable import counted
from resources.search import morphemes
from resources.search.answer import CannotSearch
from resources.search.morphemes import TOKENS, made_from, tokenised
from resources.search.ranking import Bm25, Bm25Index
from resources.search.tables import ArrowCache, SearchedTables
from resources.search.vectors import Neighbour, PageFilter, rows_of
from resources.states import MADE
from resources.store.corpus_tables import FIGURE_NOTES, TABLES

TEXTS = TABLES.texts.name
"""The table whose words are searched."""
_ALL = "all"
"""The index is of all shards: how rare a word is depends on each of them."""
_MANY = 500
"""Pages whose words take some seconds to find: a person is told."""
_AT_ONCE = 64
"""Pages whose words are found without looking whether anybody still wants them."""
_SHARDS = pa.list_(pa.struct([("shard", pa.string()), ("pages", pa.int64())]))


@dataclass(frozen=True)
class Words:
    """The index of the words, and the pages that it numbers: those with text, in corpus order."""

    table: pa.Table

    of_notes: bool = False
    """Whether words of notes on figures are among them."""

    def __len__(self) -> int:
        return self._index.count

    def best(self, words: list[str], count: int, pages: PageFilter | None = None) -> tuple[list[Neighbour], float]:
        """At most `count` pages with a word of the query, the best first, equal ones in corpus order; and their match.

        The match is the best page's score as a share of what a page could have at most, from 0 to 1. `pages` names
        those of a shard that are searched.
        """
        scores = self._index.scores(words)
        for shard, ids, start in self._parts() if pages is not None else ():
            rows = rows_of(ids, shard, pages)
            if rows is not None:
                kept = np.zeros(ids.num_rows, bool)
                kept[rows] = True
                scores[start : start + ids.num_rows][~kept] = 0
        most = self._index.most(words)
        match = float(scores.max(initial=0.0)) / most if most else 0.0
        found = np.flatnonzero(scores)
        if len(found) > count:
            # Of equal pages at the end of the ranking any are found.
            found = found[np.argpartition(-scores[found], count - 1)[:count]]
        best = found[np.lexsort((found, -scores[found]))]
        shards = np.searchsorted(self._ends, best, side="right").tolist()
        ids = self._ids.take(pa.array(best)).to_pylist()
        ranked = zip(shards, ids, scores[best].tolist(), strict=True)
        return [Neighbour(self._shards[at]["shard"], page_id, score) for at, page_id, score in ranked], match

    @cached_property
    def _index(self) -> Bm25Index:
        return Bm25Index(self.table)

    @cached_property
    def _shards(self) -> list[dict[str, Any]]:
        return self.table["shards"][0].as_py()

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([shard["pages"] for shard in self._shards], dtype=np.int64)

    @cached_property
    def _ids(self) -> pa.Array:
        return self.table["page_ids"].chunk(0).flatten()

    def _parts(self) -> Iterator[tuple[str, pa.Table, int]]:
        """(shard, its pages as a table of `page_id`, the number of the first)."""
        for shard, end in zip(self._shards, self._ends.tolist(), strict=True):
            start = end - shard["pages"]
            yield shard["shard"], pa.table({"page_id": self._ids.slice(start, shard["pages"])}), start


class WordLookup:
    """The words of the tables as they are at the time of the call. `say` is told what takes long.

    With `notes`, the words of those that a model made on the figures of a page are words of the page too. `found` are
    the shards whose words are known and all of them, while those of many pages are found.
    """

    def __init__(
        self, store: SearchedTables, cache: ArrowCache, say: Callable[[str], None], notes: bool = False
    ) -> None:
        self._store, self._cache, self._say, self._notes = store, cache, say, notes
        self._open: tuple[str, Words] | None = None
        self.found: tuple[int, int] | None = None
        self._unknown = 0
        self._ended = Event()

    def end(self) -> None:
        """Stop finding words, in whichever thread does it: Python cannot end while one is in the analyser."""
        self._ended.set()

    def is_open(self, versions: Mapping[str, str]) -> bool:
        """Whether `refreshed` has nothing to do."""
        return self._open is not None and self._open[0] == _version(versions, self._noted())

    def refreshed(self, versions: Mapping[str, str]) -> Words:
        """The words of the shards whose tables of texts have these versions, in their order."""
        noted = self._noted()
        version = _version(versions, noted)
        if self._open is None or self._open[0] != version:
            try:
                table = self._cache.get("words", _ALL, version, lambda: self._made(versions, noted))
            finally:
                self.found = None
            self._open = version, Words(table, bool(noted))
        return self._open[1]

    def _noted(self) -> Mapping[str, str]:
        """The versions of the tables of notes, by shard."""
        return self._store.published(FIGURE_NOTES.name) if self._notes else {}

    def _made(self, versions: Mapping[str, str], noted: Mapping[str, str]) -> pa.Table:
        bm25, shards, page_ids = Bm25(), [], []
        self._unknown = 0
        for at, (shard, version) in enumerate(versions.items()):
            if len(page_ids) >= _MANY:
                self.found = at, len(versions)
            stamp = fingerprint([version, _tokenizer()])
            table = self._cache.get(
                "tokens", shard, stamp, lambda shard=shard, at=at: self._tokens(shard, at, len(versions))
            )
            if shard in noted:
                stamp = fingerprint([stamp, noted[shard]])
                table = self._cache.get(
                    "noted", shard, stamp, lambda shard=shard, table=table: self._with_notes(shard, table)
                )
            for page, tokens in enumerate(table["tokens"], len(page_ids)):
                bm25.add(page, tokens.as_py())
            page_ids += table["page_id"].to_pylist()
            shards.append({"shard": shard, "pages": table.num_rows})
        index = bm25.index().table
        index = index.append_column("page_ids", pa.array([page_ids], pa.large_list(pa.string())))
        return index.append_column("shards", pa.array([shards], _SHARDS))

    def _with_notes(self, shard: str, tokens: pa.Table) -> pa.Table:
        """The words of a shard's pages and of the notes on their figures; a page without text may have notes alone."""
        rows = self._store.read(FIGURE_NOTES.name, shard, ["page_id", "notes"]).to_pylist()
        said = {row["page_id"]: text for row in rows if (text := notes_text(row["notes"]))}
        page_ids = self._store.read(TEXTS, shard, ["page_id"])["page_id"].to_pylist()
        made = tokenised(pa.table({"page_id": list(said), "text": list(said.values())}))
        words = dict(zip(tokens["page_id"].to_pylist(), tokens["tokens"].to_pylist(), strict=True))
        for page_id, more in zip(made["page_id"].to_pylist(), made["tokens"].to_pylist(), strict=True):
            words[page_id] = [*words.get(page_id, ()), *more]
        listed = [page_id for page_id in page_ids if page_id in words]
        return pa.table([listed, [words[page_id] for page_id in listed]], schema=made.schema)

    def _tokens(self, shard: str, at: int, shards: int) -> pa.Table:
        """The words of a shard's pages, as `retrieval_scores` found them where they are of these texts.

        `at` is the number of the shard from 0, of all `shards`.
        """
        texts = self._store.read(TEXTS, shard, ["page_id", "text", "state"]).filter(pc.field("state").isin(MADE))
        if self._store.has(TOKENS, shard) and self._store.metadata(TOKENS, shard) == made_from(texts):
            return self._store.read(TOKENS, shard)
        self._unknown += texts.num_rows
        if self._unknown >= _MANY:
            self.found = at, shards
            self._say(f"finding the words of the pages, once for these texts: {shard} of {counted(shards, 'shard')}")
        parts = []
        for start in range(0, texts.num_rows, _AT_ONCE):
            if self._ended.is_set():
                raise CannotSearch("the search is ended")
            parts.append(tokenised(texts.slice(start, _AT_ONCE)))
        return pa.concat_tables(parts) if parts else tokenised(texts)


def _version(versions: Mapping[str, str], noted: Mapping[str, str]) -> str:
    """Identify the words of tables of texts and of notes of these versions."""
    notes = [(shard, noted[shard]) for shard in versions if shard in noted]
    return fingerprint([list(versions.items()), _tokenizer(), *([notes] if notes else [])])


def _tokenizer() -> list[object]:
    return [morphemes.VERSION.number, morphemes.tokenizer()]
