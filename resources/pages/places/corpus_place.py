"""Where the index of a corpus lies, a home or a place that nodes share, and how its files are had. Loads no Arrow."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from resources.errors import SourceError
from resources.urls import is_url

if TYPE_CHECKING:
    from resources.pages.places.fetched_files import FetchedFiles
    from resources.pages.places.object_paths import SourcePath

CACHE_GB = 100.0
"""Gigabytes of fetched files that a node keeps unless its profile says otherwise."""
FETCHED = "sources"
"""Folder of a home with the files that were fetched."""


@dataclass(frozen=True)
class CorpusPlace:
    """`url` is the folder or fsspec URL of the index; the home itself when empty. Of what lies at URLs, this node keeps
    `cache_gb` gigabytes in its home.
    """

    home: Path
    url: str = ""
    cache_gb: float = CACHE_GB

    def __str__(self) -> str:
        return self.url or str(self.home)

    @property
    def remote(self) -> bool:
        """Whether the index is on object storage."""
        return is_url(self.url)

    @property
    def folder(self) -> Path:
        """The folder of an index that is not remote."""
        return Path(self.url) if self.url else self.home

    @property
    def lock(self) -> str:
        """The folder of the lock of an index on object storage."""
        from resources.store.objects import Objects

        return f"{Objects.at(self.url)[1]}/.locks/index"

    @property
    def fetched(self) -> "FetchedFiles":
        """The files that this node has fetched."""
        from resources.pages.places.fetched_files import FetchedFiles

        return FetchedFiles(self.home / FETCHED, int(self.cache_gb * 1e9))

    def location(self, file: str) -> str:
        """The path or URL of a file that the index names: below the index, or anywhere."""
        if is_url(file) or os.path.isabs(file):
            return file
        return f"{self.url}/{file}" if self.remote else str(self.folder / file)

    @contextmanager
    def held(self, file: str, sha256: str | None = None) -> Iterator[Path]:
        """A file that the index names, on this disk while the context is open; one that is mapped by then stays mapped.

        Raises `SourceError` for one at a URL that is not there, or has another SHA-256, and `StoreError` where the
        storage does not answer or the disk is full.
        """
        location = self.location(file)
        if not is_url(location):
            yield Path(location)
            return
        with self.fetched.held(location) as found:
            if sha256 not in (None, found.sha256):
                raise SourceError(f"{location} changed since it was indexed: run `kopub index` again")
            yield found.path

    def read(self, name: str) -> bytes:
        """A small file beside the index. Raises `OSError`, and `StoreError` where the storage does not answer."""
        if not self.remote:
            return (self.folder / name).read_bytes()
        from resources.store.objects import Objects

        objects, root = Objects.at(self.url)
        return objects.get(f"{root}/{name}")

    def has(self, name: str) -> bool:
        """Raises `StoreError` where the storage does not answer."""
        if not self.remote:
            return (self.folder / name).is_file()
        from resources.store.objects import Objects

        objects, root = Objects.at(self.url)
        return objects.has(f"{root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a small file beside the index, whole or not at all. Raises `StoreError`, and `LockLost`."""
        if not self.remote:
            from resources.files import replace_bytes

            replace_bytes(self.folder / name, content)
            return
        from resources.store.locks import find_lock
        from resources.store.objects import Objects

        objects, root = Objects.at(self.url)
        if (lock := find_lock(self.lock)) is not None:
            lock.confirm()
        objects.put(f"{root}/{name}", content)

    def remove(self, name: str) -> None:
        """Remove a file beside the index, if there is one. Raises `StoreError`."""
        if not self.remote:
            (self.folder / name).unlink(missing_ok=True)
        elif self.has(name):
            from resources.store.objects import Objects

            objects, root = Objects.at(self.url)
            objects.remove(f"{root}/{name}")

    def relative(self, path: "SourcePath | str") -> str:
        """How the index names a file: by its place below the index, or else by its path or URL."""
        text = str(path)
        if is_url(text):
            return text.removeprefix(f"{self.url}/") if self.remote else text
        # Links are not resolved: they may be better names.
        absolute = Path(os.path.abspath(text))
        if self.remote:
            return str(absolute)
        folder = Path(os.path.abspath(self.folder))
        return absolute.relative_to(folder).as_posix() if absolute.is_relative_to(folder) else str(absolute)


def place_of(where: "Path | CorpusPlace") -> CorpusPlace:
    """The place of a corpus that is indexed in a home, where a folder is given."""
    return where if isinstance(where, CorpusPlace) else CorpusPlace(where)
