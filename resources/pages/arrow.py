"""The rows of one corpus file, Arrow or Parquet, memory-mapped; what is damaged is told row by row.

Nothing of a file is trusted: every buffer is checked before it is touched, because Arrow itself
reads offsets as they stand and a wrong one would end the process.
"""

import io
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import SourceError
from resources.printable import first_line, visible

ID, IMAGE, BYTES = "id", "image", "bytes"
FILE_NAME, PAGE_NUMBER, LICENSE = "file_name", "page_number", "license"
PROBLEM = "problem"
"""Why a row has no image bytes, where whoever wrote the file knows."""
_BESIDE_IMAGE = frozenset({ID, FILE_NAME, PAGE_NUMBER, LICENSE, PROBLEM})

_FILE_MAGIC = b"ARROW1\0\0"
"""What the Arrow file format puts before the same stream of messages that the stream format is."""
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_BINARY = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.large_binary(),
}
_OFFSETS = {pa.binary(): np.dtype(np.int32), pa.large_binary(): np.dtype(np.int64)}
_DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What reading a damaged file raises; the last comes from the names in its schema."""
_PARQUET_BATCH = 32
"""Pages taken from a row group at once: some 30 MB of page images at 300 dpi."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as its file holds it; `problem` says why the image, or all of it, cannot be read."""

    id: str | None = None
    image: memoryview | None = None
    file_name: str | None = None
    page_number: int | None = None
    license: str | None = None
    problem: str | None = None


class Part(Protocol):
    """Some consecutive rows of a file; `problem` says why none of them can be read."""

    @property
    def rows(self) -> int: ...

    @property
    def problem(self) -> str | None: ...

    def row(self, index: int) -> Row: ...


class PageFile(ABC):
    """A corpus file, opened. `problem` says why rows after its last part cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """The file from its beginning as far as it can be followed; `problem` is final when they end."""

    @abstractmethod
    def row(self, index: int) -> Row:
        """The row at `index` of the file, from 0; a row that is not there has a problem."""

    def rows(self, count: int) -> Iterator[Row]:
        """Exactly `count` rows, as many as the file had when it was indexed.

        Rows that a damaged file lost come with a problem. Raises `SourceError` when the file is
        sound and has another number of rows: it is another file.
        """
        found = 0
        for part in self.parts():
            for index in range(min(part.rows, count - found)):
                yield part.row(index)
            found += part.rows
        if self.problem is None and found != count:
            raise SourceError(
                f"{self.path} has {found:,} rows and had {count:,} when it was indexed: run `kopub index` again"
            )
        for _ in range(count - found):
            yield Row(problem=self.problem)


def open_pages(path: Path, format: str, size: int | None = None) -> PageFile:
    """Open a corpus file of format "arrow" (file or stream) or "parquet".

    `size` is its length in bytes when it was indexed: what a shorter Arrow file still holds is
    read. Raises `SourceError` when there is no such file or it has no usable id and image columns.
    """
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error.strerror}") from None
    return ParquetFile(path) if format == "parquet" else ArrowFile(path, size)


class ArrowFile(PageFile):
    """An Arrow file or stream: images are slices of the mapped file, never copied."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        super().__init__(path)
        self._file = pa.memory_map(str(path))
        self._size = self._file.size() if size is None else size
        self._parts = list(self._read())
        self._ends = list(accumulate(part.rows for part in self._parts))

    def parts(self) -> Iterator[Part]:
        return iter(self._parts)

    def row(self, index: int) -> Row:
        at = bisect_right(self._ends, index)
        if at == len(self._parts):
            return Row(problem=self.problem or f"{self.path} has no row {index}")
        part = self._parts[at]
        return part.row(index - self._ends[at] + part.rows)

    def _read(self) -> Iterator[Part]:
        try:
            self._file.seek(len(_FILE_MAGIC) if self._file.read(len(_FILE_MAGIC)) == _FILE_MAGIC else 0)
            reader = pa.ipc.open_stream(self._file)
            check_schema(reader.schema, self.path)
        except _DAMAGE as error:
            self.problem = self._damage(error)
            return
        while True:
            start = self._file.tell()
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            except _DAMAGE as error:
                self.problem = self._damage(error)
                with suppress(*_DAMAGE, EOFError):
                    yield self._rest(start, reader.schema)
                return
            yield _checked(batch)
        self._file.seek(self._file.tell() - len(_END_OF_STREAM))
        if self._file.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
            self.problem = self._damage("it has no end mark")

    def _rest(self, start: int, schema: pa.Schema) -> Part:
        """What is left of the record batch at `start`: its lost end is read as zeros, and never shown."""
        kept = self._file.size()
        self._file.seek(start)
        padded = _Padded(self._file, max(self._size, kept))
        message = pa.ipc.read_message(pa.PythonFile(padded, "r"))
        batch = pa.ipc.read_record_batch(message, schema)
        body_start = padded.tell() - message.body.size
        return _checked(batch, _Kept(message.body.address, kept - body_start, self.problem))

    def _damage(self, error: Exception | str) -> str:
        if self._file.size() < self._size:
            return f"the file is cut off at byte {self._file.size():,} of {self._size:,}"
        return f"the file is cut off or damaged ({first_line(error)})"


