"""The vectors of pages, or of their figures, nearest to a query, compared one by one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa


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

    def nearest(self, query: np.ndarray, count: int) -> Iterator[Neighbour]:
        """At most `count` rows, the nearest first, equal ones in row order. `query` is float16 of shape (dim,)."""
        from usearch.compiled import MetricKind
        from usearch.index import search

        # One thread: starting others for each shard costs more than they save.
        found = search(self.matrix, query, min(count, len(self.matrix)), MetricKind.IP, exact=True, threads=1)
        # usearch leaves equal ones in any order.
        for distance, row in sorted(zip(found.distances.tolist(), found.keys.tolist(), strict=True)):
            figure = self.table["index"][row].as_py() if "index" in self.table.column_names else None
            yield Neighbour(self.shard, self.table["page_id"][row].as_py(), 1 - distance, figure)


class Vectors:
    """The vectors of one table over its shards, in corpus order."""

    def __init__(self, shards: Sequence[ShardVectors]) -> None:
        self.shards = [shard for shard in shards if shard.table.num_rows]

    def __len__(self) -> int:
        return sum(shard.table.num_rows for shard in self.shards)

    def nearest(self, query: np.ndarray, count: int) -> list[Neighbour]:
        """At most `count` pages, the nearest first, equal ones in corpus order. `query` is of shape (dim,).

        Of more equal pages than `count` has room for, any are found.
        """
        half = query.astype(np.float16)
        largest, most = max((shard.table.num_rows for shard in self.shards), default=0), count
        while True:
            found = [neighbour for shard in self.shards for neighbour in shard.nearest(half, most)]
            # Sorting is stable, and the shards come in corpus order.
            best = _once(sorted(found, key=lambda neighbour: -neighbour.score))
            if len(best) >= count or most >= largest:
                return best[:count]
            most *= 4  # several of them were figures of one page


def _once(ranked: Iterable[Neighbour]) -> list[Neighbour]:
    """Each page where it comes first."""
    first: dict[tuple[str, str], Neighbour] = {}
    for neighbour in ranked:
        first.setdefault((neighbour.shard, neighbour.page_id), neighbour)
    return list(first.values())
