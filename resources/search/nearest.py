"""The vectors nearest to a query: exact over all of them, or by a graph where there are very many."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from filelock import FileLock

from resources.errors import StoreError
from resources.files import cannot_write, replace_bytes
from resources.fingerprints import fingerprint

if TYPE_CHECKING:
    from usearch.index import Index

EXACT_UP_TO = 250_000
"""Vectors that are compared one by one: 2,048 dimensions take some 85 ms of one core (`benchmarks/search.py`)."""
_OVERSAMPLED = 10
"""Neighbours that the graph is asked for, in those that are wanted; they are compared exactly afterwards."""
_CONNECTIVITY, _EXPANSION = 16, 128
"""Of the graph (Malkov and Yashunin, 2016, M and ef): 0.99 of the ten nearest pages are found."""
_GRAPH, _ABOUT = "graph.usearch", "graph.json"
_SHARD_BITS = 32
"""A key of the graph is the shard's place in its list and the row: 32 bits each."""


@dataclass(frozen=True, slots=True)
class Near:
    """A page by shard and id, and the dot product of its vector with the query's."""

    shard: str
    page_id: str
    score: float


@dataclass(frozen=True)
class Part:
    """The vectors of one shard: a table of `page_id` and `vector`, and the version of what it was made from."""

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

    def near(self, row: int, score: float) -> Near:
        return Near(self.shard, self.table["page_id"][row].as_py(), score)


class Vectors:
    """The vectors of one table over its shards; `folder` is where the graph lies, if one was built.

    A graph answers for the parts it was built from; those that changed since are compared one by one.
    """

    def __init__(self, parts: Sequence[Part], folder: Path) -> None:
        self.parts = [part for part in parts if part.table.num_rows]
        self._folder = folder
        self._graph = _Graph.load(folder) if len(self) > EXACT_UP_TO else None

    def __len__(self) -> int:
        return sum(part.table.num_rows for part in self.parts)

    @property
    def one_by_one(self) -> int:
        """How many vectors a search compares one by one."""
        return sum(part.table.num_rows for part in self._beside_graph())

    def nearest(self, query: np.ndarray, count: int) -> list[Near]:
        """At most `count` pages, the nearest first, equal ones in corpus order. `query` is of shape (dim,).

        Of more equal pages than `count` has room for, any are found.
        """
        half = query.astype(np.float16)
        beside = list(self._beside_graph())
        found = [near for part in beside for near in _exact(part, half, count)]
        if self._graph and len(beside) < len(self.parts):
            found += self._graph.nearest(self.parts, half, count)
        # Sorting is stable, and parts come in corpus order.
        order = {part.shard: place for place, part in enumerate(self.parts)}
        found.sort(key=lambda near: (-near.score, order[near.shard]))
        return found[:count]

    def build(self) -> None:
        """Build the graph of all vectors and replace the one before. Raises `StoreError`."""
        self._graph = _Graph.build(self.parts, self._folder)

    def _beside_graph(self) -> Iterator[Part]:
        covered = self._graph.versions if self._graph else {}
        return (part for part in self.parts if covered.get(part.shard) != part.version)


def _exact(part: Part, query: np.ndarray, count: int) -> Iterator[Near]:
    from usearch.compiled import MetricKind
    from usearch.index import search

    # One thread: to start others for each shard costs more than they save.
    found = search(part.matrix, query, min(count, len(part.matrix)), MetricKind.IP, exact=True, threads=1)
    # It leaves equal ones in any order.
    for distance, row in sorted(zip(found.distances.tolist(), found.keys.tolist(), strict=True)):
        yield part.near(row, 1 - distance)


@dataclass(frozen=True)
class _Graph:
    """A graph of small worlds on disk, mapped; `versions` are those of the parts it was built from."""

    index: "Index"
    versions: Mapping[str, str]

    @classmethod
    def load(cls, folder: Path) -> "_Graph | None":
        """The graph of a folder; None when there is none, or not a whole one."""
        from usearch.index import Index

        try:
            about: dict[str, Any] = json.loads((folder / _ABOUT).read_bytes())
            path = folder / about["file"]
            if path.stat().st_size != about["bytes"]:
                return None
            index = Index.restore(path, view=True)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if index is None:
            return None
        index.expansion_search = _EXPANSION
        return cls(index, about["versions"])

    @classmethod
    def build(cls, parts: Sequence[Part], folder: Path) -> "_Graph":
        from usearch.index import Index

        versions = {part.shard: part.version for part in parts}
        name = f"{fingerprint(versions)}.{uuid.uuid4().hex[:8]}.{_GRAPH}"
        index = Index(
            ndim=parts[0].matrix.shape[1],
            metric="ip",
            dtype="f16",
            connectivity=_CONNECTIVITY,
            expansion_add=_EXPANSION,
            expansion_search=_EXPANSION,
        )
        for place, part in enumerate(parts):
            keys = np.arange(len(part.matrix), dtype=np.uint64) + np.uint64(place << _SHARD_BITS)
            # Added by several threads, vectors get lost in it: of 20,000 up to nine by two, 55 by eight.
            index.add(keys, part.matrix, threads=1)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".graph.lock"):
                index.save(folder / name)
                about = {"file": name, "bytes": (folder / name).stat().st_size, "versions": versions}
                replace_bytes(folder / _ABOUT, json.dumps(about).encode())
                for other in folder.glob(f"*.{_GRAPH}"):
                    if other.name != name:
                        other.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(cannot_write(folder / name, error)) from error
        return cls(index, versions)

    def nearest(self, parts: Sequence[Part], query: np.ndarray, count: int) -> Iterator[Near]:
        """Pages of the parts that did not change since, with their exact scores."""
        current = {part.shard: part for part in parts if self.versions.get(part.shard) == part.version}
        shards = list(self.versions)
        for key in sorted(self.index.search(query, _OVERSAMPLED * count).keys.tolist()):
            part = current.get(shards[key >> _SHARD_BITS])
            if part:
                row = key & ((1 << _SHARD_BITS) - 1)
                yield part.near(row, float(part.matrix[row].astype(np.float32) @ query.astype(np.float32)))
