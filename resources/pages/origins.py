"""Which file of a person's, and which page in it, every page of a shard comes from."""

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from resources.errors import SourceError
from resources.pages.manifest import Manifest
from resources.urls import is_url

if TYPE_CHECKING:
    from resources.pages.documents.shards import RenderedShard

_RENDERED = re.compile(r"(?:.*/)?rendered/pages-[^/]+\.parquet")
_RENDERER = re.compile(r"(?P<dpi>\d+) dpi, (?P<version>.+), \d+, text \d+, pictures \d+")
_KEPT_FILES = 64
"""Shards whose ranges of pages are kept in memory."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that a page comes from: its path below its source, its SHA-256, and the number of the page in it.

    `source` is the name of the source. A page of a PDF was drawn at `dpi` by `renderer`, with its version; before it
    stands what made the PDF of an office's file. An image has neither, and a page of an Arrow or Parquet file no
    number either.
    """

    source: str
    file: str
    sha256: str
    page: int | None = None
    dpi: int | None = None
    renderer: str | None = None


def origins(manifest: Manifest, shard_key: str) -> Callable[[int], Origin]:
    """What tells of each row of a shard, from 0, where it comes from. Raises `SourceError`, and `StoreError`."""
    shard = manifest.shard(shard_key)
    if not _RENDERED.fullmatch(shard.file):
        source = manifest.source(shard.source)
        top, file = PurePosixPath(source.place), PurePosixPath(shard.file)
        below = str(file.relative_to(top)) if file.is_relative_to(top) and file != top else file.name
        return lambda row: Origin(shard.source, below, shard.sha256)
    rendered = _ranges(manifest.place(shard.file), shard.sha256)
    ends = list(accumulate(each.count for each in rendered.ranges))
    found = _RENDERER.fullmatch(rendered.renderer)
    dpi, renderer = (int(found["dpi"]), found["version"]) if found else (None, rendered.renderer)

    def origin(row: int) -> Origin:
        at = bisect_right(ends, row)
        if not 0 <= row < ends[-1]:
            raise SourceError(f"{manifest.place(shard.file)} has no row {row}: run `kopub index` again")
        pages = rendered.ranges[at]
        number = None if pages.problem is not None else pages.first + row - (ends[at] - pages.count) + 1
        origin = Origin(shard.source, pages.place, pages.sha256, number)
        if pages.converter is not None:
            return replace(origin, dpi=dpi, renderer=f"{pages.converter}; {renderer}")
        is_pdf = PurePosixPath(pages.place).suffix.lower() == ".pdf"
        return replace(origin, dpi=dpi, renderer=renderer) if is_pdf else origin

    return origin


@lru_cache(_KEPT_FILES)
def _ranges(place: str, sha256: str) -> "RenderedShard":
    """What a shard of documents' pages says of itself; its SHA-256 tells it from another at the same place."""
    from resources.pages.documents.shards import RenderedShard

    try:
        with _opened(place) as file:
            found = RenderedShard.read(file)
    except OSError as error:
        raise SourceError(f"{place} cannot be opened: {error.strerror or error}; run `kopub index` again") from None
    if found is None:
        raise SourceError(f"{place} is damaged: delete it and run `kopub index` again")
    return found


def _opened(place: str) -> BinaryIO:
    if not is_url(place):
        return Path(place).open("rb")
    from resources.store.objects import Objects

    objects, path = Objects.at(place)
    return cast("BinaryIO", objects.open(path))
