"""Search by words: the BM25 index of a corpus, and its lookup.

The index covers the texts of all shards, in one memory-mapped file.
"""

from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kopub.errors import counted
from kopub.figures.figure import notes_text
from kopub.fingerprints import fingerprint, table_fingerprint
from kopub.search.answer import CannotSearch
from kopub.search.morphemes import VERSION, tokenizer, tokens
from kopub.search.pages import ArrowCache, SearchedTables
from kopub.search.ranking import Bm25, Bm25Index
from kopub.search.vectors import Neighbour, PageFilter, rows_of
from kopub.states import MADE
from kopub.store.corpus_tables import FIGURE_NOTES, TABLES
from kopub.store.schemas import RETRIEVAL_TOKENS

TEXTS = TABLES.texts.name
"""The table whose words are searched."""
_ALL = "all"
"""The index covers all shards, because the rarity of a word depends on each of them."""
_MANY = 500
"""Number of pages whose words take some seconds to find, which is reported to the user."""
_AT_ONCE = 64
"""Pages whose words are found between two checks whether the result is still wanted."""
_SHARDS = pa.list_(pa.struct([("shard", pa.string()), ("pages", pa.int64())]))


class Words:
    """The index of the words, and its pages: those with text, in corpus order."""

    def __init__(self, table: pa.Table, of_notes: bool = False) -> None:
        self.of_notes = of_notes
        """Whether words of notes on figures are indexed too."""
        self._index = Bm25Index(table)
        self._shards: list[dict[str, Any]] = table["shards"][0].as_py()
        self._ends = np.cumsum([shard["pages"] for shard in self._shards], dtype=np.int64)
        self._ids: pa.Array = table["page_ids"].chunk(0).flatten()

    def count(self, pages: PageFilter | None = None) -> int:
        """Return the number of indexed pages among the searched ones."""
        count = 0
        for shard, ids, _ in self._parts():
            rows = rows_of(ids, shard, pages)
            count += ids.num_rows if rows is None else len(rows)
        return count

    def best(self, words: list[str], count: int, pages: PageFilter | None = None) -> tuple[list[Neighbour], float]:
        """Return at most `count` pages with a word of the query, and the match.

        The best page comes first, and equal ones are in corpus order. The match is the best page's score as a share of
        the highest possible one, from 0 to 1. `pages` returns a shard's searched pages.
        """
        scores = self._index.scores(words)
        for shard, ids, start in self._parts() if pages is not None else ():
            rows = rows_of(ids, shard, pages)
            if rows is not None:
                is_left_out = np.ones(ids.num_rows, bool)
                is_left_out[rows] = False
                scores[start : start + ids.num_rows][is_left_out] = 0
        most = self._index.most(words)
        match = float(scores.max(initial=0.0)) / most if most else 0.0
        best = np.flatnonzero(scores)
        if len(best) > count:
            # Of equal pages at the end of the ranking, an arbitrary selection is returned.
            best = best[np.argpartition(-scores[best], count - 1)[:count]]
        best = best[np.lexsort((best, -scores[best]))]
        shards = np.searchsorted(self._ends, best, side="right").tolist()
        ids = self._ids.take(pa.array(best)).to_pylist()
        ranked = zip(shards, ids, scores[best].tolist(), strict=True)
        return [Neighbour(self._shards[at]["shard"], page_id, score) for at, page_id, score in ranked], match

    def _parts(self) -> Iterator[tuple[str, pa.Table, int]]:
        """Yield (shard, its pages as a table with `page_id`, the number of its first page)."""
        for shard, end in zip(self._shards, self._ends.tolist(), strict=True):
            start = end - shard["pages"]
            yield shard["shard"], pa.table({"page_id": self._ids.slice(start, shard["pages"])}), start


