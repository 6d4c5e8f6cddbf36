"""The page images of an indexed shard by row, proved to be those that were read. No Dagster."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from resources.errors import SourceError
from resources.files import file_sha256
from resources.fingerprints import fingerprint
from resources.pages.arrow import PageFile, open_pages
from resources.pages.manifest import Manifest, Shard
from resources.pages.page import Page
from resources.pages.upright.transform import PageTransform
from resources.printable import counted, quoted
from resources.urls import is_url


def open_shard(manifest: Manifest, shard_key: str) -> PageFile:
    """The file of a shard; one at a URL is fetched.

    Raises `SourceError` where it is gone or is not the file that was indexed, and `StoreError` where it cannot be had.
    """
    shard = manifest.shard(shard_key)
    place = manifest.place(shard.file)
    with manifest.held(shard.file, shard.sha256) as path:
        if not is_url(place) and path.is_file() and not _is_as_indexed(manifest, shard, path):
            raise SourceError(f"{place} changed since it was indexed: run `kopub index` again, or bring the file back")
        return open_pages(path, shard.format, place)


def _is_as_indexed(manifest: Manifest, shard: Shard, path: Path) -> bool:
    now = path.stat()
    if now.st_size != shard.bytes:
        return False
    return now.st_mtime_ns == manifest.written.get(shard.key) or (
        _sha256(path, now.st_size, now.st_mtime_ns, now.st_ino) == shard.sha256
    )


@lru_cache(4096)
def _sha256(path: Path, size: int, written: int, inode: int) -> str:
    """The SHA-256 of a file, once for each time that it was written."""
    return file_sha256(path)


def changed_files(manifest: Manifest) -> Iterator[str]:
    """Say, without reading them, which files on this machine are gone or were written since they were indexed."""
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
    for places, became in (
        (gone, "cannot be found: bring it back, or index what is there with `kopub index`"),
        (written, "was written since it was indexed: `kopub index` looks whether it changed"),
    ):
        if places:
            more = f" (and {counted(len(places) - 1, 'more file')} like it)" if places[1:] else ""
            yield f"{places[0]}{more} {became}"


def shard_source(shard: Shard) -> str:
    """Fingerprint of a shard's file as it was indexed: what `raw_pages` reads of the corpus."""
    return fingerprint([Path(shard.file).name, shard.rows, shard.sha256, shard.duplicates])


class PageReader:
    """The page images of one shard, by row; threads may share it.

    A row number is no proof: the file may have changed, or the manifest may name another one, since
    `raw_pages` was made. So a page's bytes leave the reader only when their SHA-256 is the page's,
    as a copy, which no later write to the file can change. Both take 0.5 ms for 700 KB.
    """

    def __init__(self, file: PageFile, shard_key: str) -> None:
        self._file = file
        self._shard_key = shard_key

    def page(self, page_id: str, row: int, sha256: str | None, upright: Mapping[str, Any] | None = None) -> Page:
        """Return the page at `row`, from 0, whose encoded image has this SHA-256, set upright by the column `upright`.

        `raw_pages` has all of them. A page that was set upright is a PNG, so that every engine sees the same.
        Raises `SourceError` when the row cannot be read or holds other bytes, `UndecodableImage` when its picture
        cannot be set upright.
        """
        view = self._encoded(row)
        # Unlike `bytes`, Arrow lets other threads run Python while it copies.
        data = pa.BufferReader(view).read(len(view))
        if hashlib.sha256(data).hexdigest() != sha256:
            raise SourceError(
                f"{self._file.place}: row {row} does not hold the bytes that raw_pages saw of {quoted(page_id)}: "
                f"materialize raw_pages of {self._shard_key} again"
            )
        transform = PageTransform.of_row(upright)
        return Page(page_id, data if transform is None else transform.apply_encoded(data))

    def sha256(self, row: int) -> str:
        """The SHA-256 of the encoded image that the row holds now. Raises `SourceError`."""
        return hashlib.sha256(self._encoded(row)).hexdigest()

    def _encoded(self, row: int) -> memoryview:
        found = self._file.row(row)
        if found.image is None:
            raise SourceError(
                f"{self._file.place}: row {row} cannot be read: {found.problem}; "
                f"bring in a whole file, or materialize raw_pages of {self._shard_key} again"
            )
        return found.image
