"""The rows of one corpus file, Arrow or Parquet, memory-mapped.

A row that cannot be read has a `problem`. No file is trusted: every buffer is checked before it is used, because Arrow
itself follows offsets unchecked, and a wrong one would crash the process.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kopub.errors import SourceError, first_line, quoted, visible
from kopub.pages.arrow_stream import MOST_UNPACKED, open_stream
from kopub.states import Reason, phrase

ID, IMAGE, BYTES = "id", "image", "bytes"
FILE_NAME, PAGE_NUMBER, LICENSE = "file_name", "page_number", "license"
PROBLEM, PARTS, FAILED = "problem", "problem_parts", "failed"
"""Columns that say why a row has no image bytes and, in files of this project, its form and values as JSON, and if that
may be temporary.

Beside an image, a problem is its damage, in files of this project.
"""
TEXT_LAYER = "pdf_text_layer"
"""A column with the `TextLayer` of a PDF page, in files that this project writes."""
_BESIDE_IMAGE = frozenset({ID, FILE_NAME, PAGE_NUMBER, LICENSE, TEXT_LAYER, PROBLEM, PARTS, FAILED})

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_BINARY = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.large_binary(),
}
_VIEWS = (pa.string_view(), pa.binary_view())
_OFFSETS = {pa.binary(): np.dtype(np.int32), pa.large_binary(): np.dtype(np.int64)}
_DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Errors that pyarrow raises for a damaged file; the last one is for schema names that are not UTF-8."""
_COLUMNS_SHOWN = 300
"""Most characters of a list of columns in a message."""
_PARQUET_BATCH = 32
"""Pages read from a row group at once: some 30 MB of page images at 300 dpi."""
_BATCH_BYTES, _BYTES_KEPT = 1 << 28, 1 << 29
"""Bytes of a batch, and of those that are kept for threads that read rows nearly in order."""
_MOST_PACKED = 50
"""Pages may unpack to so many times the size of their file, as no pictures do, or to `MOST_UNPACKED` bytes."""
_LONGEST_TEXT = 1 << 16
"""Most bytes of an id, a name or a reason, on average."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file.

    `problem` says why its image, or the whole row, cannot be read. `failed` means that the page could not be made, for
    a reason that is not in its bytes. `damage` says which part of the page its image lacks.
    """

    id: str | None = None
    image: memoryview | None = None
    file_name: str | None = None
    page_number: int | None = None
    license: str | None = None
    text_layer: str | None = None
    problem: str | None = None
    failed: bool = False
    damage: str | None = None


class ShardFile(ABC):
    """An open corpus file.

    `problem` says why the rows after its last batch cannot be read.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        """Its path or URL, for people."""
        self.problem: str | None = None

    @abstractmethod
    def batches(self) -> "Iterator[RowBatch]":
        """Yield the batches in order, up to damage that hides the rest; then set `problem`."""

    @abstractmethod
    def row(self, index: int) -> Row:
        """Return the row at `index`, from 0; a missing row has a problem."""

    def text_layers(self) -> list[str | None]:
        """Return the text layer of each row up to any damage, None without one."""
        return [row.text_layer for row in self._whole_rows()]

    def names(self) -> list[tuple[str | None, str | None]]:
        """Return the id and the document's name of each row up to any damage."""
        return [(row.id, row.file_name) for row in self._whole_rows()]

    def _whole_rows(self) -> Iterator[Row]:
        for batch in self.batches():
            for index in range(batch.rows):
                yield batch.row(index)

    def rows(self, count: int) -> Iterator[Row]:
        """Yield exactly `count` rows, as many as were indexed.

        Rows lost from a damaged file have a problem. Raises `SourceError` if the file is whole but has a different
        number of rows, which makes it another file.
        """
        actual = 0
        for batch in self.batches():
            for index in range(min(batch.rows, count - actual)):
                yield batch.row(index)
            actual += batch.rows
        if self.problem is None and actual != count:
            form = "{place} has {rows:,} rows and had {before:,} when it was indexed: run `kopub index` again"
            raise SourceError(form, self.place, actual, count)
        for _ in range(count - actual):
            yield Row(problem=self.problem)


def open_pages(path: Path, format: str, place: str | None = None) -> ShardFile:
    """Open a corpus file of format "arrow" (file or stream) or "parquet".

    `place` is where it was fetched from. Raises `SourceError` if the file is missing, or has no usable id and image
    columns.
    """
    place = str(path) if place is None else place
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise SourceError("{place} cannot be opened: {error}", place, error.strerror) from None
    except ValueError as error:
        # A name with a NUL byte or half a surrogate pair.
        raise SourceError("{place} cannot be opened: {error}", visible(place), error) from None
    return ParquetFile(path, place) if format == "parquet" else ArrowFile(path, place)


