"""A shard's page images by row, and their origins, checked against the index."""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa

from kopub.errors import SourceError, counted, quoted
from kopub.files import file_sha256, is_url
from kopub.pages.arrow import ShardFile, open_pages
from kopub.pages.manifest import Manifest
from kopub.pages.page import Page
from kopub.pages.places import storage_at
from kopub.pages.upright import UprightTransform
from kopub.states import phrase

if TYPE_CHECKING:
    from kopub.pages.corpus import KeptPixels
    from kopub.pages.documents.shards import RenderedShard


def open_shard(manifest: Manifest, shard_key: str) -> ShardFile:
    """Open the file of a shard, fetching it first if it is at a URL.

    Raises `SourceError` if it is missing or not the file that was indexed, and `StoreError` if it cannot be fetched.
    """
    shard = manifest.shard(shard_key)
    place = manifest.place(shard.file)
    with manifest.index.held(shard.file, shard.sha256) as path:
        if not is_url(place) and path.is_file():
            now = path.stat()
            # A file of another time may hold the same bytes, which only its hash tells.
            is_same = now.st_size == shard.bytes and (
                now.st_mtime_ns == manifest.written.get(shard.key)
                or _sha256(path, now.st_size, now.st_mtime_ns, now.st_ino) == shard.sha256
            )
            if not is_same:
                form = "{place} changed since it was indexed: run `kopub index` again, or bring the file back"
                raise SourceError(form, place)
        return open_pages(path, shard.format, place)


@lru_cache(4096)
def _sha256(path: Path, size: int, written: int, inode: int) -> str:
    """Return the SHA-256 of a file, computed once each time the file was written."""
    return file_sha256(path)


def changed_files(manifest: Manifest) -> Iterator[str]:
    """Yield a line about local files missing or written since indexing, without reading any."""
    gone: list[str] = []
    written: list[str] = []
    for shard in manifest.shards:
        if is_url(place := manifest.place(shard.file)):
            continue
        try:
            now = Path(place).stat()
        except OSError:
            gone.append(place)
            continue
        if now.st_size != shard.bytes or now.st_mtime_ns != manifest.written.get(shard.key, now.st_mtime_ns):
            written.append(place)
    for places, form in (
        (gone, "{file} cannot be found: bring it back, or index what is there with `kopub index`"),
        (written, "{file} was written since it was indexed: `kopub index` looks whether it changed"),
    ):
        if places:
            several = phrase("{file} (and {files} like it)", places[0], counted(len(places) - 1, "more file"))
            yield phrase(form, several if places[1:] else places[0])


class ImageReader:
    """The page images of one shard, by row; threads may share it.

    A row number proves nothing: since `raw_pages` was made, the file may have changed, or the manifest may name another
    one. So the reader returns a page's bytes only if their SHA-256 is the page's, and as a copy, which no later write
    to the file can change. Both together take 0.5 ms for 700 KB.
    """

    def __init__(self, file: ShardFile, shard_key: str, kept: "KeptPixels | None" = None) -> None:
        self._file = file
        self._shard_key = shard_key
        self.kept = kept

    def page(self, page_id: str, row: int, sha256: str | None, upright: Mapping[str, Any] | None = None) -> Page:
        """Return the page at `row`, from 0, set upright.

        Its encoded image must have the given SHA-256, and `upright` is its transform; `raw_pages` holds both. A page
        that was set upright becomes a PNG, so that every engine sees the same one. Raises `SourceError` if the row
        cannot be read or holds other bytes, and `UndecodableImage` if its picture cannot be set upright.
        """
        view = self._encoded(row)
        # Unlike `bytes`, Arrow lets other threads run Python code while it copies.
        data = pa.BufferReader(view).read(len(view))
        if (digest := hashlib.sha256(data).hexdigest()) != sha256:
            form = (
                "{place}: row {row} does not hold the bytes that raw_pages saw of {page}: materialize raw_pages of "
                "{shard} again"
            )
            raise SourceError(form, self._file.place, row, quoted(page_id), self._shard_key)
        transform = UprightTransform.of_row(upright)
        if transform is not None:
            return Page(page_id, transform.apply_encoded(data))
        return Page(page_id, data, packed=self.kept and self.kept.find(digest))

    def page_of(self, row: Mapping[str, Any]) -> Page:
        """Return the page of a row of `raw_pages`; see `page`."""
        return self.page(row["page_id"], row["page_idx"], row["sha256"], row.get("upright"))

    def sha256(self, row: int) -> str:
        """Return the SHA-256 of the row's present encoded image. Raises `SourceError`."""
        return hashlib.sha256(self._encoded(row)).hexdigest()

    def _encoded(self, row: int) -> memoryview:
        content = self._file.row(row)
        if content.image is None:
            form = (
                "{place}: row {row} cannot be read: {reason}; bring in a whole file, or materialize raw_pages of "
                "{shard} again"
            )
            raise SourceError(form, self._file.place, row, content.problem, self._shard_key)
        return content.image