class WordLookup:
    """The lookup of the current tables' words.

    `say` is called about work that takes long. With `notes`, words of a model's notes on the figures of a page count as
    words of the page. While the words of many pages are being found, `progress` holds the number of shards with known
    words and of all shards.
    """

    def __init__(self, store: SearchedTables, cache: ArrowCache, say: Callable[[str], None], notes: bool) -> None:
        self._store, self._cache, self._say, self._notes = store, cache, say, notes
        self._open: tuple[str, Words] | None = None
        self.progress: tuple[int, int] | None = None
        self._unknown = 0
        self._ended = Event()

    def end(self) -> None:
        """Stop finding words in any thread, because Python cannot exit during an analysis."""
        self._ended.set()

    def is_open(self, versions: Mapping[str, str]) -> bool:
        """Return whether `refreshed` has nothing to do."""
        return self._open is not None and self._open[0] == _version(versions, self._noted())

    def refreshed(self, versions: Mapping[str, str]) -> Words:
        """Return the words of the text tables with these versions by shard, in order."""
        noted = self._noted()
        version = _version(versions, noted)
        if self._open is None or self._open[0] != version:
            try:
                table = self._cache.get("words", _ALL, version, lambda: self._made(versions, noted))
            finally:
                self.progress = None
            self._open = version, Words(table, bool(noted))
        return self._open[1]

    def _noted(self) -> Mapping[str, str]:
        """Return the versions of the note tables, by shard."""
        return self._store.published(FIGURE_NOTES.name) if self._notes else {}

    def _made(self, versions: Mapping[str, str], noted: Mapping[str, str]) -> pa.Table:
        bm25, shards, page_ids = Bm25(), [], []
        self._unknown = 0
        for at, (shard, version) in enumerate(versions.items()):
            if len(page_ids) >= _MANY:
                self.progress = at, len(versions)
            stamp = fingerprint([version, _tokenizer()])
            table = self._cache.get(
                "tokens", shard, stamp, lambda shard=shard, at=at: _coded(self._tokens(shard, at, len(versions)))
            )
            if shard in noted:
                stamp = fingerprint([stamp, noted[shard]])
                table = self._cache.get(
                    "noted", shard, stamp, lambda shard=shard, table=table: _coded(self._with_notes(shard, table))
                )
            lists = table["tokens"].combine_chunks()
            numbers, coded = range(len(page_ids), len(page_ids) + table.num_rows), lists.flatten()
            bm25.add_coded(
                numbers, coded.dictionary.to_pylist(), coded.indices.to_numpy(), lists.value_lengths().to_numpy()
            )
            page_ids += table["page_id"].to_pylist()
            shards.append({"shard": shard, "pages": table.num_rows})
        index = bm25.index().table
        index = index.append_column("page_ids", pa.array([page_ids], pa.large_list(pa.string())))
        return index.append_column("shards", pa.array([shards], _SHARDS))

    def _with_notes(self, shard: str, tokens: pa.Table) -> pa.Table:
        """Return the words of a shard's pages and of the notes on their figures.

        A page without text may have only notes.
        """
        rows = self._store.read(FIGURE_NOTES.name, shard, ["page_id", "notes"]).to_pylist()
        notes = {row["page_id"]: text for row in rows if (text := notes_text(row["notes"]))}
        of_notes = tokenise(pa.table({"page_id": list(notes), "text": list(notes.values())}))
        words = dict(zip(tokens["page_id"].to_pylist(), tokens["tokens"].to_pylist(), strict=True))
        for page_id, more in zip(of_notes["page_id"].to_pylist(), of_notes["tokens"].to_pylist(), strict=True):
            words[page_id] = [*words.get(page_id, ()), *more]
        page_ids = self._store.read(TEXTS, shard, ["page_id"])["page_id"].to_pylist()
        in_order = {page_id: words[page_id] for page_id in page_ids if page_id in words}
        return pa.table([list(in_order), list(in_order.values())], schema=of_notes.schema)

    def _tokens(self, shard: str, at: int, shards: int) -> pa.Table:
        """Return the words of a shard's pages.

        Words that `retrieval_scores` stored are reused if they belong to these texts. `at` is the number of the shard,
        from 0, of all `shards`.
        """
        texts = self._store.read(TEXTS, shard, ["page_id", "text", "state"]).filter(pc.field("state").isin(MADE))
        marks = [fingerprint([text, *_tokenizer()]) for text in texts["text"].to_pylist()]
        if self._store.has(TOKENS, shard) and self._store.metadata(TOKENS, shard) == made_from(texts):
            return self._store.read(TOKENS, shard).append_column(_MARK, [marks])
        # Of a shard that changed, most pages have the texts that they had.
        before = self._cache.kept("tokens", shard)
        earlier: dict[str, list[str]] = {}
        if before is not None:
            earlier = dict(zip(before[_MARK].to_pylist(), before["tokens"].to_pylist(), strict=True))
        unknown = texts.filter(pa.array([mark not in earlier for mark in marks], pa.bool_()))
        self._unknown += unknown.num_rows
        if self._unknown >= _MANY:
            self.progress = at, shards
            self._say(f"splitting the pages into words, once for these texts: {shard} of {counted(shards, 'shard')}")
        new: list[list[str]] = []
        for start in range(0, unknown.num_rows, _AT_ONCE):
            if self._ended.is_set():
                raise CannotSearch("the search is ended")
            new += tokenise(unknown.slice(start, _AT_ONCE))["tokens"].to_pylist()
        in_order = iter(new)
        words = [earlier[mark] if mark in earlier else next(in_order) for mark in marks]
        return pa.table([texts["page_id"], words], schema=RETRIEVAL_TOKENS).append_column(_MARK, [marks])


_MARK = "mark"
"""The column of a page's text and all else that determines its words, as a fingerprint."""


def _coded(tokens: pa.Table) -> pa.Table:
    """Return a table of words with each different one stored once."""
    lists = tokens["tokens"].combine_chunks()
    coded = pa.ListArray.from_arrays(lists.offsets, lists.values.dictionary_encode())
    return tokens.set_column(tokens.column_names.index("tokens"), "tokens", coded)


def _version(versions: Mapping[str, str], noted: Mapping[str, str]) -> str:
    """Return an identifier of the words of text and note tables with these versions."""
    notes = [(shard, noted[shard]) for shard in versions if shard in noted]
    return fingerprint([list(versions.items()), _tokenizer(), *([notes] if notes else [])])


def _tokenizer() -> list[object]:
    return [VERSION.number, tokenizer()]


TOKENS = "retrieval_tokens"
"""The name of the table in the store."""


def made_from(texts: pa.Table) -> dict[str, str]:
    """Return everything that determines the words of these texts, as table metadata.

    `texts` is a table with `page_id` and `text`.
    """
    return {"texts": table_fingerprint(texts), "version": str(VERSION.number), **tokenizer()}


def tokenise(texts: pa.Table) -> pa.Table:
    """Return the table of the words of these texts, in order."""
    words = pa.array(list(tokens(texts["text"].to_pylist())), pa.list_(pa.string()))
    return pa.Table.from_arrays([texts["page_id"], words], schema=RETRIEVAL_TOKENS)
