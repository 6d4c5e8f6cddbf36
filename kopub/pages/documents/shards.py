"""A folder of documents as Parquet shards of page images.

They are made once and kept beside the index. A shard is named by the fingerprint of its pages' inputs, which its
metadata spells out. So no shard is ever overwritten, no page is made twice, and a killed `index` continues at the first
missing shard.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from kopub.errors import SourceError, StoreError, counted, first_line
from kopub.files import cannot_write, replace_file
from kopub.fingerprints import fingerprint
from kopub.pages.arrow import BYTES, FAILED, FILE_NAME, ID, IMAGE, PAGE_NUMBER, PARTS, PROBLEM, TEXT_LAYER
from kopub.pages.documents import conversion, pdf, pictures, text_layer
from kopub.pages.documents.folder import LeftOut, SourceFile
from kopub.pages.documents.pool import RenderPool, RowRange, TakenNames, first_pages, pack, ranges_of
from kopub.pages.documents.text_layer import Failure, RenderedImage
from kopub.pages.places import CorpusPlace, ObjectPath, SourcePath, on_disk
from kopub.states import Reason, joined, phrase

FOLDER = "rendered"
NAMES = "pages-*.parquet"
_MADE = "made.parquet"
"""The temporary name of a shard that was just made."""


class ShardFolder:
    """The folder of shards beside an index."""

    def __init__(self, index: CorpusPlace) -> None:
        self._own = (index.home if index.remote else index.folder) / FOLDER
        """The local folder for files being made, and for the lock."""
        self._folder: SourcePath = self._own
        if index.remote:
            self._folder = ObjectPath.listed(f"{index.url}/{FOLDER}", index.fetched)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let one process at a time render.

        Raises `SourceError` if another process holds the lock, and `StoreError` if the folder cannot be written.
        """
        lock = FileLock(self._own / ".lock", timeout=0)
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            form = "another `kopub index` makes pages in {folder}: wait for it, or end it"
            raise SourceError(form, self._own.parent) from None
        except OSError as error:
            raise StoreError(cannot_write(self._own, error)) from error
        try:
            yield
        finally:
            lock.release()

    def files(self) -> list[SourcePath]:
        """Return the existing shards, sorted by name."""
        paths: Iterable[SourcePath] = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted((path for path in paths if fnmatchcase(path.name, NAMES)), key=str)

    def write(self, write: Callable[[Path], str]) -> SourcePath:
        """Let `write` make and name a shard, whole or not at all. Raises `StoreError`."""
        names: list[str] = []
        # A shard is named by what it holds, which is known when all of it is made.
        shard = self._own / _MADE
        try:
            replace_file(shard, lambda temporary: names.append(write(temporary)))
            path = self._folder / names[-1]
            if isinstance(path, Path):
                shard.replace(path)
            else:
                path.put(shard)
            return path
        except OSError as error:
            raise StoreError(cannot_write(self._own, error)) from error
        finally:
            shard.unlink(missing_ok=True)

    def clear(self, keep: Iterable[SourcePath]) -> None:
        """Remove all shards but those to `keep`, and temporary files of a killed `index`."""
        for path in [*set(self.files()) - set(keep), *self._own.glob(".*.parquet.*.tmp")]:
            path.unlink()


SHARD_PAGES = 500

_NAMED = 10
"""Most failed pages of a shard that are named."""
_METADATA = b"kopub.rendered"
_SCHEMA = pa.schema(
    [
        (ID, pa.string()),
        (IMAGE, pa.struct([(BYTES, pa.binary()), ("path", pa.string())])),
        (FILE_NAME, pa.string()),
        (PAGE_NUMBER, pa.int32()),
        (TEXT_LAYER, pa.string()),
        (PROBLEM, pa.string()),
        (PARTS, pa.string()),
        (FAILED, pa.bool_()),
    ]
)
_GROUP_ROWS = 16
_GROUP_BYTES = 1 << 25
"""Limits of a row group in rows and bytes: it is read as a whole, and 16 scans may have 200 MB."""

