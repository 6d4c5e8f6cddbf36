"""A table of the store by what it is, so that whoever reads it needs no asset."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import pyarrow as pa


@dataclass(frozen=True)
class Table:
    """One Parquet file for each shard: its name, its columns, and the column that identifies a row.

    `schema` of a table of vectors is a function of their width.
    """

    name: str
    schema: pa.Schema | Callable[[int], pa.Schema]
    key: str = "page_id"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class CorpusTables:
    """The tables of a corpus by what they hold, in the order they are made."""

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
        """Those with a row for each page."""
        return tuple(table for table in self if table.key == self.pages.key)
