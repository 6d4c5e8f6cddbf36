"""Whole files of a file system by their paths, local or of an object store."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from resources.store.faults import is_taken, patiently, told
from resources.store.object_file import ObjectFile

T = TypeVar("T")


class Objects:
    """The files of an fsspec file system; those of a network are asked for until they come, for as long as helps.

    Every method raises `StoreError` when the storage cannot be reached, and `FileNotFoundError` where it says so.
    """

    def __init__(self, fs: fsspec.AbstractFileSystem) -> None:
        self.fs = fs

    @classmethod
    def at(cls, url: str) -> tuple["Objects", str]:
        """The files below a folder or URL, and its path among them. Nothing is remembered of what was listed."""
        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        return cls(fs), root.rstrip("/")

    @property
    def local(self) -> bool:
        return isinstance(self.fs, LocalFileSystem)

    def get(self, path: str) -> bytes:
        """Raises `FileNotFoundError`."""
        return self._call(path, "read", lambda: cast("bytes", self.fs.cat_file(path)))

    def put(self, path: str, content: bytes, patience: float | None = None) -> None:
        self._call(path, "written", lambda: self.fs.pipe_file(path, content), patience)

    def create(self, path: str, content: bytes) -> bool:
        """Write a file that is not there yet; whether this call did. Of many that try at once one does.

        `content` tells whoever writes it from all others: an answer that was lost on the way is found out by it.
        """

        def attempt() -> bool:
            try:
                self.fs.pipe_file(path, content, mode="create")
            except OSError as error:
                # What is there says who wrote it: an answer may have been lost on the way.
                try:
                    return self.fs.cat_file(path) == content
                except FileNotFoundError:
                    if is_taken(error):
                        return False  # it was there a moment ago
                    raise error from None
            return True

        return self._call(path, "written", attempt)

    def remove(self, path: str) -> None:
        """Raises `FileNotFoundError` on a local disk alone."""
        self._call(path, "removed", lambda: self.fs.rm_file(path))

    def remove_below(self, folder: str) -> None:
        """Raises `FileNotFoundError`."""
        self._call(folder, "removed", lambda: self.fs.rm(folder, recursive=True))

    def listed(self, folder: str) -> list[dict[str, Any]]:
        """What lies in a folder, with what the storage says of each; nothing where there is no folder."""
        try:
            return self._call(folder, "listed", lambda: self.fs.ls(folder, detail=True))
        except FileNotFoundError:
            return []

    def below(self, folder: str) -> list[str]:
        """The paths of all files below a folder; none where there is no folder."""
        return self._call(folder, "listed", lambda: list(self.fs.find(folder)))

    def modified(self, path: str) -> datetime:
        """When a file was written. Raises `FileNotFoundError`."""
        return self._call(path, "read", lambda: self.fs.modified(path))

    def has(self, path: str) -> bool:
        return bool(self._call(path, "read", lambda: self.fs.exists(path)))

    def open(self, path: str) -> Any:
        """A file to read from. Raises `FileNotFoundError`."""
        if self.local:
            return self.fs.open(path, "rb")
        size = self._call(path, "read", lambda: self.fs.info(path))["size"]

        def fetch(start: int, end: int) -> bytes:
            return self._call(path, "read", lambda: cast("bytes", self.fs.cat_file(path, start=start, end=end)))

        return ObjectFile(size, fetch)

    def _call(self, path: str, doing: str, call: Callable[[], T], patience: float | None = None) -> T:
        if self.local:
            return call()
        with told(path, doing):
            return patiently(call, patience)