Progress = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RenderedShard:
    """The content of a file, and the `renderer` of its pages.

    The renderer is the resolution and the versions with which they were made. `failed` are the rows of pages that could
    not be made and will be tried again, and `quarantined` those whose bytes cannot be used.
    """

    renderer: str
    ranges: tuple[RowRange, ...]
    failed: tuple[int, ...] = ()
    quarantined: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return NAMES.replace("*", fingerprint(self.metadata()))

    @property
    def rows(self) -> int:
        return sum(pages.count for pages in self.ranges)

    def metadata(self) -> str:
        """Return the shard as ASCII JSON, because file names may not be UTF-8."""
        content: dict[str, Any] = {"renderer": self.renderer, "ranges": [pages.as_json() for pages in self.ranges]}
        for name, rows in (("failed", self.failed), ("quarantined", self.quarantined)):
            if rows:
                content[name] = rows
        return json.dumps(content)

    def start_of(self, pages: RowRange) -> int:
        """Return the row at which a range begins."""
        return sum(other.count for other in self.ranges[: self.ranges.index(pages)])

    @classmethod
    def read(cls, opened: BinaryIO) -> "RenderedShard | None":
        """Return the shard in an open file; None for other or damaged files. Raises `OSError`."""
        try:
            with pq.ParquetFile(opened) as file:
                content = json.loads((file.metadata.metadata or {})[_METADATA])
                ranges = tuple(RowRange(**stored) for stored in content["ranges"])
                if FAILED in file.schema_arrow.names:
                    failed, quarantined = content.get("failed", ()), content.get("quarantined", ())
                    return cls(content["renderer"], ranges, tuple(failed), tuple(quarantined))
                # An older release quarantined pages for temporary reasons too, so all its lost pages are tried again.
                problems = file.read([PROBLEM])[PROBLEM].is_valid().to_pylist()
                ranges = tuple(replace(pages, may_pass=pages.problem is not None) for pages in ranges)
                return cls(content["renderer"], ranges, tuple(row for row, lost in enumerate(problems) if lost))
        except (pa.ArrowException, KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class RenderedShards:
    """The shards of a source's documents, and what was lost.

    Each file comes with its former key, if any. `failed` counts pages that could not be made for a reason that may be
    temporary, and `left` those that are not wanted yet.
    """

    files: Sequence[tuple[SourcePath, str | None]]
    failed: int
    left_out: Sequence[LeftOut]
    copies_of: Collection[str]
    left: int


def render(
    documents: Sequence[SourceFile],
    source: str,
    rendered: ShardFolder,
    before: Sequence[tuple[str, str]],
    others: Mapping[str, str],
    taken: TakenNames,
    dpi: int,
    most: int | None,
    progress: Progress,
) -> RenderedShards:
    """Make the pages of a source's documents that are in no shard yet.

    `before` are the keys and files of the source's shards in the index, because a document stays in its shard. `others`
    maps the files of other sources to the sources' names; their documents are left out of this one, and `taken` are
    their names and ids. Only the first `most` pages are made if it is given. A document or page that cannot be made
    becomes a row with a problem and no bytes. Only one process at a time may call this. Raises `StoreError`.
    """
    renderer = f"{dpi} dpi, {pdf.version()}, text {text_layer.TEXT_CODE.number}, pictures {pictures.CODE.number}"
    by_place: dict[str, tuple[RowRange, ...]] = {}
    stored: dict[SourcePath, RenderedShard] = {}
    for path in rendered.files():
        # What cannot be read is made anew.
        with suppress(OSError), path.open("rb") as opened:
            if shard := RenderedShard.read(opened):
                by_place[str(path)] = shard.ranges
                # Another version may count other pages, or open a document that this one cannot.
                if shard.renderer == renderer:
                    stored[path] = shard
    had = [by_place.get(file, ()) for _, file in before]
    elsewhere: dict[str, tuple[str, str]] = {}
    for file, name in others.items():
        for pages in by_place.get(file, ()):
            # A file that could not be read has no hash, and is not a copy of another such file.
            if pages.sha256:
                elsewhere[pages.sha256] = (name, pages.name)
    failed = 0
    with RenderPool() as pool:
        current = chain.from_iterable(shard.ranges for shard in stored.values())
        ranges, left_out, copies_of = ranges_of(
            documents, source, chain(*had), current, elsewhere, taken, pool, SHARD_PAGES
        )
        every_page = sum(pages.count for pages in ranges)
        opened = counted(len({pages.place for pages in ranges}), "document")
        total = every_page if most is None else min(every_page, most)
        wanted = list(first_pages(ranges, total))
        form = "{documents}, {pages}, of which the first {count:,} are made"
        some = phrase(form, opened, counted(every_page, "page"), total)
        progress(joined([opened, counted(every_page, "page")], "{first}, {then}") if total == every_page else some)
        if any(pages.converter for pages in wanted) and not conversion.has_korean_font():
            form = "no Korean font is here, so Hangul of office files is lost: {command}"
            progress(phrase(form, conversion.KOREAN_FONTS))
        packed = pack(wanted, had, SHARD_PAGES)
        keys = [key for key, _ in before] + [None] * (len(packed) - len(had))
        paths = {document.place: document.path for document in documents}
        making = _ShardMaker(rendered, renderer, stored, paths, pool, dpi)
        files: list[tuple[SourcePath, str | None]] = []
        end = 0
        for key, shard_ranges in zip(keys, map(tuple, packed), strict=True):
            if not shard_ranges:
                continue
            path, shard, count = making.shard(shard_ranges)
            files.append((path, key))
            failed += len(shard.failed)
            start, end = end + 1, end + shard.rows
            outcome = phrase("{pages} kept", counted(shard.rows, "page"))
            if count is not None:
                outcome = phrase("{count:,} of {rows:,} pages made", count, shard.rows)
            progress(phrase("pages {start:,} to {end:,} of {total:,}: {reason}", start, end, total, outcome))
            for problem in _problems(path, shard):
                progress(problem)
    if failed:
        form = "{count:,} of {pages} could not be made: index again to try them once more"
        progress(phrase(form, failed, counted(total, "page")))
    return RenderedShards(files, failed, left_out, copies_of, every_page - total)


def _problems(path: SourcePath, shard: RenderedShard) -> Iterator[str]:
    """Yield a line for each of the first failed pages, and for every quarantined one."""
    if not (shard.failed or shard.quarantined):
        return
    with on_disk(path) as file:
        # Shards of older releases have sentences alone.
        columns = [PROBLEM, PARTS] if PARTS in pq.read_schema(file).names else [PROBLEM]
        problems = pq.read_table(file, columns=columns).to_pylist()
    for form, rows in (
        ("could not be made: {reason}", shard.failed[:_NAMED]),
        ("will be quarantined: {reason}", shard.quarantined),
    ):
        for row in rows:
            parts = problems[row].get(PARTS)
            yield phrase(form, Reason.unpacked(parts) if parts else problems[row][PROBLEM] or "")


class _ShardMaker:
    """The maker of shards, which copies pages that are already `stored`."""

    def __init__(
        self,
        rendered: ShardFolder,
        renderer: str,
        stored: Mapping[SourcePath, RenderedShard],
        paths: Mapping[str, SourcePath],
        pool: RenderPool,
        dpi: int,
    ) -> None:
        self._rendered, self._renderer, self._paths, self._pool, self._dpi = rendered, renderer, paths, pool, dpi
        self._whole: dict[tuple[RowRange, ...], tuple[SourcePath, RenderedShard]] = {}
        self._shard_of: dict[RowRange, tuple[SourcePath, RenderedShard]] = {}
        for path, shard in stored.items():
            if not shard.failed:
                self._whole[shard.ranges] = path, shard
            self._shard_of |= dict.fromkeys(shard.ranges, (path, shard))

    def shard(self, ranges: tuple[RowRange, ...]) -> tuple[SourcePath, RenderedShard, int | None]:
        """Return the ranges' file and shard, and the pages made, None if it existed."""
        if ranges in self._whole:
            return *self._whole[ranges], None
        count = 0
        failed: list[int] = []
        quarantined: list[int] = []
        shard: RenderedShard | None = None

        def write(temporary: Path) -> str:
            nonlocal count, shard
            # Images are compressed already, whereas a page's text layer shrinks to a third.
            options: dict[str, Any] = {"compression": {TEXT_LAYER: "zstd"}, "use_dictionary": False}
            with pq.ParquetWriter(temporary, _SCHEMA, **options, write_statistics=False) as writer:
                group: list[Row] = []
                size = 0
                for at, (row, is_new) in enumerate(self._rows(ranges)):
                    content = row[IMAGE][BYTES]
                    count += is_new and content is not None
                    if row[PROBLEM] is not None and content is None:
                        (failed if row[FAILED] else quarantined).append(at)
                    group.append(row)
                    size += len(content or b"")
                    if len(group) == _GROUP_ROWS or size >= _GROUP_BYTES:
                        writer.write_table(pa.Table.from_pylist(group, _SCHEMA))
                        group, size = [], 0
                if group:
                    writer.write_table(pa.Table.from_pylist(group, _SCHEMA))
                shard = RenderedShard(self._renderer, ranges, tuple(failed), tuple(quarantined))
                writer.add_key_value_metadata({_METADATA: shard.metadata()})
            return shard.name

        path = self._rendered.write(write)
        assert shard is not None, "it was written"
        return path, shard, count

    def _rows(self, ranges: Sequence[RowRange]) -> Iterator[tuple[Row, bool]]:
        """Yield a shard's rows, and whether each is made now.

        The others are copied from another shard, or have the problem of the document.
        """
        wanted: list[tuple[SourcePath, int]] = []
        of_ranges: list[set[int]] = []
        """The pages of each range that must be made, counted from its first."""
        for pages in ranges:
            numbers = set(range(pages.count) if pages.problem is None else ())
            if pages in self._shard_of:
                _, shard = self._shard_of[pages]
                start = shard.start_of(pages)
                numbers.intersection_update(row - start for row in shard.failed)
            of_ranges.append(numbers)
            wanted += ((self._paths[pages.place], pages.first + at) for at in sorted(numbers))
        renderings = self._pool.render(wanted, self._dpi)
        for pages, numbers in zip(ranges, of_ranges, strict=True):
            if pages.problem is not None:
                yield _row(pages, None, Failure(pages.problem, pages.may_pass)), False
                continue
            copied = _copy_rows(pages, *self._shard_of[pages]) if pages in self._shard_of else iter(())
            for at in range(pages.count):
                number = pages.first + at + 1
                row = next(copied, None)
                yield (_row(pages, number, next(renderings)), True) if at in numbers else (cast("Row", row), False)


def _row(pages: RowRange, number: int | None, page: RenderedImage | Failure) -> Row:
    rendering, problem = (page, page.damage) if isinstance(page, RenderedImage) else (None, page.reason)
    form = "{file}: {reason}" if number is None else "{file}, page {page}: {reason}"
    reason = problem and Reason(form, file=pages.name, page=number, reason=problem)
    return {
        ID: f"{pages.id}{Path(pages.place).suffix.lower()}" if number is None else f"{pages.id}_{number}",
        IMAGE: {BYTES: rendering and rendering.data, "path": None},
        FILE_NAME: pages.name,
        PAGE_NUMBER: number,
        TEXT_LAYER: rendering and rendering.text_layer,
        PROBLEM: reason,
        PARTS: reason and reason.packed(),
        FAILED: isinstance(page, Failure) and page.may_pass,
    }


def _copy_rows(pages: RowRange, path: SourcePath, shard: RenderedShard) -> Iterator[Row]:
    """Yield a range's rows from another shard. Raises `SourceError` if their ids differ."""
    form = "{path} is damaged ({reason}): delete it and index again"
    number, start = pages.first, shard.start_of(pages)
    with on_disk(path) as stored, pq.ParquetFile(stored) as file:
        end = 0
        for group in range(file.num_row_groups):
            begin, end = end, end + file.metadata.row_group(group).num_rows
            if begin < start + pages.count and start < end:
                skipped = max(start - begin, 0)
                try:
                    rows = file.read_row_group(group)
                except (pa.ArrowException, OSError) as error:
                    raise SourceError(form, path, first_line(error)) from None
                for row in rows.slice(skipped, start + pages.count - begin - skipped).to_pylist():
                    number += 1
                    if row[ID] != f"{pages.id}_{number}":
                        raise SourceError(form, path, "a row has the id of another page")
                    yield row
    if number < pages.first + pages.count:
        raise SourceError(form, path, "it lacks rows")
