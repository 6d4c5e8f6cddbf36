"""An opened corpus: its documents and pages, from a catalogue of ids and states."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from kopub.api.documents import Document, Documents
from kopub.api.pages import NoSuchPage, Page, Pages
from kopub.api.rows import TableName, catalogue_of, collect_rows, empty, numbers_array
from kopub.api.search import Answer, answer_of, embedder_of, searcher_of
from kopub.api.sources.home import HomeSource
from kopub.api.sources.release import ObjectReleaseSource, ReleaseSource, is_release
from kopub.api.sources.source import Place, Source
from kopub.errors import KopubError, SourceError, counted, did_you_mean, quoted
from kopub.files import is_url
from kopub.folders import placed, store_url
from kopub.pages.manifest import NAME
from kopub.pages.places import CorpusPlace
from kopub.parallel import ordered_map
from kopub.search.options import Mode, Where
from kopub.store.corpus_tables import TABLES
from kopub.store.table_store import TableStore

if TYPE_CHECKING:
    import pandas as pd

    from kopub.search.searcher import Searcher

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
STORE = "store"
"""Folder of the tables in a home, unless the profile says otherwise."""


def open(
    where: str | os.PathLike[str] | None = None,
    *,
    store: str | None = None,
    index: str | None = None,
    revision: str | None = None,
    profile: str | None = None,
) -> "Corpus":
    """Open the corpus of a home or of a release.

    A release is given by its folder, its URL or its id on the Hub; by default, the home is $KOPUB_HOME. `store` and
    `index` are the folders or fsspec URLs of a home's tables and of its corpus's index, if they lie elsewhere, like
    `store.url` and `corpus.url` of a profile; relative folders are below the current one. `revision` is a branch, tag
    or commit of a repository on the Hub. Files of the Hub are fetched when they are first needed, those with the pages
    at once; so are those of a release at a URL, into $KOPUB_HOME/sources. `profile` is the name or path of the profile
    whose engine embeds questions, by default $KOPUB_PROFILE or `cpu`. Raises `SourceError` for anything else,
    `HubError` if a repository cannot be read, and `StoreError` for a damaged table or a storage that does not answer.
    """
    address = os.environ.get("KOPUB_HOME", "data") if where is None else os.fspath(where)
    if where is not None and is_url(address):
        address = _package_url(address)
    if where is not None and is_url(address):
        _require_none(address, "a release", store=store, index=index, revision=revision)
        return Corpus(ObjectReleaseSource(address, CorpusPlace(_default_home()).fetched), profile)
    folder = _default_home() if where is None else Path(os.path.expanduser(address)).absolute()
    # Unlike pathlib's, these functions call a name that no file can have one that is not there; an empty one, as of a
    # variable that is not set, would be the current folder.
    if where != "" and os.path.isdir(folder):
        _require_none(address, "a folder", revision=revision)
        if not is_release(folder):
            corpus = CorpusPlace(folder, _package_url(index).rstrip("/") if index else "")
            if not store and not (folder / STORE).is_dir():
                if (folder / NAME).exists():
                    raise SourceError(f"{quoted(address)} has an index and no tables yet: run `kopub run`")
                line = "is neither a home with tables nor a release: run `kopub run` in it, or name another folder"
                raise SourceError(f"{quoted(address)} {line}")
            if index and not corpus.has(NAME):
                raise SourceError(f"{quoted(index)} has no {NAME}: correct index=, or run `kopub index`")
            tables = TableStore(_package_url(store) if store else str(folder / STORE))
            if store and not tables.published(TABLES.pages.name):
                raise SourceError(f"{quoted(store)} has no tables: correct store=, or run `kopub run`")
            return Corpus(HomeSource(corpus, tables), profile)
        _require_none(address, "a release", store=store, index=index)
        return Corpus(ReleaseSource(folder), profile)
    if os.path.exists(folder) or where is None or not _HUB_ID.fullmatch(address):
        raise SourceError(
            f"{quoted(address)} is no folder: name a home, a release by its folder or URL, or OWNER/NAME on the Hub"
        )
    _require_none(address, "a release", store=store, index=index)
    # The Hub's client takes a tenth of a second to import.
    from kopub.api.sources.hub_release import HubSource

    return Corpus(HubSource(address, revision), profile)


def _require_none(address: str, kind: str, **options: str | None) -> None:
    """Raise `SourceError` for an option without a meaning for what was given."""
    for name, value in options.items():
        if value is not None:
            raise SourceError(f"{quoted(address)} is {kind}, which has no {name}: leave out {name}={quoted(value)}")


def _default_home() -> Path:
    """Return the folder of $KOPUB_HOME. Raises `SourceError`."""
    try:
        return placed(os.environ.get("KOPUB_HOME", "data"))
    except ValueError as error:
        raise SourceError(f"KOPUB_HOME: {error}") from None


def _package_url(address: str) -> str:
    """Return a URL, or a folder as an absolute path. Raises `SourceError`."""
    try:
        url = store_url(address)
    except ValueError as error:
        raise SourceError(str(error)) from None
    # A profile's relative folder is below the checkout; that of a Python program is below the current folder.
    return url if is_url(address) else str(Path(address).expanduser().absolute())


_READERS = 8
"""Shards whose catalogues are read at the same time: object storage takes 50 ms to answer each."""


class Corpus:
    """A home or a release as it was when it was opened; `refreshed` looks again.

    Threads may share it. `catalogue` is the one table in memory: texts, regions, vectors and pictures are read page
    by page.
    """

    def __init__(self, source: Source, profile: str | None = None) -> None:
        self._source, self._profile = source, profile

    def __repr__(self) -> str:
        has = f"{counted(len(self.documents), 'document')}, {counted(len(self.pages), 'page')}"
        return f"<kopub.Corpus {self.location}: {has}>"

    def __copy__(self) -> "Corpus":
        return self

    def __reduce__(self) -> NoReturn:
        # Opened anew elsewhere it could be of other tables, and a page of it another page.
        raise TypeError("a corpus cannot be pickled or copied deeply: send ids, and open it where they are used")

    @property
    def location(self) -> str:
        """Return the place from which it was opened."""
        return self._source.location

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each omission: shards without pages, tables of another corpus."""
        return tuple(self._source.notes)

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that have pages, in corpus order."""
        return tuple(self._source.shards)

    @cached_property
    def catalogue(self) -> pa.Table:
        """A row for each page, in corpus order.

        Columns: page_id, doc_id, page_no, shard, row, state and doubt.
        """
        return catalogue_of(self.shards, list(ordered_map(self._source.catalogue, self.shards, _READERS)))

    @cached_property
    def pages(self) -> Pages:
        """All pages, in corpus order."""
        return Pages(self, np.arange(self.catalogue.num_rows, dtype=np.int64))

    @cached_property
    def documents(self) -> Documents:
        """All documents, in the order of their first pages."""
        # A method, as documents must say that their corpus cannot be pickled.
        return Documents(self._by_document[0], self._pages_of)

    def page(self, page_id: str) -> Page:
        """Return the page with this id. Raises `NoSuchPage`, with similar ids."""
        at = self.position(page_id)
        if at is None:
            raise NoSuchPage(f"there is no page {page_id!r}{did_you_mean(str(page_id), self._positions)}")
        return self.page_at(at)

    def refreshed(self) -> "Corpus":
        """Return the corpus as it is now, or itself if no table has changed."""
        source = self._source.fresh()
        return self if source is self._source else Corpus(source, self._profile)

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        mode: str | None = None,
        documents: Document | Iterable[Document | str] = (),
        shards: Iterable[str] = (),
        has_table: bool = False,
        has_figure: bool = False,
        scripts: Iterable[str] = (),
    ) -> Answer:
        """Return the best pages for a question, as `kopub search` finds them.

        `mode` is auto, fusion, reranked, bm25, vectors, text, image or figure; by default the profile's own, which is
        the best one measured. The other arguments select the pages to search: those of any of the documents, in any of
        the shards, with a table, with a figure, mainly in any of the scripts (`page.script`). The engine of the profile
        with which the corpus was opened embeds the question. Raises `KopubError`, one line, for a question that cannot
        be answered.
        """
        if not isinstance(query, str):
            raise KopubError(f"the query is {query!r}, and must be a string")
        if limit < 1:
            raise KopubError(f"limit is {limit}, and must be at least 1")
        searcher, notes = self._searcher
        where = Where(_names(documents), _names(shards), has_table, has_figure, _names(scripts))
        if mode is not None and mode not in list(Mode):
            raise KopubError(f"there is no mode {mode!r}{did_you_mean(mode, list(Mode))}; there are {', '.join(Mode)}")
        answer = searcher.search(query, limit, None if mode is None else Mode(mode), where)
        # A page that the search found may be newer than this corpus.
        return answer_of(answer, lambda id: (self if id in self._positions else self.refreshed()).page(id), notes)

    def embed(self, texts: Sequence[str], *, queries: bool = False) -> np.ndarray:
        """Return the vectors of texts, or of `queries` that find them.

        They are made by the engine of the profile: float32 of shape (texts, dim), zeros for a text without words.
        Raises `KopubError`, one line, if a text is no string or has no vector.
        """
        if isinstance(texts, str):
            raise KopubError("embed takes a list of texts: embed([text])")
        embedder = embedder_of(self._source, self._profile)
        vectors = np.zeros((len(texts), embedder.dim), np.float32)
        numbered: list[tuple[str, str]] = []
        for at, text in enumerate(texts):
            if not isinstance(text, str):
                raise KopubError(f"text {at} is {text!r}, and must be a string")
            numbered.append((str(at), text))
        for embedding in embedder.embed_queries(numbered) if queries else embedder.embed_texts(numbered):
            if embedding.vector is not None:
                vectors[int(embedding.id)] = embedding.vector
            elif embedding.reason:
                raise KopubError(f"text {embedding.id} has no vector: {embedding.reason}")
        return vectors

    def to_arrow(self, table: TableName = "pages") -> pa.Table:
        """Return all pages, regions or vectors; see `Pages.to_arrow`."""
        return self.pages.to_arrow(table)

    def to_pandas(self, table: TableName = "pages") -> "pd.DataFrame":
        """Return `to_arrow` as a DataFrame; boxes and vectors are NumPy arrays."""
        return self.pages.to_pandas(table)

    def table(self, name: TableName, ids: Sequence[str]) -> pa.Table:
        """Return the rows of the pages `ids`, in their order."""
        rows = [at for page_id in ids if (at := self.position(page_id)) is not None]
        of_pages = set(self.catalogue["shard"].take(numbers_array(np.array(rows, np.int64))).to_pylist())
        shards = [shard for shard in self.shards if shard in of_pages]
        return collect_rows(ids, shards, lambda shard: self._source.table(shard, name), empty(name))

    def page_at(self, at: int) -> Page:
        """Return the page at a row of the catalogue."""
        place = Place(self.value("shard", at), self.value("row", at), self.value("page_id", at))
        return Page(self, self._source, at, place)

    def position(self, page_id: str) -> int | None:
        """Return the row of a page in the catalogue; None for an unknown id."""
        return self._positions.get(page_id)

    def value(self, column: str, at: int) -> Any:
        """Return one value of the catalogue."""
        return self.catalogue[column][at].as_py()

    def document_of(self, at: int) -> Document:
        """Return the document of the page at a row of the catalogue."""
        return self.documents[int(self._by_document[1][at])]

    def neighbour(self, at: int, step: int) -> Page | None:
        """Return the page `step` pages further on in the same document.

        `at` is the row of the first page in the catalogue.
        """
        _, documents, order, places, starts = self._by_document
        to = int(places[at]) + step
        document = documents[at]
        return self.page_at(int(order[to])) if starts[document] <= to < starts[document + 1] else None

    @cached_property
    def doubts(self) -> np.ndarray:
        """The column `doubt`, 0 where it is null."""
        return np.array([doubt or 0.0 for doubt in self.catalogue["doubt"].to_pylist()])

    @cached_property
    def _searcher(self) -> "tuple[Searcher, list[str]]":
        return searcher_of(self._source, self._profile)

    def _pages_of(self, document: int) -> Pages:
        _, _, order, _, starts = self._by_document
        return Pages(self, order[starts[document] : starts[document + 1]])

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {page_id: at for at, page_id in enumerate(self.catalogue["page_id"].to_pylist())}

    @cached_property
    def _by_document(self) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The pages sorted by document and number.

        These are the ids of the documents, the document of each page, the pages by document and number, the place of
        each page in that order, and the place of each document's first page, with the end of the last.
        """
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


def _names(items: Document | Iterable[Document | str]) -> frozenset[str]:
    """Return names as a set; a single string is one name, not several letters."""
    items = [items] if isinstance(items, str | Document) else items
    return frozenset(item.id if isinstance(item, Document) else item for item in items)
