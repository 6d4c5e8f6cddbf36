"""The inputs of a release, its description, and its files."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

from kopub.release.gates import Gates
from kopub.states import LOST
from kopub.store.corpus_tables import (
    DOCUMENT_CHUNKS,
    FIGURE_TABLES,
    PASSAGE_VECTORS,
    RELEASED_FILES,
    TABLES,
    VECTOR_TABLES,
)

if TYPE_CHECKING:
    from kopub.pages.corpus import Corpus
    from kopub.pages.page_reader import Origin


class TableReader(Protocol):
    """A reader of the store's tables."""

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table: ...

    def metadata(self, asset: str, shard: str) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class ReleaseInput:
    """The tables of one shard by asset, with their metadata and ledger rows.

    `made` is the metadata of a table, `ledger` says which run made a row; both may lack assets. `unknown_pages` are
    pages of the ground truth that the corpus does not have. `figures` are the tables of figures by asset, as far as the
    profile sets them, and `chunks` is that of documents, if it is set. `corrections` are the lasting ones of the
    shard's pages; None leaves them out of the release.
    """

    raw_pages: pa.Table
    layout_regions: pa.Table
    ocr_results: pa.Table
    parsed_texts: pa.Table
    corpus_image_embeddings: pa.Table
    corpus_text_embeddings: pa.Table
    query_embeddings: pa.Table
    made: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ledger: Mapping[str, pa.Table] = field(default_factory=dict)
    unknown_pages: Collection[str] = ()
    figures: Mapping[str, pa.Table] = field(default_factory=dict)
    origin: "Callable[[int], Origin] | None" = None
    """The origin of each row of the source shard."""
    chunks: pa.Table | None = None
    corrections: pa.Table | None = None

    @classmethod
    def read(
        cls,
        reader: TableReader,
        shard: str,
        ledger: Mapping[str, pa.Table] | None = None,
        unknown_pages: Collection[str] = (),
        wanted: Collection[str] = (),
        origin: "Callable[[int], Origin] | None" = None,
    ) -> Self:
        """Read the tables of `shard`.

        Each field is the name of an asset; `wanted` names those of the optional assets that the profile sets.
        """
        tables: dict[str, pa.Table] = {}
        optional: dict[str, pa.Table] = {}
        made: dict[str, dict[str, str]] = {}
        for asset in (*ASSETS, *OPTIONAL_ASSETS):
            if asset in ASSETS or asset in wanted:
                (tables if asset in ASSETS else optional)[asset] = reader.read(asset, shard)
                made[asset] = reader.metadata(asset, shard)
        chunks = optional.pop(DOCUMENT_CHUNKS.name, None)
        return cls(
            **tables,
            made=made,
            ledger=ledger or {},
            unknown_pages=unknown_pages,
            figures=optional,
            chunks=chunks,
            origin=origin,
        )

    @property
    def tables(self) -> dict[str, pa.Table]:
        """All tables by asset, in the order in which the assets are made."""
        chunks = {} if self.chunks is None else {DOCUMENT_CHUNKS.name: self.chunks}
        return {asset: getattr(self, asset) for asset in ASSETS} | chunks | dict(self.figures)

    @property
    def page_tables(self) -> dict[str, pa.Table]:
        """The tables with one row per page."""
        return {asset: getattr(self, asset) for asset in PAGE_ASSETS} | dict(self.figures)

    def replaced(self, tables: Mapping[str, pa.Table]) -> Self:
        """Return a copy with some tables replaced, by asset."""
        figures = {asset: tables.get(asset, table) for asset, table in self.figures.items()}
        return replace(self, figures=figures, **{asset: t for asset, t in tables.items() if asset in ASSETS})


PAGE_ASSETS = tuple(table.name for table in TABLES.of_pages)
ASSETS = tuple(table.name for table in TABLES)
OPTIONAL_ASSETS = (DOCUMENT_CHUNKS.name, *(table.name for table in (*FIGURE_TABLES, PASSAGE_VECTORS)))
"""The assets that a release has only if the profile sets them."""

RELEASE = RELEASED_FILES.name
"""The asset whose table lists the released files of a shard."""
VECTORS = {"image_embeddings": VECTOR_TABLES["image"].name, "text_embeddings": VECTOR_TABLES["text"].name}
"""The table of pages' vectors behind each config."""

PageImages = Callable[[str], bytes | memoryview | None]
"""Returns the encoded image of a page by its id; None for one that cannot be used."""
OpenImages = Callable[[str], AbstractContextManager[PageImages]]
"""Opens the images of the pages of a shard."""
_SIGNATURES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp", b"II*\0": ".tif", b"MM\0*": ".tif"}


@contextmanager
def page_images(corpus: "Corpus", shard: str, raw_pages: pa.Table, upright: bool = False) -> Iterator[PageImages]:
    """Open the images of a shard's pages as the source holds them.

    `raw_pages` has the hashes that verify them. With `upright`, a page that was set upright is the PNG to which its
    boxes refer. Raises `SourceError`, also for an image that has changed by the time it is read.
    """
    columns = ["page_id", "page_idx", "sha256", "upright", "state"]
    pages = {page["page_id"]: page for page in raw_pages.select(columns).to_pylist()}
    with corpus.reader(shard) as source:

        def image(page_id: str) -> bytes | memoryview | None:
            page = pages[page_id]
            if page["state"] in LOST:
                return None
            return source.page(page_id, page["page_idx"], page["sha256"], page["upright"] if upright else None).data

        yield image


def image_suffix(data: bytes | memoryview) -> str:
    """Return the file suffix of an image, by its first bytes."""
    return _SIGNATURES.get(bytes(data[:4])) or _SIGNATURES.get(bytes(data[:3]), ".img")


@dataclass(frozen=True, slots=True)
class ReleaseDescription:
    """The facts about a release that its files do not hold.

    `limits` are sentences that a user must know, `shards` the keys that the corpus has now. `license` is that of pages
    that state none, and `publish_under` that of the release; None leaves every page under its own. `scores` is the
    table of retrieval scores of the released vectors, if measured, and `retrieval_problems` are sentences on problems
    with them. `self_tests` has a sentence on each engine's results for the samples, and `engine_problems` those of
    engines that failed. `reading` are tables of scores of pages with known answers, and `reading_problems` the
    sentences on problems with these. `unjudged` are sentences on scores of too little to prove a fall. `left`
    counts the pages that first looks at the sources left for later.
    """

    title: str
    source: str
    profile: str
    shards: Sequence[str]
    limits: Sequence[str] = ()
    languages: Sequence[str] = ("ko", "en")
    license: str | None = None
    publish_under: str | None = None
    gates: Gates = field(default_factory=Gates)
    scores: pa.Table | None = None
    retrieval_problems: Sequence[str] = ()
    self_tests: Sequence[str] = ()
    engine_problems: Sequence[str] = ()
    reading: Sequence[pa.Table] = ()
    reading_problems: Sequence[str] = ()
    unjudged: Sequence[str] = ()
    left: int = 0


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    """A published file: its path in the release, SHA-256, rows and size.

    `rows` is None for a file that is not a table.
    """

    path: str
    sha256: str
    rows: int | None
    bytes: int