class ParquetFile(PageFile):
    """A Parquet file, read a row group at a time; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = Lock()
        self._group: tuple[int, list[Part]] = (-1, [])
        self._ends: list[int] = []
        try:
            self._file = pq.ParquetFile(path, memory_map=True)
            schema = self._file.schema_arrow
        except _DAMAGE as error:
            self.problem = f"the file is cut off or damaged ({first_line(error)})"
            return
        check_schema(schema, path)
        self._columns = [f"{IMAGE}.{BYTES}", *_BESIDE_IMAGE.intersection(schema.names)]
        groups = range(self._file.num_row_groups)
        self._ends = list(accumulate(self._file.metadata.row_group(group).num_rows for group in groups))

    def parts(self) -> Iterator[Part]:
        for group in range(len(self._ends)):
            yield from self._read(group)

    def row(self, index: int) -> Row:
        group = bisect_right(self._ends, index)
        if group == len(self._ends):
            return Row(problem=self.problem or f"{self.path} has no row {index}")
        with self._lock:
            if self._group[0] != group:
                self._group = (group, list(self._read(group)))
            parts = self._group[1]
        at = index - self._ends[group] + self._rows(group)
        for part in parts:
            if at < part.rows:
                return part.row(at)
            at -= part.rows
        raise IndexError(index)

    def _rows(self, group: int) -> int:
        return self._ends[group] - (self._ends[group - 1] if group else 0)

    def _read(self, group: int) -> Iterator[Part]:
        missing = self._rows(group)
        try:
            for batch in self._file.iter_batches(_PARQUET_BATCH, row_groups=[group], columns=self._columns):
                yield _checked(batch)
                missing -= batch.num_rows
        except _DAMAGE as error:
            yield _Lost(missing, f"the file is damaged ({first_line(error)})")


def check_schema(schema: pa.Schema, path: Path) -> None:
    """Raise `SourceError` unless the file has an id and an image column of the corpus schema."""
    if ID in schema.names and IMAGE in schema.names and schema.field(ID).type in _BINARY:
        image = schema.field(IMAGE).type
        if pa.types.is_struct(image) and image.get_field_index(BYTES) >= 0 and image.field(BYTES).type in _BINARY:
            return
    found = ", ".join(f"{field.name}: {field.type}" for field in schema)
    raise SourceError(
        f"{path} has the columns {found or '(none)'}; wanted {ID}: string and {IMAGE}: struct<{BYTES}: binary>"
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """The first `length` bytes of a record batch's body, in memory from `address`; what follows was lost."""

    address: int
    length: int
    problem: str | None

    def has(self, buffer: pa.Buffer | None, used: int | None = None) -> bool:
        """Whether the buffer, or its first `used` bytes, lie in what was kept.

        A buffer that was decompressed lies elsewhere, and nobody knows what it was made from.
        """
        if buffer is None:
            return True
        end = buffer.address + (buffer.size if used is None else used)
        return self.address <= buffer.address and end <= self.address + self.length


