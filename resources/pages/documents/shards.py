"""A folder of documents as Parquet shards of page images, made once and kept beside the index.

A shard is named by the fingerprint of what its pages are made from, which its metadata spells
out. So no shard is ever overwritten, no page is made twice, and an `index` that was killed
continues at the first shard that is missing.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import SourceError
from resources.fingerprints import fingerprint
from resources.pages.arrow import BYTES, FILE_NAME, ID, IMAGE, PAGE_NUMBER, PROBLEM, TEXT_LAYER
from resources.pages.documents import pdf, pdf_text, pictures
from resources.pages.documents.folder import Document
from resources.pages.documents.made_page import MadePage
from resources.pages.documents.packing import PageRange, pack
from resources.pages.documents.pool import DocumentPool, Failed
from resources.pages.documents.rendered import NAMES, Rendered
from resources.pages.manifest import Manifest
from resources.pages.places.object_paths import SourcePath, on_disk
from resources.parallel import ordered_map
from resources.printable import counted, first_line

SHARD_PAGES = 500

_FETCHED_AT_ONCE = 8
_METADATA = b"kopub.rendered"
_SCHEMA = pa.schema(
    [
        (ID, pa.string()),
        (IMAGE, pa.struct([(BYTES, pa.binary()), ("path", pa.string())])),
        (FILE_NAME, pa.string()),
        (PAGE_NUMBER, pa.int32()),
        (TEXT_LAYER, pa.string()),
        (PROBLEM, pa.string()),
    ]
)
_GROUP_ROWS = 16
_GROUP_BYTES = 1 << 25
"""A row group ends after so many pages or bytes: it is read as a whole, and 16 scans may have 200 MB."""

Progress = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Shard:
    """What a file holds; `renderer` is the resolution and the versions that its pages were made with."""

    renderer: str
    ranges: tuple[PageRange, ...]

    @property
    def name(self) -> str:
        return NAMES.replace("*", fingerprint(self.metadata()))

    @property
    def rows(self) -> int:
        return sum(each.count for each in self.ranges)

    def metadata(self) -> str:
        """As JSON in ASCII, because names of files may hold bytes that are no UTF-8."""
        return json.dumps({"renderer": self.renderer, "ranges": [asdict(each) for each in self.ranges]})

    @classmethod
    def of(cls, path: SourcePath) -> "_Shard | None":
        """The shard in a file; None when it is no such file, or damaged."""
        try:
            with path.open("rb") as opened, pq.ParquetFile(opened) as file:
                content = json.loads((file.schema_arrow.metadata or {})[_METADATA])
                return cls(content["renderer"], tuple(PageRange(**each) for each in content["ranges"]))
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            return None


def render(
    documents: Sequence[Document], rendered: Rendered, before: Manifest | None, dpi: int, progress: Progress
) -> list[SourcePath]:
    """The shards of the documents' pages, in the order of their keys. Pages that are in no shard yet are made.

    A document stays in the shard that it has in the index `before`. A document or a page that cannot be made is a row
    without bytes and with a problem. One process at a time may call it. Raises `StoreError`.
    """
    renderer = f"{dpi} dpi, {pdf.version()}, text {pdf_text.CODE.number}, pictures {pictures.CODE.number}"
    stored = {path: shard for path in rendered.found() if (shard := _Shard.of(path))}
    with DocumentPool() as pool:
        ranges = _ranges(documents, pool, [each for shard in stored.values() for each in shard.ranges])
        pages = counted(sum(each.count for each in ranges), "page")
        progress(f"{counted(len(documents), 'document')}, {pages}")
        shards = [_Shard(renderer, tuple(packed)) for packed in pack(ranges, _before(before, stored), SHARD_PAGES)]
        paths = [rendered.path(shard.name) for shard in shards]
        usable = {path: shard for path, shard in stored.items() if shard.renderer == renderer}
        made = {each: (path, shard) for path, shard in usable.items() for each in shard.ranges}
        by_place = {document.place: document.path for document in documents}
        for at, (path, shard) in enumerate(zip(paths, shards, strict=True), start=1):
            new = sum(each.count for each in shard.ranges if each not in made and each.problem is None)
            if path not in stored:
                rows = _rows(shard, made, by_place, pool, dpi)
                rendered.write(path, lambda temporary, shard=shard, rows=rows: _write(temporary, shard, rows))
            did = f"{new:,} of {shard.rows:,} pages made" if path not in stored else f"{shard.rows:,} pages kept"
            progress(f"{path.name} ({at} of {len(shards)}): {did}")
            with on_disk(path) as file:
                problems = pq.read_table(file, columns=[PROBLEM])[PROBLEM].drop_null().to_pylist()
            for problem in problems:
                progress(f"will be quarantined: {problem}")
    return paths


def _before(index: Manifest | None, stored: dict[SourcePath, _Shard]) -> list[Sequence[PageRange]]:
    """The ranges of every shard in the index before; none where it is of another source."""
    by_place = {str(path): shard.ranges for path, shard in stored.items()}
    return [by_place.get(index.place(shard.file), ()) for shard in index.shards] if index else []


def _ranges(documents: Sequence[Document], pool: DocumentPool, known: Iterable[PageRange]) -> list[PageRange]:
    """The ranges of all documents, in order. A document of a known range is not opened."""
    facts = _facts(documents, pool, known)
    ranges = []
    for document in documents:
        sha256, pages, problem = facts[document.place]
        for first in range(0, pages or 1, SHARD_PAGES):
            count = min(SHARD_PAGES, (pages or 1) - first)
            ranges.append(PageRange(document.place, document.name, document.id, sha256, first, count, pages, problem))
    return ranges


def _facts(
    documents: Sequence[Document], pool: DocumentPool, known: Iterable[PageRange]
) -> dict[str, tuple[str, int, str | None]]:
    """SHA-256, number of pages and problem of each document, by its place."""
    before = {(each.place, each.sha256): each for each in known}
    facts: dict[str, tuple[str, int, str | None]] = {}
    new: list[tuple[Document, str]] = []
    # Of files on this disk one is read at a time; others are fetched.
    local = all(isinstance(document.path, Path) for document in documents)
    hashes = map(_sha256, documents) if local else ordered_map(_sha256, documents, _FETCHED_AT_ONCE)
    for document, sha256 in zip(documents, hashes, strict=True):
        if isinstance(sha256, OSError):
            facts[document.place] = "", 0, f"the file cannot be read: {sha256.strerror}"
            continue
        if found := before.get((document.place, sha256)):
            facts[document.place] = sha256, found.pages, found.problem
        else:
            new.append((document, sha256))
    counted = pool.pages(document.path for document, _ in new)
    for (document, sha256), pages in zip(new, counted, strict=True):
        facts[document.place] = (sha256, 0, pages.reason) if isinstance(pages, Failed) else (sha256, pages, None)
    return facts


def _sha256(document: Document) -> str | OSError:
    try:
        return document.sha256()
    except OSError as error:
        return error


def _rows(
    shard: _Shard,
    rendered: dict[PageRange, tuple[SourcePath, _Shard]],
    paths: dict[str, SourcePath],
    pool: DocumentPool,
    dpi: int,
) -> Iterator[Row]:
    """The rows of a shard: of a document that cannot be opened, copied from a shard that has them, or made now."""
    wanted = [each for each in shard.ranges if each not in rendered and each.problem is None]
    pages = pool.render(((paths[each.place], each.first + at) for each in wanted for at in range(each.count)), dpi)
    for each in shard.ranges:
        if each in rendered:
            yield from _copied(each, *rendered[each])
        elif each.problem is not None:
            yield _row(each, None, Failed(each.problem))
        else:
            for number in _numbers(each):
                yield _row(each, number, next(pages))


def _numbers(pages: PageRange) -> list[int | None]:
    """The numbers of the pages, from 1; that of a document which cannot be opened is None."""
    return [None] if pages.problem is not None else [pages.first + at + 1 for at in range(pages.count)]


def _page_id(pages: PageRange, number: int | None) -> str:
    return f"{pages.id}{Path(pages.place).suffix.lower()}" if number is None else f"{pages.id}_{number}"


def _row(pages: PageRange, number: int | None, page: MadePage | Failed) -> Row:
    made, problem = (page, None) if isinstance(page, MadePage) else (None, page.reason)
    return {
        ID: _page_id(pages, number),
        IMAGE: {BYTES: made and made.data, "path": None},
        FILE_NAME: pages.name,
        PAGE_NUMBER: number,
        TEXT_LAYER: made and made.text_layer,
        PROBLEM: problem and f"{pages.name}{'' if number is None else f', page {number}'}: {problem}",
    }


def _copied(pages: PageRange, path: SourcePath, shard: _Shard) -> Iterator[Row]:
    """The rows of a range in another shard. Raises `SourceError` unless they are there under their ids."""
    ids = iter(_page_id(pages, number) for number in _numbers(pages))
    start = sum(other.count for other in shard.ranges[: shard.ranges.index(pages)])
    with on_disk(path) as stored, pq.ParquetFile(stored) as file:
        end = 0
        for group in range(file.num_row_groups):
            begin, end = end, end + file.metadata.row_group(group).num_rows
            if begin < start + pages.count and start < end:
                skipped = max(start - begin, 0)
                try:
                    rows = file.read_row_group(group)
                except (pa.ArrowException, OSError) as error:
                    raise _damaged(path, first_line(error)) from None
                for row in rows.slice(skipped, start + pages.count - begin - skipped).to_pylist():
                    if row[ID] != next(ids):
                        raise _damaged(path, "a row has the id of another page")
                    yield row
    if next(ids, None) is not None:
        raise _damaged(path, "it lacks rows")


def _damaged(path: SourcePath, reason: str) -> SourceError:
    return SourceError(f"{path} is damaged ({reason}): delete it and index again")


def _write(path: Path, shard: _Shard, rows: Iterator[Row]) -> None:
    schema = _SCHEMA.with_metadata({_METADATA: shard.metadata()})
    # Images are compressed already; the text of a page, with a place for each word, shrinks to a third.
    options = {"compression": {TEXT_LAYER: "zstd"}, "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for group in _groups(rows):
            writer.write_table(pa.Table.from_pylist(group, schema))


def _groups(rows: Iterator[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row[IMAGE][BYTES] or b"")
        if len(group) == _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
