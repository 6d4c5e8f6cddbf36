"""A cache of object storage on this disk, which evicts the least recently used files."""

import hashlib
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, cast

from filelock import FileLock, Timeout

from kopub.errors import SourceError, StoreError, first_line
from kopub.files import cannot_write
from kopub.fingerprints import fingerprint
from kopub.store.faults import retry, translate_errors
from kopub.store.objects import Objects

_AT_ONCE = 2**24
"""Bytes of a file fetched in one request."""
_ATTEMPTS = 3
"""Attempts to fetch a file that changes while it is fetched."""
_SUFFIX = 20
"""Most characters kept of a file's suffix, by which readers of documents recognize its type."""
_LOCK, _PART, _ROOM = ".lock", ".part", ".room"
_MARKS = ("ETag", "etag", "e_tag", "generation", "md5Hash", "content_md5")
"""Keys under which storages identify the content of a file."""
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
"""Keys for storages that only know when a file was written."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file's size and a mark that changes with its content, as storage reports them."""

    size: int
    mark: str

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "Stamp":
        """Return the stamp in a listing's entry, or in the answer about a single file."""
        size = info["size"]
        mark = next(filter(info.get, _MARKS), None)
        keys = [mark] if mark else filter(info.get, _TIMES)
        return cls(size, fingerprint([size, sorted(f"{key.lower()}={info[key]}" for key in keys)]))


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file on this disk, with the SHA-256 of its bytes."""

    path: Path
    sha256: str


@dataclass
class _Use:
    """A file in use by threads of this process.

    The first thread takes the lock between processes, and the last one releases it.
    """

    lock: FileLock
    users: int = 0
    alone: threading.Lock = field(default_factory=threading.Lock)


_uses: dict[Path, _Use] = {}
_listed = threading.Lock()


class FetchedFiles:
    """A cache of at most `most` bytes in `folder`, which processes of this machine share.

    A file's name states the URL, the version of its content, and the SHA-256 of its bytes. The file gets that name only
    once it is complete on disk, so that a partial one is never used.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most

    @contextmanager
    def held(self, url: str, listed: Stamp | None = None) -> Iterator[FetchedFile]:
        """Yield the file of a URL as it is now, or as it was `listed`.

        The file stays while the context is open; once mapped, it stays mapped afterwards. Raises `SourceError` if the
        file is missing or larger than the cache, and `StoreError` if the storage does not answer or the disk is full.
        """
        with self._alone(url) as use:
            file = self._fetched(url, listed, forget=not use.users)
            use.users += 1
        try:
            yield file
        finally:
            with self._alone(url):
                use.users -= 1

    def take(self, url: str, path: Path) -> Stamp:
        """Move a file that this machine has just written to a URL into the cache."""
        with self._alone(url):
            try:
                stamp = _ask(url)
                with path.open("rb") as file:
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                if stamp.size == path.stat().st_size <= self._most:
                    with self._room(url, stamp.size):
                        os.replace(path, self._folder / _name(url, stamp, sha256))
                return stamp
            except OSError as error:
                raise StoreError(cannot_write(self._folder, error)) from error

    @contextmanager
    def _alone(self, url: str) -> Iterator[_Use]:
        """Hold a file exclusively in this process and, if it has no users, between processes."""
        path = self._folder / f"{fingerprint(url)}{_LOCK}"
        with _listed:
            if path not in _uses:
                _uses[path] = _Use(FileLock(path, thread_local=False))
            use = _uses[path]
        with use.alone:
            if not use.users:
                try:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    use.lock.acquire()
                except OSError as error:
                    raise StoreError(cannot_write(self._folder, error)) from error
            try:
                yield use
            finally:
                if not use.users:
                    use.lock.release()

    def _fetched(self, url: str, listed: Stamp | None, forget: bool) -> FetchedFile:
        """Return the file that is here, or fetch it and then `forget` earlier versions."""
        for _ in range(_ATTEMPTS if listed is None else 1):
            stamp = listed or _ask(url)
            for path in self._folder.glob(f"{fingerprint(url)}-{stamp.mark}-*"):
                if path.stat().st_size == stamp.size:
                    # The file that was used longest ago is evicted first.
                    os.utime(path)
                    return FetchedFile(path, path.name.split("-")[2][:64])
            if stamp.size > self._most:
                form = "{url} has {size:,} bytes and corpus.cache_gb lets this machine keep {most:g} GB: raise it"
                raise SourceError(form, url, stamp.size, self._most / 1e9)
            objects, remote = Objects.at(url)
            part = self._folder / f"{fingerprint(url)}-{uuid.uuid4().hex[:8]}{_PART}"
            digest = hashlib.sha256()
            try:
                with self._room(url, stamp.size, forget), part.open("wb") as file:
                    # From now on, other processes count all of it.
                    file.truncate(stamp.size)
                with part.open("r+b") as file:
                    for start in range(0, stamp.size, _AT_ONCE):
                        end = min(start + _AT_ONCE, stamp.size)
                        with _reading(url):
                            content = cast("bytes", retry(partial(objects.fs.cat_file, remote, start=start, end=end)))
                        digest.update(content)
                        file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                    is_whole = file.tell() == stamp.size
                # A file that changed meanwhile is fetched again.
                if is_whole and _ask(url) == stamp:
                    whole = self._folder / _name(url, stamp, digest.hexdigest())
                    os.replace(part, whole)
                    return FetchedFile(whole, digest.hexdigest())
            except OSError as error:
                raise StoreError(cannot_write(self._folder, error)) from error
            finally:
                part.unlink(missing_ok=True)
        raise SourceError("{url} changed while it was read: index it again when nobody writes to it", url)

    @contextmanager
    def _room(self, url: str, size: int, forget: bool = True) -> Iterator[None]:
        """Make room for a file of `size` bytes, locked against other processes.

        Its earlier versions are removed if it is to `forget` them.
        """
        with FileLock(self._folder / _ROOM):
            if forget:
                # A killed process may have left a part of one, too.
                for path in self._folder.glob(f"{fingerprint(url)}-*"):
                    path.unlink(missing_ok=True)
            files, total = list[tuple[int, int, Path]](), size
            for path in self._folder.iterdir():
                with suppress(FileNotFoundError):
                    if path.suffix != _LOCK and path.name != _ROOM:
                        files.append((path.stat().st_mtime_ns, path.stat().st_size, path))
                        total += files[-1][1]
            for _, bytes_of_file, path in sorted(files):
                if total <= self._most:
                    break
                lock = self._folder / f"{path.name.partition('-')[0]}{_LOCK}"
                with _listed:
                    use = _uses.get(lock)
                if use is not None and (use.users or not use.alone.acquire(blocking=False)):
                    continue
                try:
                    with FileLock(lock, timeout=0):
                        path.unlink(missing_ok=True)
                        total -= bytes_of_file
                except (Timeout, OSError):
                    # Another process uses it, or Windows refuses to remove a mapped file.
                    continue
                finally:
                    if use is not None:
                        use.alone.release()
            yield


def _name(url: str, stamp: Stamp, sha256: str) -> str:
    return f"{fingerprint(url)}-{stamp.mark}-{sha256}{PurePosixPath(url).suffix[:_SUFFIX]}"


def _ask(url: str) -> Stamp:
    """Return the stamp that the storage reports for a file now."""
    with _reading(url):
        objects, path = Objects.at(url)
        info = retry(partial(objects.fs.info, path))
        if info.get("type") != "file" or info.get("size") is None:
            raise FileNotFoundError(url)
    return Stamp.of(info)


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """Raise `SourceError` for a missing file or package, and `StoreError` for a storage fault."""
    try:
        with translate_errors(url, "read"):
            yield
    except FileNotFoundError:
        form = "there is no file {url}: bring it back, or index what is there with `kopub index`"
        raise SourceError(form, url) from None
    except ImportError as error:
        raise SourceError("{url} needs a package that is missing: {error}", url, first_line(error)) from None
