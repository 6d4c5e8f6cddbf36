"""A corpus that was opened: its documents and pages, from a catalogue of ids and states."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa

from kopub.page import Page
from kopub.source import Place, Source
from resources.errors import KopubError, did_you_mean
from resources.parallel import ordered_map
from resources.states import State, count_states
from resources.texts.text_quality import DOUBTFUL

CATALOGUE = pa.schema(
    [
        ("page_id", pa.string()),
        ("doc_id", pa.dictionary(pa.int32(), pa.string())),
        ("page_no", pa.int32()),
        ("shard", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int32()),
        ("state", pa.dictionary(pa.int32(), pa.string())),
        ("doubt", pa.float32()),
    ]
)
"""What is known of every page at once."""
_READERS = 8
"""Shards whose catalogues are read at once: object storage takes 50 ms to answer each."""


class NoSuchPage(KopubError, KeyError):
    """An id that no page or document of the corpus has."""

    __str__ = KopubError.__str__


class Pages(Sequence[Page]):
    """Pages of a corpus in an order: by number, by slice, or by id; `in` takes an id or a page."""

    def __init__(self, corpus: "Corpus", positions: np.ndarray) -> None:
        self._corpus, self._positions = corpus, np.ascontiguousarray(positions, np.int64)

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, key: int | str) -> Page: ...
    @overload
    def __getitem__(self, key: slice) -> "Pages": ...
    def __getitem__(self, key: int | str | slice) -> "Page | Pages":
        if isinstance(key, slice):
            return Pages(self._corpus, self._positions[key])
        if isinstance(key, str):
            page = self._corpus.page(key)
            if page not in self:
                raise NoSuchPage(f"the page {key!r} is not among these {len(self):,}")
            return page
        return self._corpus.page_at(int(self._positions[key]))

    def __iter__(self) -> Iterator[Page]:
        return (self._corpus.page_at(at) for at in self._positions.tolist())

    def __contains__(self, item: object) -> bool:
        page_id = item.id if isinstance(item, Page) else item
        at = self._corpus.position(page_id) if isinstance(page_id, str) else None
        return at is not None and at in self._numbers

    def __repr__(self) -> str:
        return f"<kopub.Pages: {len(self):,} pages>"

    @property
    def catalogue(self) -> pa.Table:
        """page_id, doc_id, page_no, shard, row, state and doubt of these pages."""
        return self._corpus.catalogue.take(_array(self._positions))

    @property
    def ids(self) -> list[str]:
        return self.catalogue["page_id"].to_pylist()

    @property
    def states(self) -> dict[State, int]:
        """How many of the pages ended in each state."""
        return {State(state): count for state, count in count_states(self.catalogue["state"].to_pylist()).items()}

    @property
    def doubtful(self) -> "Pages":
        """Those whose text looks wrong, worst first."""
        doubts = self._corpus.doubts[self._positions]
        order = np.argsort(-doubts, kind="stable")
        return Pages(self._corpus, self._positions[order[doubts[order] >= DOUBTFUL]])

    def where(self, state: State | str | Collection[State | str] = (), shard: str | None = None) -> "Pages":
        """Those in one of the states, or in the shard; in the same order."""
        wanted = {State(each) for each in ([state] if isinstance(state, str) else state)}
        kept = np.ones(len(self), bool)
        catalogue = self.catalogue
        if wanted:
            kept &= np.isin(catalogue["state"].to_pylist(), list(wanted))
        if shard is not None:
            kept &= np.isin(catalogue["shard"].to_pylist(), [shard])
        return Pages(self._corpus, self._positions[kept])

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(self._positions.tolist())


class Document:
    """A document: its id, which is empty for pages of no document, and its pages by their numbers."""

    def __init__(self, id: str, pages: Pages) -> None:
        self.id = id
        self.pages = pages

    def __repr__(self) -> str:
        return f"<kopub.Document {self.id!r}: {len(self.pages)} pages>"

    def __len__(self) -> int:
        return len(self.pages)

    @cached_property
    def states(self) -> dict[State, int]:
        """How many of its pages ended in each state."""
        return self.pages.states


class Documents(Sequence[Document]):
    """The documents of a corpus in the order of their first pages: by number, by slice, or by id."""

    def __init__(self, ids: Sequence[str], pages: Callable[[int], Pages]) -> None:
        self._ids, self._pages = ids, pages

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, key: int | str) -> Document: ...
    @overload
    def __getitem__(self, key: slice) -> list[Document]: ...
    def __getitem__(self, key: int | str | slice) -> Document | list[Document]:
        if isinstance(key, slice):
            return [self._document(at) for at in range(len(self))[key]]
        if isinstance(key, str):
            if key not in self._numbers:
                raise NoSuchPage(f"there is no document {key!r}{did_you_mean(key, self._ids)}")
            key = self._numbers[key]
        return self._document(range(len(self))[key])

    def __iter__(self) -> Iterator[Document]:
        return (self._document(at) for at in range(len(self)))

    def __contains__(self, item: object) -> bool:
        return (item.id if isinstance(item, Document) else item) in self._numbers

    def __repr__(self) -> str:
        return f"<kopub.Documents: {len(self):,} documents>"

    @property
    def ids(self) -> list[str]:
        return list(self._ids)

    def _document(self, at: int) -> Document:
        return Document(self._ids[at], self._pages(at))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {document: at for at, document in enumerate(self._ids)}


class Corpus:
    """What a home or a release holds, as it was when it was opened; `refreshed` looks again.

    Threads may share it. `catalogue` is the one table in memory: texts, regions, vectors and pictures are read page
    by page.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def __repr__(self) -> str:
        return f"<kopub.Corpus {self.location}: {len(self.documents):,} documents, {len(self.pages):,} pages>"

    @property
    def location(self) -> str:
        """Where it was opened."""
        return self._source.location

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left out, a sentence each: shards without pages yet, tables of another corpus."""
        return tuple(self._source.notes)

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that have pages, in corpus order."""
        return tuple(self._source.shards)

    @cached_property
    def catalogue(self) -> pa.Table:
        """A row for each page, in corpus order: page_id, doc_id, page_no, shard, row, state and doubt."""

        tables = list(ordered_map(self._source.catalogue, self.shards, _READERS))
        if not tables:
            return CATALOGUE.empty_table()
        counts = [table.num_rows for table in tables]
        rows = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        own = {"shard": pa.DictionaryArray.from_arrays(_array(numbers), _strings(self.shards)), "row": _array(rows)}
        read = pa.concat_tables(tables)
        columns = [own[field.name] if field.name in own else _typed(read[field.name], field) for field in CATALOGUE]
        return pa.Table.from_arrays(columns, schema=CATALOGUE).combine_chunks()

    @cached_property
    def pages(self) -> Pages:
        """All pages, in corpus order."""
        return Pages(self, np.arange(self.catalogue.num_rows, dtype=np.int64))

    @cached_property
    def documents(self) -> Documents:
        """All documents, in the order of their first pages."""
        return Documents(self._by_document[0], self._pages_of)

    def page(self, page_id: str) -> Page:
        """The page of an id. Raises `NoSuchPage`, with near ids."""
        at = self.position(page_id)
        if at is None:
            raise NoSuchPage(f"there is no page {page_id!r}{did_you_mean(page_id, self._positions)}")
        return self.page_at(at)

    def refreshed(self) -> "Corpus":
        """The corpus as it is now: itself when no table changed."""
        source = self._source.fresh()
        return self if source is self._source else Corpus(source)

    def page_at(self, at: int) -> Page:
        """The page at a row of the catalogue."""
        place = Place(self.value("shard", at), self.value("row", at), self.value("page_id", at))
        return Page(self, self._source, at, place)

    def position(self, page_id: str) -> int | None:
        """The row of a page in the catalogue; None for an unknown id."""
        return self._positions.get(page_id)

    def value(self, column: str, at: int) -> Any:
        """One value of the catalogue."""
        return self.catalogue[column][at].as_py()

    def document_of(self, at: int) -> Document:
        """The document of the page at a row of the catalogue."""
        return self.documents[int(self._by_document[1][at])]

    def neighbour(self, at: int, step: int) -> Page | None:
        """The page `step` pages further in the document of the page at a row of the catalogue."""
        _, documents, order, places, starts = self._by_document
        to = int(places[at]) + step
        document = documents[at]
        return self.page_at(int(order[to])) if starts[document] <= to < starts[document + 1] else None

    @cached_property
    def doubts(self) -> np.ndarray:
        """The column `doubt`, 0 where it is null."""
        return np.array([doubt or 0.0 for doubt in self.catalogue["doubt"].to_pylist()])

    def _pages_of(self, document: int) -> Pages:
        _, _, order, _, starts = self._by_document
        return Pages(self, order[starts[document] : starts[document + 1]])

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {page_id: at for at, page_id in enumerate(self.catalogue["page_id"].to_pylist())}

    @cached_property
    def _by_document(self) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Ids of the documents; by page its document; the pages by document and number; by page its place there;
        by document the place of its first page, and the end."""
        ids: dict[str, int] = {}
        names = self.catalogue["doc_id"].to_pylist()
        documents = np.array([ids.setdefault(name or "", len(ids)) for name in names], np.int64)
        last = np.iinfo(np.int32).max
        numbers = np.array([last if number is None else number for number in self.catalogue["page_no"].to_pylist()])
        order = np.lexsort((numbers, documents))
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        starts = np.searchsorted(documents[order], np.arange(len(ids) + 1))
        return list(ids), documents, order, places, starts


def _typed(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.cast(field.type)


# Arrays are made from buffers: the first one that is made of Python values loads pandas, which takes 0.3 s and 40 MB.


def _array(values: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _strings(values: Sequence[str]) -> pa.StringArray:
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