_RENDERED = re.compile(r"(?:.*/)?rendered/pages-[^/]+\.parquet")
_RENDERER = re.compile(r"(?P<dpi>\d+) dpi, (?P<version>.+), \d+, text \d+, pictures \d+")
_KEPT_FILES = 64
"""Most shards whose page ranges are kept in memory."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that a page comes from, and the page's number in it.

    `source` is the name of the source, and `file` the path below it, with bytes that are not UTF-8 spelt out. A PDF
    page was drawn at `dpi` by `renderer`, which includes its version and is preceded by the converter of an office
    file. An image has neither, and a page of an Arrow or Parquet file has no number either.
    """

    source: str
    file: str
    sha256: str
    page: int | None = None
    dpi: int | None = None
    renderer: str | None = None


def origins(manifest: Manifest, shard_key: str) -> Callable[[int], Origin]:
    """Return a function from row, from 0, to origin. Raises `SourceError`, `StoreError`."""
    shard = manifest.shard(shard_key)
    if not _RENDERED.fullmatch(shard.file):
        source = manifest.source(shard.source)
        top, file = PurePosixPath(source.place), PurePosixPath(shard.file)
        below = str(file.relative_to(top)) if file.is_relative_to(top) and file != top else file.name
        return lambda row: Origin(shard.source, below, shard.sha256)
    rendered = _ranges(manifest.place(shard.file), shard.sha256)
    ends = list(accumulate(pages.count for pages in rendered.ranges))
    match = _RENDERER.fullmatch(rendered.renderer)
    dpi, renderer = (int(match["dpi"]), match["version"]) if match else (None, rendered.renderer)

    def origin(row: int) -> Origin:
        at = bisect_right(ends, row)
        if not 0 <= row < ends[-1]:
            raise SourceError("{place} has no row {row}: run `kopub index` again", manifest.place(shard.file), row)
        pages = rendered.ranges[at]
        number = None if pages.problem is not None else pages.first + row - (ends[at] - pages.count) + 1
        # Neither Parquet nor JSON on the web accepts half of a surrogate pair.
        place = pages.place.encode(errors="backslashreplace").decode()
        origin = Origin(shard.source, place, pages.sha256, number)
        if pages.converter is not None:
            return replace(origin, dpi=dpi, renderer=f"{pages.converter}; {renderer}")
        is_pdf = PurePosixPath(pages.place).suffix.lower() == ".pdf"
        return replace(origin, dpi=dpi, renderer=renderer) if is_pdf else origin

    return origin


@lru_cache(_KEPT_FILES)
def _ranges(place: str, sha256: str) -> "RenderedShard":
    """Return the metadata of a shard of rendered pages; `sha256` is only a cache key."""
    from kopub.pages.documents.shards import RenderedShard

    try:
        if is_url(place):
            objects, path = storage_at(place)
            with cast("BinaryIO", objects.open(path)) as file:
                shard = RenderedShard.read(file)
        else:
            with Path(place).open("rb") as file:
                shard = RenderedShard.read(file)
    except OSError as error:
        form = "{place} cannot be opened: {error}; run `kopub index` again"
        raise SourceError(form, place, error.strerror or error) from None
    if shard is None:
        raise SourceError("{place} is damaged: delete it and run `kopub index` again", place)
    return shard
