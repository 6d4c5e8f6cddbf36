"""Where the shards of documents' pages are kept: below the index, on this disk or on object storage."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from filelock import FileLock, Timeout

from resources.errors import SourceError, StoreError
from resources.files import cannot_write, replace_file
from resources.pages.places.corpus_place import CorpusPlace
from resources.pages.places.object_paths import ObjectPath, SourcePath

FOLDER = "rendered"
NAMES = "pages-*.parquet"
_MADE = "made.parquet"
"""A shard that was just made and has no name yet."""


class Rendered:
    """The folder of shards beside an index."""

    def __init__(self, index: CorpusPlace) -> None:
        self._own = (index.home if index.remote else index.folder) / FOLDER
        """For files that are being made, and for the lock."""
        self._folder: SourcePath = self._own
        if index.remote:
            self._folder = ObjectPath.listed(f"{index.url}/{FOLDER}", index.fetched)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """A lock: one process at a time renders, and at its end removes the shards that are not needed.

        Raises `SourceError` when another process has it, and `StoreError` when the folder cannot be written.
        """
        lock = FileLock(self._own / ".lock", timeout=0)
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise SourceError(
                f"another `kopub index` makes pages in {self._own.parent}: wait for it, or end it"
            ) from None
        except OSError as error:
            raise StoreError(cannot_write(self._own, error)) from error
        try:
            yield
        finally:
            lock.release()

    def found(self) -> list[SourcePath]:
        """The shards that are there, by their names."""
        paths: Iterable[SourcePath] = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted((path for path in paths if fnmatchcase(path.name, NAMES)), key=str)

    def write(self, write: Callable[[Path], str]) -> SourcePath:
        """Let `write` make a shard and say its name; it is there whole or not at all. Raises `StoreError`."""
        names: list[str] = []
        made = self._own / _MADE
        try:
            replace_file(made, lambda temporary: names.append(write(temporary)))
            path = self._folder / names[-1]
            if isinstance(path, Path):
                made.replace(path)
            else:
                path.put(made)
            return path
        except OSError as error:
            raise StoreError(cannot_write(self._own, error)) from error
        finally:
            made.unlink(missing_ok=True)

    def clear(self, keep: Iterable[SourcePath]) -> None:
        """Remove all other shards, and the temporary files of an `index` that was killed."""
        for path in [*set(self.found()) - set(keep), *self._own.glob(".*.parquet.*.tmp")]:
            path.unlink()