@dataclass(frozen=True, slots=True)
class _Lost:
    """Rows that cannot be read."""

    rows: int
    problem: str

    def row(self, index: int) -> Row:
        return Row(problem=self.problem)


class _Batch:
    """The rows of a record batch whose ids and images were checked. Raises `pa.ArrowInvalid`."""

    problem = None

    def __init__(self, batch: pa.RecordBatch, kept: _Kept | None) -> None:
        self.rows = batch.num_rows
        self._kept = kept
        image = batch.column(IMAGE)
        image.validate()
        self._ids = _Values(batch.column(ID))
        self._images = _Values(image.field(BYTES))
        self._image_valid = image.is_valid()
        needed = [*self._ids.buffers, image.buffers()[0], *self._images.buffers[:-1]]
        if kept and not all(map(kept.has, needed)):
            raise pa.ArrowInvalid(kept.problem)
        self._file_names = self._optional(batch, FILE_NAME, str)
        self._page_numbers = self._optional(batch, PAGE_NUMBER, int)
        self._licenses = self._optional(batch, LICENSE, str)
        self._problems = self._optional(batch, PROBLEM, str)

    def row(self, index: int) -> Row:
        identity = self._ids[index]
        image = self._images[index] if self._image_valid[index].as_py() else None
        problem = None if image is not None else visible(self._problems[index] or "") or "the row has no image bytes"
        if self._kept and not self._kept.has(self._images.buffers[-1], self._images.end(index)):
            image, problem = None, self._kept.problem
        return Row(
            id=None if identity is None else bytes(identity).decode("utf-8", "surrogateescape"),
            image=image,
            file_name=self._file_names[index],
            page_number=self._page_numbers[index],
            license=self._licenses[index],
            problem=problem,
        )

    def _optional(self, batch: pa.RecordBatch, name: str, wanted: type) -> list[Any]:
        """A column that may be missing, damaged or of another type, and then is None throughout."""
        nothing = [None] * batch.num_rows
        if name not in batch.schema.names:
            return nothing
        column = batch.column(name)
        if self._kept and not all(map(self._kept.has, column.buffers())):
            return nothing
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return nothing
        return [value if isinstance(value, wanted) else None for value in column.to_pylist()]


class _Values:
    """The values of a binary or string array, in place. Raises `pa.ArrowInvalid` when they cannot be."""

    def __init__(self, array: pa.Array) -> None:
        values = array.view(_BINARY[array.type])
        values.validate(full=True)
        self.buffers: list[pa.Buffer | None] = values.buffers()
        offsets = _OFFSETS[values.type]
        self._valid = values.is_valid()
        count = values.offset + len(values) + 1 if len(values) else 0
        self._offsets = np.frombuffer(self.buffers[1] or b"", offsets, count)[values.offset :]
        self._data = memoryview(self.buffers[2] or b"").cast("B")

    def __getitem__(self, index: int) -> memoryview | None:
        if not self._valid[index].as_py():
            return None
        return self._data[self._offsets[index] : self._offsets[index + 1]]

    def end(self, index: int) -> int:
        """How many bytes of the data the values up to and with `index` take."""
        return int(self._offsets[index + 1])


class _Padded(io.RawIOBase):
    """The rest of a file, with zeros up to the length that it had."""

    def __init__(self, file: pa.NativeFile, length: int) -> None:
        self._file = file
        self._left = length - file.tell()
        self._at = file.tell()

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        self._left -= size
        self._at += size
        return self._file.read(size).ljust(size, b"\0")


def _checked(batch: pa.RecordBatch, kept: _Kept | None = None) -> Part:
    try:
        return _Batch(batch, kept)
    except pa.ArrowInvalid as error:
        problem = kept.problem if kept and kept.problem else f"the file is damaged ({first_line(error)})"
        return _Lost(batch.num_rows, problem)
