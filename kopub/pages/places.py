"""Places of the index and its files: on this machine, or at URLs.

This module does not load Arrow, and loads an object storage client only when it is needed.
"""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import total_ordering
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, cast

from kopub.errors import SourceError, visible
from kopub.files import file_sha256, is_url, replace_bytes

if TYPE_CHECKING:
    from kopub.pages.fetched_files import FetchedFile, FetchedFiles, Stamp
    from kopub.store.objects import Objects

CACHE_GB = 100.0
"""Gigabytes of fetched files that a node keeps unless its profile says otherwise."""
FETCHED = "sources"
"""Folder of a home that holds fetched files."""


@dataclass(frozen=True)
class CorpusPlace:
    """The place of a corpus: its home, and the location of its index.

    `url` is the folder or fsspec URL of the index, or empty for the home itself. This node caches up to `cache_gb`
    gigabytes of files at URLs in its home.
    """

    home: Path
    url: str = ""
    cache_gb: float = CACHE_GB

    def __str__(self) -> str:
        return self.url or str(self.home)

    @property
    def remote(self) -> bool:
        """True if the index is in object storage."""
        return is_url(self.url)

    @property
    def folder(self) -> Path:
        """The folder of an index that is not remote."""
        return Path(self.url) if self.url else self.home

    @property
    def lock(self) -> str:
        """The folder of the lock of an index on object storage."""
        return f"{storage_at(self.url)[1]}/.locks/index"

    @property
    def fetched(self) -> "FetchedFiles":
        """The cache of files that this node has fetched."""
        from kopub.pages.fetched_files import FetchedFiles

        return FetchedFiles(self.home / FETCHED, int(self.cache_gb * 1e9))

    def location(self, file: str) -> str:
        """Return the path or URL of a file of the index, wherever it is."""
        if is_url(file) or os.path.isabs(file):
            return file
        return f"{self.url}/{file}" if self.remote else str(self.folder / file)

    @contextmanager
    def held(self, file: str, sha256: str | None = None) -> Iterator[Path]:
        """Yield a file of the index on this disk, while the context is open.

        Once mapped, it stays mapped. Raises `SourceError` for a file at a URL that is missing or has another SHA-256,
        and `StoreError` if the storage does not answer or the disk is full.
        """
        location = self.location(file)
        if not is_url(location):
            yield Path(location)
            return
        with self.fetched.held(location) as fetched:
            if sha256 not in (None, fetched.sha256):
                raise SourceError("{location} changed since it was indexed: run `kopub index` again", location)
            yield fetched.path

    def read(self, name: str) -> bytes:
        """Return a small file beside the index. Raises `OSError`, and `StoreError` from the storage."""
        if not self.remote:
            return (self.folder / name).read_bytes()
        objects, root = storage_at(self.url)
        return objects.get(f"{root}/{name}")

    def has(self, name: str) -> bool:
        """Return whether a file exists beside the index. Raises `StoreError`."""
        if not self.remote:
            return (self.folder / name).is_file()
        objects, root = storage_at(self.url)
        return objects.has(f"{root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a small file beside the index, whole or not at all. Raises `StoreError`, `LockLost`."""
        if not self.remote:
            replace_bytes(self.folder / name, content)
            return
        from kopub.store.locks import ObjectLock, find_lock

        objects, root = storage_at(self.url)
        if isinstance(lock := find_lock(self.lock), ObjectLock):
            lock.publish(f"{root}/{name}", content)
        else:
            objects.put(f"{root}/{name}", content)

    def remove(self, name: str) -> None:
        """Remove a file beside the index, if there is one. Raises `StoreError`."""
        if not self.remote:
            (self.folder / name).unlink(missing_ok=True)
        elif self.has(name):
            objects, root = storage_at(self.url)
            objects.remove(f"{root}/{name}")

    def relative(self, path: "SourcePath | str") -> str:
        """Return a file's name in the index: relative if below it, else absolute."""
        text = str(path)
        if is_url(text):
            return text.removeprefix(f"{self.url}/") if self.remote else text
        # Links are not resolved, because they may be the better names.
        absolute = Path(os.path.abspath(text))
        if self.remote:
            return str(absolute)
        folder = Path(os.path.abspath(self.folder))
        return absolute.relative_to(folder).as_posix() if absolute.is_relative_to(folder) else str(absolute)


def place_of(where: "Path | CorpusPlace") -> CorpusPlace:
    """Return the place of a corpus, given that or its home."""
    return where if isinstance(where, CorpusPlace) else CorpusPlace(where)


@dataclass
class _Listing:
    """The files at or below a URL by place, each with its URL and stamp."""

    url: str
    fetched: "FetchedFiles"
    files: "dict[str, tuple[str, Stamp]]" = field(default_factory=dict)
    folders: dict[str, set[str]] = field(default_factory=dict)

    def add(self, place: str, url: str, stamp: "Stamp") -> None:
        self.files[place] = url, stamp
        while place:
            above, _, name = place.rpartition("/")
            self.folders.setdefault(above, set()).add(name)
            place = above


@total_ordering
class ObjectPath:
    """A path in a listing, which answers without asking the storage again.

    It has those parts of the interface of `pathlib.Path` that indexing uses.
    """

    name: str
    stem: str
    suffix: str

    def __init__(self, listing: _Listing, place: str = "") -> None:
        self._listing, self._place = listing, place
        path = PurePosixPath(str(self))
        self.name, self.stem, self.suffix = path.name, path.stem, path.suffix

    @classmethod
    def listed(cls, url: str, fetched: "FetchedFiles") -> "ObjectPath":
        """Return the file or folder at a URL, with everything below it. Raises `StoreError`."""
        from kopub.pages.fetched_files import Stamp
        from kopub.store.faults import retry, translate_errors

        objects, root = storage_at(url)
        listing = _Listing(url.rstrip("/"), fetched)
        try:
            with translate_errors(url, "listed"):
                entries = retry(lambda: cast("dict[str, dict[str, Any]]", objects.fs.find(root, detail=True)))
        except FileNotFoundError:
            entries = {}
        for name, info in entries.items():
            below = name[len(root) :].lstrip("/")
            if not name.endswith("/") and name.startswith(root) and (not below or name[len(root)] == "/"):
                place = PurePosixPath(below).as_posix() if below else ""
                listing.add(place, f"{listing.url}/{below}" if below else listing.url, Stamp.of(info))
        return cls(listing)

    @property
    def parent(self) -> "ObjectPath":
        return ObjectPath(self._listing, self._place.rpartition("/")[0])

    def is_file(self) -> bool:
        return self._place in self._listing.files

    def is_dir(self) -> bool:
        return self._place in self._listing.folders

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["ObjectPath"]:
        for name in sorted(self._listing.folders.get(self._place, ())):
            yield self / name

    def relative_to(self, other: "ObjectPath") -> PurePosixPath:
        """Return this file's place below `other`; for `other` itself, its name."""
        return PurePosixPath(self._place or self.name).relative_to(other._place)

    def read_bytes(self) -> bytes:
        """Return the file's bytes. Raises `SourceError` and `StoreError`."""
        with self.held() as fetched:
            return fetched.path.read_bytes()

    def open(self, mode: Literal["rb"]) -> Any:
        """Open the file in the storage, to read a few bytes. Raises `FileNotFoundError`, `StoreError`."""
        objects, path = storage_at(self._file[0])
        return objects.open(path)

    def held(self) -> "AbstractContextManager[FetchedFile]":
        """Hold the file on this disk, as it was listed. Raises `SourceError` and `StoreError`."""
        return self._listing.fetched.held(*self._file)

    def put(self, file: Path) -> None:
        """Upload a file as this one, and move it into the cache. Raises `StoreError`."""
        from kopub.store.faults import retry, translate_errors

        objects, path = storage_at(str(self))
        with translate_errors(str(self), "written"):
            retry(lambda: objects.fs.put_file(str(file), path))
        self._listing.add(self._place, str(self), self._listing.fetched.take(str(self), file))

    def unlink(self) -> None:
        """Remove the file. Raises `StoreError`."""
        objects, path = storage_at(self._file[0])
        objects.remove(path)

    @property
    def _file(self) -> "tuple[str, Stamp]":
        try:
            return self._listing.files[self._place]
        except KeyError:
            raise SourceError("there is no file {path}", self) from None

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(self._listing, f"{self._place}/{name}".lstrip("/"))

    def __str__(self) -> str:
        file = self._listing.files.get(self._place)
        return file[0] if file else f"{self._listing.url}/{self._place}".rstrip("/")

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __lt__(self, other: object) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash(str(self))


SourcePath = Path | ObjectPath


def storage_at(url: str) -> "tuple[Objects, str]":
    """Return the storage of a folder or URL, and its path there."""
    # Most commands read no object storage, and need not load its client.
    from kopub.store.objects import Objects

    return Objects.at(url)


def natural(name: str) -> list[str | int]:
    """Return a sort key that puts part-2 before part-10."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"(\d+)", name))]


def require_utf8(path: SourcePath | str) -> None:
    """Raise `SourceError` for a path that neither the index nor Arrow can hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise SourceError("{path} has a name that is not UTF-8: rename it", visible(str(path))) from None


@contextmanager
def on_disk(path: SourcePath) -> Iterator[Path]:
    """Yield the file on disk. If fetched, raises `SourceError`, `StoreError`."""
    if isinstance(path, Path):
        yield path
        return
    with path.held() as fetched:
        yield fetched.path


def sha256_of(path: SourcePath) -> str:
    """Return a file's SHA-256. Raises `OSError` or, if fetched, `SourceError`, `StoreError`."""
    if isinstance(path, Path):
        return file_sha256(path)
    with path.held() as fetched:
        return fetched.sha256
