"""Shared readers for benchmark folders: pictures, JSON, tables and pages."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kopub.errors import SourceError, first_line, quoted
from kopub.evaluation.benchmark import (
    Adapter,
    Benchmark,
    GivenRegion,
    Gold,
    Sample,
    SamplePicture,
    SkippedSample,
)
from kopub.evaluation.characters import composed
from kopub.pages.arrow import (
    FILE_NAME,
    ID,
    IMAGE,
    LICENSE,
    PAGE_NUMBER,
    ShardFile,
    check_schema,
    open_pages,
)
from kopub.pages.arrow_stream import open_stream
from kopub.pages.page import problem_with_id
from kopub.pages.places import natural, require_utf8

PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff"})


@dataclass(slots=True)
class SampleCollector:
    """A collector of samples, and of what is left out, while a folder is read."""

    samples: list[Sample] = field(default_factory=list)
    left_out: list[SkippedSample] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)

    def add(
        self,
        id: str,
        picture: SamplePicture | None,
        gold: Gold,
        document: str | None = None,
        slices: Mapping[str, str] | None = None,
        regions: tuple[GivenRegion, ...] | None = None,
    ) -> None:
        """Add a sample, or leave it out if its picture or id cannot be used.

        Without a given `document`, the sample is a document of its own.
        """
        if picture is None:
            self.leave_out(id, "it has gold and no picture")
        elif problem := problem_with_id(id):
            self.leave_out(quoted(id), f"its id {problem}")
        elif id in self._ids:
            self.leave_out(id, "it is there twice: the first one counts")
        else:
            self._ids.add(id)
            self.samples.append(Sample(id, document or id, picture, dict(slices or {}), gold, regions))

    def leave_out(self, what: str, reason: str) -> None:
        self.left_out.append(SkippedSample(what, reason))

    def leave_out_pictures(self, pictures: Iterable[Path], used: Iterable[Path]) -> None:
        """Leave out every picture that has no gold."""
        for path in sorted(set(pictures) - set(used)):
            self.leave_out(path.name, "it is a picture without gold")

    def benchmark(self, adapter: Adapter, version: str = "1") -> Benchmark:
        """Return an adapter's benchmark, with the samples in the natural order of their ids."""
        samples = sorted(self.samples, key=lambda sample: natural(sample.id))
        return Benchmark(adapter.name, version, adapter.licence, adapter.source, samples, self.left_out)


def pictures(folder: Path) -> list[Path]:
    """Return every image in or below a folder, in natural order, without hidden files."""
    return _files(folder, PICTURES)


def with_suffix(folder: Path, suffix: str) -> list[Path]:
    """Return every file with a suffix in or below a folder, in natural order.

    Hidden files are left out.
    """
    return _files(folder, frozenset({suffix}))


def _files(folder: Path, suffixes: frozenset[str]) -> list[Path]:
    if not folder.is_dir():
        raise SourceError("{folder} is no folder", folder)
    files: list[Path] = []
    for path in folder.rglob("*"):
        is_hidden = any(part[0] == "." for part in path.relative_to(folder).parts)
        if path.suffix.lower() in suffixes and not is_hidden and path.is_file():
            files.append(path)
    return sorted(files, key=lambda path: [natural(part) for part in path.relative_to(folder).parts])


