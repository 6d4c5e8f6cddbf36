"""Rows of a corpus in the KoPub schema, Arrow or Parquet, with their texts; images are read when they are asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import SourceError
from resources.evaluation.adapters.folders import with_suffix
from resources.evaluation.benchmark import Picture
from resources.pages.arrow import FILE_NAME, ID, IMAGE, LICENSE, PAGE_NUMBER, PageFile, open_pages
from resources.printable import first_line

_FORMATS = {".arrow": "arrow", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page of a corpus file. `texts` are the columns that were asked for and are there, None where they are null."""

    id: str
    document: str
    page_number: int
    licence: str | None
    picture: Picture
    texts: dict[str, str | None]


def page_rows(folder: Path, columns: Sequence[str] = ()) -> Iterator[PageRow]:
    """The rows of the files of pages in or below a folder; files without an id and an image column are left out.

    Raises `SourceError` for a file that is damaged.
    """
    for suffix, format in _FORMATS.items():
        for path in with_suffix(folder, suffix):
            table = _texts(path, format, columns)
            if table is None:
                continue
            for number, row in enumerate(table.to_pylist()):
                id = row.get(ID) or ""
                yield PageRow(
                    id,
                    row.get(FILE_NAME) or id.rpartition("_")[0] or id,
                    row.get(PAGE_NUMBER) or _number(id),
                    row.get(LICENSE),
                    Picture(path, load=_Image(path, format, number)),
                    {name: row[name] for name in columns if name in row},
                )


def _texts(path: Path, format: str, columns: Sequence[str]) -> pa.Table | None:
    """The columns beside the image; None for a file that is no file of pages."""
    wanted = (ID, FILE_NAME, PAGE_NUMBER, LICENSE, *columns)
    try:
        if format == "parquet":
            file = pq.ParquetFile(path, memory_map=True)
            names = file.schema_arrow.names
            return file.read([name for name in wanted if name in names]) if {ID, IMAGE} <= set(names) else None
        with pa.memory_map(str(path)) as mapped:
            table = pa.ipc.open_stream(mapped).read_all()
            names = table.column_names
            return table.select([name for name in wanted if name in names]) if {ID, IMAGE} <= set(names) else None
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read: {first_line(error)}") from None


def _number(id: str) -> int:
    tail = id.rpartition("_")[2]
    return int(tail) if tail.isdecimal() and tail.isascii() else 1


@dataclass(frozen=True, slots=True)
class _Image:
    path: Path
    format: str
    row: int

    def __call__(self) -> bytes:
        row = _opened(self.path, self.format).row(self.row)
        if row.image is None:
            raise OSError(row.problem or "the row has no image bytes")
        return bytes(row.image)


@lru_cache(maxsize=2)
def _opened(path: Path, format: str) -> PageFile:
    return open_pages(path, format)