class ArrowFile(ShardFile):
    """An Arrow file or stream, whose images are slices of the mapped file, never copied.

    It is read up to the first record batch that is cut off or has a damaged frame. All rows from there on are lost
    until a whole file is brought in again; the manifest has its SHA-256.
    """

    def __init__(self, path: Path, place: str) -> None:
        super().__init__(place)
        self._batches: list[RowBatch] = []
        file = pa.memory_map(str(path))
        try:
            reader = open_stream(file)
            check_schema(reader.schema, place)
            for batch in reader:
                _require_rows(batch.num_rows, file.size())
                self._batches.append(_check(batch))
            # A stream that was cut off between two batches lacks nothing but its end mark.
            file.seek(file.tell() - len(_END_OF_STREAM))
            if file.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
                self.problem = _damage("it has no end mark")
        except _DAMAGE as error:
            self.problem = _damage(error)
        self._ends = list(accumulate(batch.rows for batch in self._batches))

    def batches(self) -> "Iterator[RowBatch]":
        return iter(self._batches)

    def row(self, index: int) -> Row:
        at = bisect_right(self._ends, index)
        if at == len(self._batches):
            return Row(problem=self.problem or Reason("{file} has no row {row}", file=str(self.place), row=index))
        batch = self._batches[at]
        return batch.row(index - self._ends[at] + batch.rows)


