"""The interface of a corpus's source, which a home and a release share."""

import json
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cachetools import LRUCache

from kopub.api.rows import Facts, Picture, Step, TableName
from kopub.boxes import Box
from kopub.errors import StoreError, first_line
from kopub.layout.regions import Task
from kopub.pages.page_reader import Origin
from kopub.pages.upright import UprightTransform
from kopub.recognition.regions import TextOrigin
from kopub.states import State
from kopub.store.corpus_tables import lacking
from kopub.texts.regions import Region


class Place(NamedTuple):
    """The place of a page: its shard, its row from 0, and its id.

    The id verifies the row.
    """

    shard: str
    row: int
    page_id: str


class Source(Protocol):
    """A source of the rows of pages; threads may share it.

    Every method raises `StoreError` for a damaged table.
    """

    @property
    def location(self) -> str:
        """The folder, for people."""
        ...

    @property
    def shards(self) -> Sequence[str]:
        """Return the shards that have pages, in corpus order."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Return a sentence for each omission."""
        ...

    def fresh(self) -> "Source":
        """Return the source as it is now, or itself if nothing has changed."""
        ...

    def catalogue(self, shard: str) -> pa.Table:
        """Return page_id, doc_id, page_no, state and doubt of a shard's pages, in order."""
        ...

    def table(self, shard: str, name: TableName) -> pa.Table | None:
        """Return the rows of all pages of a shard, in its order.

        None if no such table has been made.
        """
        ...

    def facts(self, place: Place) -> Facts: ...

    def origin(self, place: Place) -> Origin | None:
        """Return the file that a page comes from.

        Raises `SourceError` if it is not available.
        """
        ...

    def texts(self, place: Place) -> tuple[str, str]:
        """Return (plain text, markdown), both empty if nothing was read."""
        ...

    def regions(self, place: Place) -> tuple[Region, ...]: ...

    def vectors(self, place: Place) -> Mapping[str, np.ndarray]:
        """Return the vectors by kind, text and image: float16 of shape (dim,).

        A page without one lacks the key.
        """
        ...

    def pictures(self, place: Place) -> tuple[Picture, ...]: ...

    def lineage(self, place: Place) -> tuple[Step, ...]: ...

    def upright(self, place: Place) -> UprightTransform | None:
        """Return the transform that set the page upright.

        None for an unchanged page, or for a table without this information.
        """
        ...

    def image_bytes(self, place: Place) -> bytes:
        """Return the encoded page, unchanged. Raises `SourceError` if it is not available."""
        ...


_OPEN = 64
"""Files that are kept open, enough for the tables of pages in some ten shards."""


class ParquetRows:
    """An open file; threads may share it.

    `name`, and `again`, the way to make it anew, are for messages; `schema` has its columns in this release.
    """

    def __init__(
        self, file: pq.ParquetFile, name: str, again: str = "make it again", schema: pa.Schema | None = None
    ) -> None:
        self._file, self._name, self._again, self._schema = file, name, again, schema
        groups = range(file.metadata.num_row_groups)
        self._ends = list(accumulate(file.metadata.row_group(group).num_rows for group in groups))
        self._lock = Lock()

    @property
    def columns(self) -> list[str]:
        return self._file.schema_arrow.names

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return whole columns. Raises `StoreError`."""
        with self._reading(columns):
            return self._file.read(list(columns))

    def slice(self, start: int, count: int, columns: Sequence[str]) -> pa.Table:
        """Return at most `count` rows from `start` on. Raises `StoreError`."""
        first, last = bisect_right(self._ends, start), bisect_right(self._ends, start + count - 1)
        groups = list(range(first, min(last + 1, len(self._ends)))) if count else []
        before = self._ends[first - 1] if first else 0
        with self._reading(columns):
            return self._file.read_row_groups(groups, list(columns)).slice(start - before, count)

    def row(self, at: int, key: str, value: str, columns: Sequence[str]) -> dict[str, Any] | None:
        """Return the row whose column `key` has `value`.

        The one at number `at` is tried first.
        """
        rows = self.slice(at, 1, [key, *columns]).to_pylist()
        if not rows or rows[0][key] != value:
            place = pc.index(self.read([key])[key], value).as_py()
            rows = [] if place < 0 else self.slice(place, 1, [key, *columns]).to_pylist()
        return rows[0] if rows else None

    @contextmanager
    def _reading(self, columns: Sequence[str]) -> Iterator[None]:
        """Hold the file while `columns` of it are read. Raises `StoreError` if that cannot be."""
        if column := lacking(self._file.schema_arrow, columns, self._schema):
            raise StoreError(f"{self._name} has no {column}, as another release made it: {self._again}")
        try:
            with self._lock:
                yield
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{self._name} is damaged ({first_line(error)}): {self._again}") from None


class OpenFiles:
    """The most recently used files, kept open; threads may share it."""

    def __init__(self) -> None:
        self._open = LRUCache[Hashable, ParquetRows](_OPEN)
        self._lock = Lock()

    def get(self, key: Hashable, open_file: Callable[[], ParquetRows]) -> ParquetRows:
        """Return the file of a key. Raises what `open_file` raises."""
        with self._lock:
            if (file := self._open.get(key)) is not None:
                return file
        file = open_file()
        with self._lock:
            self._open[key] = file
        return file


Row = Mapping[str, Any]


def facts(page: Row, states: Mapping[str, str], reason: str | None, doubts: Iterable[str] | None) -> Facts:
    """Return the facts in a row of `raw_pages`, or of the config `pages`."""
    return Facts(
        page["width"],
        page["height"],
        page["sha256"],
        page["license"],
        page["source"],
        reason,
        {asset: State(state) for asset, state in states.items()},
        tuple(doubts or ()),
    )


def region(row: Row) -> Region:
    """Return the region in a row of the release's config `regions`."""
    polygon = row["polygon"]
    return Region(
        index=row["index"],
        label=row["native_label"],
        task=Task(row["task"]),
        score=row["score"],
        box=Box(*row["bbox"]),
        box_2d=Box(*row["bbox_2d"]),
        polygon=None if polygon is None else tuple((x, y) for x, y in polygon),
        content=row["content"],
        state=None if row["state"] is None else State(row["state"]),
        reason=row["reason"],
        origin=row["origin"] and TextOrigin(row["origin"]),
    )


def steps(lineage: pa.Table) -> Iterator[Step]:
    """Yield the step of each row of `LINEAGE`."""
    for row in lineage.to_pylist():
        yield Step(
            asset=row["asset"],
            state=State(row["state"]),
            reason=row["reason"],
            engine=row["engine"],
            model=row["model"],
            revision=row["revision"],
            parameters=_json(row["parameters"]),
            versions=_json(row["versions"]),
            code_version=_json(row["code_version"]),
            recipe=row["recipe"],
            fingerprint=row["fingerprint"],
            run_id=row["run_id"],
            made_at=row["made_at"],
            gpu_seconds=row["gpu_seconds"],
        )


def vector(values: Iterable[Any] | None) -> np.ndarray | None:
    """Return a vector, float16 of shape (dim,)."""
    return None if values is None else np.array(values, np.float16)


def _json(text: str | None) -> Mapping[str, Any]:
    return json.loads(text) if text else {}
