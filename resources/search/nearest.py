"""The vectors of pages, or of their figures, nearest to a query, compared one by one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Pages = Callable[[str], "pa.Array | None"]
"""The ids of the pages of a shard that are searched; None for all of them."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A page by shard and id, and the dot product of its vector with the query's.

    `figure` is the region whose vector it is, where it is none of the whole page.
    """

    shard: str
    page_id: str
    score: float
    figure: int | None = None


@dataclass(frozen=True)
class ShardVectors:
    """The vectors of one shard: a table of `page_id` and `vector`, and the version of what it was made from.

    A table of the vectors of figures has the column `index` too, and may have several rows of a page.
    """

    shard: str
    version: str
    table: pa.Table

    @cached_property
    def matrix(self) -> np.ndarray:
        """float16 of shape (rows, dim), in place."""
        column = self.table["vector"]
        width = column.type.list_size
        if not self.table.num_rows:
            return np.empty((0, width), np.float16)
        return column.chunk(0).flatten().to_numpy().reshape(-1, width)

    def nearest(self, query: np.ndarray, count: int, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(rows, scores) of at most `count` vectors, the nearest first, of `rows` alone where they are given.

        `query` is float16 of shape (dim,).
        """
        from usearch.compiled import MetricKind
        from usearch.index import search

        matrix = self.matrix if rows is None else self.matrix[rows]
        if not len(matrix):
            return np.empty(0, np.int64), np.empty(0, np.float32)
        # One thread: starting others for each shard costs more than they save.
        found = search(matrix, query, min(count, len(matrix)), MetricKind.IP, exact=True, threads=1)
        keys = found.keys.astype(np.int64)
        return keys if rows is None else rows[keys], 1 - found.distances


class Vectors:
    """The vectors of one table over its shards, in corpus order."""

    def __init__(self, shards: Sequence[ShardVectors]) -> None:
        self.shards = [shard for shard in shards if shard.table.num_rows]

    def __len__(self) -> int:
        return sum(shard.table.num_rows for shard in self.shards)

    @property
    def pages(self) -> int:
        """The pages that have a vector, or a figure with one."""
        return sum(pc.call_function("count_distinct", [shard.table["page_id"]]).as_py() for shard in self.shards)

    def nearest(self, query: np.ndarray, count: int, pages: Pages | None = None) -> list[Neighbour]:
        """At most `count` pages, the nearest first, equal ones in corpus order. `query` is of shape (dim,).

        `pages` names those of a shard that are searched. Of more equal pages than `count` has room for, any are found.
        """
        largest, most = max((shard.table.num_rows for shard in self.shards), default=0), count
        while True:
            best = _once(self._nearest_vectors(query, most, pages))
            if len(best) >= count or most >= largest:
                return best[:count]
            most *= 4  # several of them were figures of one page

    def _nearest_vectors(self, query: np.ndarray, count: int, pages: Pages | None) -> list[Neighbour]:
        half = query.astype(np.float16)
        found = [shard.nearest(half, count, rows_of(shard.table, shard.shard, pages)) for shard in self.shards]
        if not found:
            return []
        rows, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
        shards = np.repeat(np.arange(len(found)), [len(part) for part, _ in found])
        # usearch leaves equal ones in any order.
        best = np.lexsort((rows, shards, -scores))[:count]
        return [
            Neighbour(part.shard, part.table["page_id"][row].as_py(), score, _figure(part.table, row))
            for part, row, score in zip(
                (self.shards[at] for at in shards[best]), rows[best].tolist(), scores[best].tolist(), strict=True
            )
        ]


def _once(ranked: Iterable[Neighbour]) -> list[Neighbour]:
    """Each page where it comes first."""
    first: dict[tuple[str, str], Neighbour] = {}
    for neighbour in ranked:
        first.setdefault((neighbour.shard, neighbour.page_id), neighbour)
    return list(first.values())


def _figure(table: pa.Table, row: int) -> int | None:
    return table["index"][row].as_py() if "index" in table.column_names else None


def rows_of(table: pa.Table, shard: str, pages: Pages | None) -> np.ndarray | None:
    """The rows of a table of `page_id` that are searched; None for all of them."""
    ids = None if pages is None else pages(shard)
    return None if ids is None else rows_with(table, ids)


def rows_with(table: pa.Table, ids: pa.Array) -> np.ndarray:
    """The rows of a table of `page_id` that are of these pages."""
    found = pc.call_function("is_in", [table["page_id"]], pc.SetLookupOptions(value_set=ids))
    return np.flatnonzero(found.to_numpy())