class ParquetFile(ShardFile):
    """A Parquet file, read one row group at a time; threads may share it."""

    def __init__(self, path: Path, place: str) -> None:
        super().__init__(place)
        self._lock = Lock()
        self._group = -1
        self._rest: Iterator[RowBatch] = iter(())
        self._kept: deque[tuple[int, RowBatch]] = deque()
        """The batches of the group that were read last, with their first rows in it."""
        self._counts: list[int] = []
        self._ends: list[int] = []
        """The rows of each row group, and those up to its end."""
        self._size = path.stat().st_size
        try:
            self._file = pq.ParquetFile(path, memory_map=True)
            schema = self._file.schema_arrow
            _require_rows(self._file.metadata.num_rows, self._size)
        except _DAMAGE as error:
            self.problem = _damage(error)
            return
        check_schema(schema, place)
        self._columns = [f"{IMAGE}.{BYTES}", *_BESIDE_IMAGE.intersection(schema.names)]
        groups = range(self._file.num_row_groups)
        self._counts = [self._file.metadata.row_group(group).num_rows for group in groups]
        self._ends = list(accumulate(self._counts))

    def batches(self) -> "Iterator[RowBatch]":
        for group in range(len(self._ends)):
            yield from self._read(group)

    def row(self, index: int) -> Row:
        group = bisect_right(self._ends, index)
        if group == len(self._ends):
            return Row(problem=self.problem or Reason("{file} has no row {row}", file=str(self.place), row=index))
        at = index - self._ends[group] + self._counts[group]
        with self._lock:
            if self._group != group or (self._kept and at < self._kept[0][0]):
                self._group, self._rest = group, self._read(group)
                self._kept.clear()
            first = self._kept[-1][0] + self._kept[-1][1].rows if self._kept else 0
            while at >= first and (batch := next(self._rest, None)) is not None:
                self._kept.append((first, batch))
                first += batch.rows
                while len(self._kept) > 1 and sum(older.size for _, older in self._kept) > _BYTES_KEPT:
                    self._kept.popleft()
            for start, batch in self._kept:
                if start <= at < start + batch.rows:
                    return batch.row(at - start)
            return Row(problem=Reason("{file} has no row {row}", file=str(self.place), row=index))

    def text_layers(self) -> list[str | None]:
        """Return the text layers, read without the images, which are much larger."""
        if self.problem or TEXT_LAYER not in self._columns:
            return [None] * (self._ends[-1] if self._ends else 0)
        try:
            return list(map(_text, self._texts(TEXT_LAYER)))
        except _DAMAGE:
            return super().text_layers()

    def names(self) -> list[tuple[str | None, str | None]]:
        """Return the ids and document names, read without the images."""
        try:
            ids = self._texts(ID)
            names = self._texts(FILE_NAME) if ids and FILE_NAME in self._columns else [None] * len(ids)
        except _DAMAGE:
            return super().names()
        rows: list[tuple[str | None, str | None]] = []
        for identity, name in zip(ids, names, strict=True):
            is_binary = isinstance(identity, bytes)
            page_id = identity.decode("utf-8", "surrogateescape") if is_binary else identity
            rows.append((page_id, _text(name)))
        return rows

    def _read(self, group: int) -> "Iterator[RowBatch]":
        missing = self._counts[group]
        try:
            for batch in self._unpacked(group, self._columns):
                yield _check(batch)
                missing -= batch.num_rows
        except _DAMAGE as error:
            yield _LostBatch(missing, Reason("the file is damaged ({error})", error=first_line(error)))

    def _texts(self, name: str) -> list[Any]:
        """Return the values of a column. Raises what pyarrow raises for damage."""
        values, unpacked = list[Any](), 0
        for group in range(len(self._ends)):
            for batch in self._unpacked(group, [name]):
                unpacked += batch.get_total_buffer_size()
                _require_no_bomb(unpacked, self._size)
                values += batch.column(0).to_pylist()
        return values

    def _unpacked(self, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of a row group in batches, small ones of large rows."""
        facts = self._file.metadata.row_group(group)
        largest = 0
        for at in range(facts.num_columns):
            chunk = facts.column(at)
            if chunk.path_in_schema in columns:
                largest = max(largest, chunk.total_uncompressed_size)
        _require_no_bomb(largest, self._size)
        # A dictionary repeats its values, one of which may be as large as all of them.
        count = max(1, min(_BATCH_BYTES // max(1, largest), _PARQUET_BATCH))
        yield from self._file.iter_batches(count, row_groups=[group], columns=columns)


def _require_no_bomb(unpacked: int, packed: int) -> None:
    if unpacked > max(MOST_UNPACKED, _MOST_PACKED * packed):
        raise pa.ArrowInvalid(phrase("its rows unpack from {packed:,} to {unpacked:,} bytes", packed, unpacked))


def _require_short(column: str, size: int, rows: int) -> None:
    if size > _LONGEST_TEXT * (rows + 1):
        raise pa.ArrowInvalid(phrase("the column {name} has texts of more than {size:,} bytes", column, _LONGEST_TEXT))


def _require_rows(rows: int, size: int) -> None:
    """Raise `pa.ArrowInvalid` for more rows than the file has bytes."""
    if rows > size:
        raise pa.ArrowInvalid(phrase("it has {rows:,} rows in {size:,} bytes", rows, size))


def _damage(error: Exception | str) -> str:
    return Reason("the file is cut off or damaged ({error})", error=first_line(error))


def check_schema(schema: pa.Schema, place: str) -> None:
    """Raise `SourceError` unless a file has one id and one image column of known types."""
    for name in (ID, IMAGE, *sorted(_BESIDE_IMAGE)):
        if (count := schema.names.count(name)) > 1:
            form = "{place} has {count} columns named {name}: rename or drop all but one"
            raise SourceError(form, place, count, name)
    if ID in schema.names and IMAGE in schema.names and schema.field(ID).type in _BINARY:
        image = schema.field(IMAGE).type
        if pa.types.is_struct(image) and image.get_field_index(BYTES) >= 0 and image.field(BYTES).type in _BINARY:
            return
    columns = visible(", ".join(f"{field.name}: {field.type}" for field in schema), _COLUMNS_SHOWN)
    form = "{place} has the columns {columns}; wanted {id}: string and {image}: struct<{bytes}: binary>"
    raise SourceError(form, place, columns or "(none)", ID, IMAGE, BYTES)


@dataclass(frozen=True, slots=True)
class _LostBatch:
    """A batch whose rows cannot be read."""

    rows: int
    problem: str
    misread: None = None
    size: int = 0

    def row(self, index: int) -> Row:
        return Row(problem=self.problem)


class _ReadBatch:
    """The rows of a record batch whose ids and images were checked. Raises `pa.ArrowInvalid`."""

    problem = None

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.rows, self.size = batch.num_rows, batch.get_total_buffer_size()
        self.misread: str | None = None
        for name in {ID, FILE_NAME, LICENSE, PROBLEM, PARTS}.intersection(batch.schema.names):
            _require_short(name, batch.column(name).get_total_buffer_size(), self.rows)
        image = batch.column(IMAGE)
        image.validate()
        self._ids = _Values(batch.column(ID))
        self._images = _Values(image.field(BYTES))
        self._image_valid = image.is_valid()
        self._file_names = self._optional(batch, FILE_NAME, _text)
        self._page_numbers = self._optional(batch, PAGE_NUMBER, _whole_number)
        self._licenses = self._optional(batch, LICENSE, _text)
        self._text_layers = self._optional(batch, TEXT_LAYER, _text)
        self._problems = self._optional(batch, PROBLEM, _text)
        self._is_drawn = {TEXT_LAYER, FAILED} <= set(batch.schema.names)
        self._parts = self._optional(batch, PARTS, _text)
        self._failed = self._optional(batch, FAILED, bool) if self._is_drawn else [False] * self.rows

    def row(self, index: int) -> Row:
        identity = self._ids[index]
        image = self._images[index] if self._image_valid[index].as_py() else None
        damage = visible(self._problems[index] or "")
        if packed := self._parts[index]:
            # The form and values of another text, or of none, are not those of this one.
            with suppress(ValueError, TypeError, RecursionError):
                reason = Reason.unpacked(packed)
                damage = reason if reason == damage else damage
        return Row(
            id=None if identity is None else bytes(identity).decode("utf-8", "surrogateescape"),
            image=image,
            file_name=self._file_names[index],
            page_number=self._page_numbers[index],
            license=self._licenses[index],
            text_layer=self._text_layers[index],
            problem=None if image is not None else damage or "the row has no image bytes",
            # Others call a column so too, as for a problem to solve.
            damage=damage or None if image is not None and self._is_drawn else None,
            failed=bool(self._failed[index]),
        )

    def _optional(self, batch: pa.RecordBatch, name: str, read: Callable[[Any], Any]) -> list[Any]:
        """Return a column's values as `read` converts them, with None for no value."""
        nothing = [None] * batch.num_rows
        if name not in batch.schema.names:
            return nothing
        column = batch.column(name)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return nothing
        # Rows of other types may share a text, however long it is.
        is_shared = pa.types.is_dictionary(column.type)
        kind = column.type.value_type if is_shared else column.type
        if is_shared and kind in _BINARY:
            lengths = pc.call_function("binary_length", [column.dictionary]).take(column.indices)
            _require_short(name, sum(lengths.fill_null(0).to_pylist()), self.rows)
        elif pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or kind in _VIEWS:
            form = "the column {name} is {type}: wanted whole numbers or text"
            self.misread = self.misread or phrase(form, name, column.type)
            return nothing
        converted: list[Any] = []
        for value in column.to_pylist():
            # Pandas writes NaN where there is none.
            is_gap = value is None or value == "" or (isinstance(value, float) and math.isnan(value))
            converted.append(None if is_gap else read(value))
            if self.misread is None and converted[-1] is None and not is_gap:
                wanted = "whole numbers" if read is _whole_number else "text"
                form = "the column {name} is {type} and holds {value}: wanted {wanted}"
                self.misread = phrase(form, name, column.type, quoted(str(value)), wanted)
        return converted


def _whole_number(value: Any) -> int | None:
    """Return a whole number, also from a float or digits, else None."""
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return number if not isinstance(value, bool) and (isinstance(value, str) or number == value) else None


def _text(value: Any) -> str | None:
    """Return a text that is not empty, or a whole number as digits, else None."""
    is_text = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    return str(value) if is_text else None


class _Values:
    """The values of a binary or string array, not copied. Raises `pa.ArrowInvalid` for damage."""

    def __init__(self, array: pa.Array) -> None:
        values = array.view(_BINARY[array.type])
        values.validate(full=True)
        _, ends, data = values.buffers()
        offsets = _OFFSETS[values.type]
        self._valid = values.is_valid()
        count = values.offset + len(values) + 1 if len(values) else 0
        self._offsets = np.frombuffer(ends or b"", offsets, count)[values.offset :]
        self._data = memoryview(data or b"").cast("B")

    def __getitem__(self, index: int) -> memoryview | None:
        if not self._valid[index].as_py():
            return None
        return self._data[self._offsets[index] : self._offsets[index + 1]]


RowBatch = _ReadBatch | _LostBatch
"""Consecutive rows of a file; `problem` says why none of them can be read.

`misread` describes a column with values of an unexpected kind, which the rows then lack, and `size` is in bytes.
"""


def _check(batch: pa.RecordBatch) -> RowBatch:
    try:
        return _ReadBatch(batch)
    except pa.ArrowInvalid as error:
        return _LostBatch(batch.num_rows, Reason("the file is damaged ({error})", error=first_line(error)))
