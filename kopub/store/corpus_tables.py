"""The tables of the store, by what they hold.

Only this module names the assets. An asset writes its table, and search, release and diff read it: the table is the
contract between them, so it belongs to neither side.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

import pyarrow as pa

from kopub.store import schemas


@dataclass(frozen=True)
class Table:
    """A table of the store: its name, its schema and its key column.

    It has one Parquet file per shard. The `schema` of a table of vectors is a function of their width.
    """

    name: str
    schema: pa.Schema | Callable[[int], pa.Schema]
    key: str = "page_id"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class CorpusTables:
    """The tables of a corpus by what they hold, in the order of making."""

    pages: Table
    regions: Table
    readings: Table
    texts: Table
    image_vectors: Table
    text_vectors: Table
    query_vectors: Table

    def __iter__(self) -> Iterator[Table]:
        return (getattr(self, field.name) for field in fields(self))

    @property
    def of_pages(self) -> tuple[Table, ...]:
        """The tables that have a row for each page."""
        return tuple(table for table in self if table.key == self.pages.key)


TABLES = CorpusTables(
    pages=Table("raw_pages", schemas.RAW_PAGES),
    regions=Table("layout_regions", schemas.LAYOUT_REGIONS),
    readings=Table("ocr_results", schemas.OCR_RESULTS),
    texts=Table("parsed_texts", schemas.PARSED_TEXTS),
    image_vectors=Table("corpus_image_embeddings", schemas.page_embeddings),
    text_vectors=Table("corpus_text_embeddings", schemas.page_embeddings),
    query_vectors=Table("query_embeddings", schemas.query_embeddings, key="query_id"),
)
FIGURE_NOTES = Table("figure_notes", schemas.FIGURE_NOTES)
FIGURE_VECTORS = Table("figure_embeddings", schemas.figure_embeddings)
FIGURE_TABLES = (FIGURE_NOTES, FIGURE_VECTORS)
"""The tables of figures, made only if a profile asks for them."""
PASSAGE_VECTORS = Table("passage_embeddings", schemas.passage_embeddings)
"""The table of passages, made only if the engine of vectors makes them."""
DOCUMENT_CHUNKS = Table("document_chunks", schemas.DOCUMENT_CHUNKS)
"""The chunks of the documents that begin in a shard, made only if a profile asks for them."""
CHUNK_VECTORS = Table("chunk_embeddings", schemas.chunk_embeddings, key="id")
"""The vectors of those chunks, made only if a profile names a sink."""
SUNK_CHUNKS = Table("search_sink", schemas.SEARCH_SINK, key="id")
"""The records of a vector store."""
PARTS = {FIGURE_VECTORS.name: "figures", PASSAGE_VECTORS.name: "passages"}
"""The column of each table that lists parts of a page, each with a vector."""
VECTOR_TABLES = {
    "text": TABLES.text_vectors,
    "meaning": PASSAGE_VECTORS,
    "image": TABLES.image_vectors,
    "figure": FIGURE_VECTORS,
}
"""The table of each kind of vector that a query is compared with."""
RELEASED_FILES = Table("hf_release", schemas.HF_RELEASE, key="path")
SCORES = Table("retrieval_scores", schemas.RETRIEVAL_SCORES, key="retriever")
OCR_SCORES = Table("ocr_scores", schemas.OCR_SCORES, key="metric")
BENCHMARKS = "benchmark_scores"
"""The asset that evaluates the benchmarks of the gates; its tables are in homes of their own."""


def lacking(schema: pa.Schema, columns: Iterable[str], full_schema: pa.Schema | None = None) -> str | None:
    """Return the first of the `columns`, or of their fields, that a stored `schema` lacks.

    A field is named with its column: `regions.origin`. `full_schema` has the fields that there should be.
    """
    for name in columns:
        if name not in schema.names:
            return name
        if full_schema is not None and name in full_schema.names:
            there = set(_fields(name, schema.field(name).type))
            for field in _fields(name, full_schema.field(name).type):
                if field not in there:
                    return field
    return None


def _fields(name: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the names of a column and of its fields, or of its items' fields."""
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    yield name
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _fields(f"{name}.{field.name}", field.type)