def by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by their names in NFC, as some systems store Hangul as single letters."""
    return {composed(path.name): path for path in paths}


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises `SourceError` with the place of the error.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError("{path} is no JSON: {error}", path, first_line(error)) from None


def read_lines(path: Path, gathered: SampleCollector) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the object of each line in a JSONL file.

    Lines without an object are left out.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SourceError("{path} cannot be read: {error}", path, error.strerror) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path.name}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            gathered.leave_out(where, f"it is no JSON: {first_line(error)}")
            continue
        if isinstance(record, dict):
            yield where, record
        else:
            gathered.leave_out(where, "it is no JSON object")


@dataclass(frozen=True, slots=True)
class ParquetRow:
    """A row of a Parquet file, without its image, which `picture` reads."""

    number: int
    values: dict[str, Any]
    picture: SamplePicture


def parquet_rows(folder: Path, split: str, columns: Iterable[str]) -> Iterator[ParquetRow]:
    """Yield the rows of a split's Parquet files in natural order, numbered from 0.

    Files are of the split if their names say so, else if their folders' names do; if none do, all files are read.
    Columns that a file does not have are left out of the values. Raises `SourceError` for a file that cannot be read,
    has no column `image`, or has a name that is not UTF-8.
    """
    files = with_suffix(folder, ".parquet")
    named = [path for path in files if split in path.name] or [path for path in files if split in path.parent.name]
    number = 0
    for path in named or files:
        require_utf8(path)
        try:
            file = pq.ParquetFile(path, memory_map=True)
            if IMAGE not in file.schema_arrow.names:
                form = "{path} has no column {column}; it has {columns}"
                raise SourceError(form, path, IMAGE, ", ".join(file.schema_arrow.names))
            wanted = [name for name in columns if name in file.schema_arrow.names]
            for group in range(file.num_row_groups):
                for row, values in enumerate(file.read_row_group(group, wanted).to_pylist()):
                    yield ParquetRow(number, values, SamplePicture(path, load=_Cell(path, group, row)))
                    number += 1
        except (pa.ArrowException, OSError) as error:
            raise SourceError("{path} cannot be read: {error}", path, first_line(error)) from None


@dataclass(frozen=True, slots=True)
class _Cell:
    """An image in a Parquet file: its bytes, or the struct that `datasets` writes."""

    path: Path
    group: int
    row: int

    def __call__(self) -> bytes:
        value = _images(self.path, self.group)[self.row].as_py()
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise OSError(f"row {self.row} of row group {self.group} holds no image bytes")
        return data


@lru_cache(maxsize=1)
def _images(path: Path, group: int) -> pa.ChunkedArray:
    """Return the images of one row group, cached because pictures are read in order."""
    return pq.ParquetFile(path, memory_map=True).read_row_group(group, [IMAGE])[IMAGE]


_FORMATS = {".arrow": "arrow", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class CorpusRow:
    """A page in a corpus file.

    `texts` are those of the requested columns that exist; null is None.
    """

    id: str
    document: str
    page_number: int
    licence: str | None
    picture: SamplePicture
    texts: dict[str, str | None]


def page_rows(folder: Path, columns: Sequence[str] = ()) -> Iterator[CorpusRow]:
    """Yield the rows of the page files in or below a folder.

    Files without an id and an image column are left out. Raises `SourceError` for a damaged file.
    """
    for suffix, format in _FORMATS.items():
        for path in with_suffix(folder, suffix):
            table = _texts(path, format, columns)
            if table is None:
                continue
            for number, row in enumerate(table.to_pylist()):
                id = row.get(ID) or ""
                file, _, tail = id.rpartition("_")
                number_of_id = int(tail) if tail.isdecimal() and tail.isascii() else 1
                yield CorpusRow(
                    id,
                    row.get(FILE_NAME) or file or id,
                    row.get(PAGE_NUMBER) or number_of_id,
                    row.get(LICENSE),
                    SamplePicture(path, load=_Image(path, format, number)),
                    {name: row[name] for name in columns if name in row},
                )


def _texts(path: Path, format: str, columns: Sequence[str]) -> pa.Table | None:
    """Return the columns other than the image, or None for a file without pages.

    All except the page number are strings.
    """
    wanted = (ID, FILE_NAME, PAGE_NUMBER, LICENSE, *columns)
    require_utf8(path)
    try:
        with pa.memory_map(str(path)) as mapped:
            if format == "parquet":
                file = pq.ParquetFile(mapped)
                schema, read = file.schema_arrow, file.read
            else:
                whole = open_stream(mapped).read_all()
                schema, read = whole.schema, whole.select
            if not {ID, IMAGE} <= set(schema.names):
                return None
            check_schema(schema, str(path))
            table = read([name for name in wanted if name in schema.names])
            texts = [
                field if field.name == PAGE_NUMBER else field.with_type(pa.large_string()) for field in table.schema
            ]
            return table.cast(pa.schema(texts))
    except (pa.ArrowException, OSError) as error:
        raise SourceError("{path} cannot be read: {error}", path, first_line(error)) from None


@dataclass(frozen=True, slots=True)
class _Image:
    path: Path
    format: str
    row: int

    def __call__(self) -> bytes:
        row = _open_file(self.path, self.format).row(self.row)
        if row.image is None:
            raise OSError(row.problem or "the row has no image bytes")
        return bytes(row.image)


@lru_cache(maxsize=2)
def _open_file(path: Path, format: str) -> ShardFile:
    return open_pages(path, format)
