"""Whole files by their paths, on a local file system or in an object store."""

import glob
import io
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import fsspec
import fsspec.config
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from kopub.errors import StoreError
from kopub.parallel import bounded_map
from kopub.store.faults import is_taken, retry, translate_errors

AT_ONCE = 2**18
"""Bytes at the end of a file fetched in one request: a small table, or the footer of a large one."""
_AHEAD = 2**16
"""Fewest bytes fetched by a request."""


class ObjectFile(io.RawIOBase):
    """A readable file of `size` bytes, fetched by ranges; its `last_bytes` are there already."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes], last_bytes: bytes) -> None:
        super().__init__()
        self._size, self._fetch, self._end = size, fetch, last_bytes
        self._at = self._begins = 0
        self._buffer = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if self._at >= end:
            return b""
        end_begins = self._size - len(self._end)
        if self._at >= end_begins:
            content = self._end[self._at - end_begins : end - end_begins]
        else:
            if not self._begins <= self._at <= end <= self._begins + len(self._buffer):
                self._begins = self._at
                self._buffer = self._fetch(self._at, min(max(end, self._at + _AHEAD), self._size))
            content = self._buffer[self._at - self._begins : end - self._begins]
        self._at += len(content)
        return content

    def readall(self) -> bytes:
        return self.read()


_S3 = {"connect_timeout": 10, "read_timeout": 30, "retries": {"total_max_attempts": 1}}
"""Settings of botocore, unless fsspec's configuration says otherwise.

Calls are retried here: if the client retried them as well, half an hour would pass before storage that takes requests
and answers none is reported."""
_SLOWEST = 128 * 1024
"""Bytes per second of the slowest connection over which a table is still written."""
_LARGEST = 5 * 2**30
"""Most bytes that S3 takes in one request, as conditional writes are: Ceph ignores conditions of uploads in parts."""

_MOST_ENDS = 64
"""Most file ends kept at once: the tables of a few shards."""

DAMAGED = ".damaged"
"""Suffix of the names of damaged files, which are no longer used."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _End:
    """The last `AT_ONCE` bytes of an object, or all its bytes, and its size."""

    content: bytes
    size: int


_fetched: ContextVar[dict[str, _End] | None] = ContextVar("fetched", default=None)
"""Ends of files by path, while they are fetched only once."""

T = TypeVar("T")


@contextmanager
def fetched_once() -> Iterator[None]:
    """Fetch the end of each object once for all reads of this thread."""
    token = _fetched.set({})
    try:
        yield
    finally:
        _fetched.reset(token)


class Objects:
    """The files of an fsspec file system.

    Calls over a network are retried for as long as that helps. Every method raises `StoreError` if the storage cannot
    be reached, and `FileNotFoundError` if its docstring says so.
    """

    def __init__(self, fs: fsspec.AbstractFileSystem) -> None:
        self.fs = fs
        self.local: bool = isinstance(fs, LocalFileSystem)
        self.conditional: bool = "s3" in fs.protocol
        """Whether the storage can replace a file on a condition, as S3 can."""

    @classmethod
    def at(cls, url: str) -> tuple["Objects", str]:
        """Return the files at a folder or URL, uncached, and its path among them."""
        options = {}
        if url.partition("://")[0] in ("s3", "s3a"):
            options = {"config_kwargs": _S3 | fsspec.config.conf.get("s3", {}).get("config_kwargs", {})}
        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
        return cls(fs), root.rstrip("/")

    def get(self, path: str) -> bytes:
        """Return the bytes of a file. Raises `FileNotFoundError`."""
        # Given a start, s3fs does not ask for the size first.
        return self._call(path, "read", lambda: cast("bytes", self.fs.cat_file(path, start=0)))

    def put(self, path: str, content: bytes, patience: float | None = None) -> None:
        (_fetched.get() or {}).pop(path, None)
        self._call(path, "written", lambda: self._write(path, content), patience)

    def create(self, path: str, content: bytes) -> bool:
        """Write a file that must not exist yet, and return whether this call wrote it.

        Of several concurrent calls, exactly one does. `content` must differ between writers: if the answer is lost on
        the way, it shows who wrote the file.
        """
        return self._write_if(path, content, mode="create")

    def replace(self, path: str, content: bytes, mark: str | None) -> bool:
        """Write a file that must still have its `mark`.

        It must be missing if that is None. Returns whether this call wrote it. The storage must be `conditional`.
        """
        (_fetched.get() or {}).pop(path, None)
        # Older releases of Ceph compare the tag with the header as it is, with its quotation marks.
        return self._write_if(path, content, **({"mode": "create"} if mark is None else {"IfMatch": mark.strip('"')}))

    def mark(self, path: str) -> str | None:
        """Return the storage's mark of a file's content, or None if the file is missing."""
        return next((str(entry.get("ETag", "")) for entry in self._below(path, "") if entry["name"] == path), None)

    def remove(self, path: str) -> None:
        """Remove a file. Raises `FileNotFoundError`, but only on a local disk."""
        self._call(path, "removed", lambda: self.fs.rm_file(path))

    def set_aside(self, path: str, why: object) -> None:
        """Rename and log a damaged file, so that the work it saved is done again."""
        damaged = f"{path}{DAMAGED}"

        def move() -> None:
            if self.local:
                self.fs.mv(path, damaged)
                return
            # `mv` takes a name with one of *?[ for a pattern, and moves what matches it.
            self.fs.cp_file(path, damaged)
            self.fs.rm_file(path)

        try:
            self._call(path, "moved", move)
        except (OSError, StoreError) as error:
            damaged = f"it cannot be renamed ({error})"
        _log.warning("%s is damaged (%s) and not used: %s", path, why, damaged)

    def remove_all(self, paths: list[str]) -> None:
        """Remove files of an object store, many in each request."""
        # `rm` takes a name with one of *?[ for a pattern, and removes what matches it.
        plain = [path for path in paths if glob.escape(path) == path]
        for path in set(paths) - set(plain):
            self.remove(path)
        if plain:
            self._call(plain[0], "removed", lambda: self.fs.rm(plain))

    def listed(self, folder: str) -> list[dict[str, Any]]:
        """Return a folder's entries as the storage describes them; none if it is missing.

        Raises `StoreError`.
        """
        if not self.local:
            return self._below(folder, "/")
        try:
            with translate_errors(folder, "read"):
                return self.fs.ls(folder, detail=True)
        except FileNotFoundError:
            return []

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder; none if it is missing."""
        if self.local:
            return list(self.fs.find(folder))
        return [entry["name"] for entry in self._below(folder, "/")]

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder of an object store, by path."""
        return {entry["name"]: entry["size"] for entry in self._below(folder, "/")}

    def modified(self, path: str) -> datetime:
        """Return the time at which a file was written. Raises `FileNotFoundError`."""
        return self._call(path, "read", lambda: self.fs.modified(path))

    def has(self, path: str) -> bool:
        if self.local:
            return bool(self.fs.exists(path))
        # For a missing path, `exists` of s3fs would send two requests: one for a file and one for a folder.
        return any(entry["name"] == path for entry in self._below(path, ""))

    def whole(self, path: str) -> bytes:
        """Return all bytes of an object in one request. Raises `FileNotFoundError`."""
        ends = self._ends()
        if path in ends and ends[path].size == len(ends[path].content):
            return ends[path].content
        content = self.get(path)
        _remember(ends, path, _End(content[-AT_ONCE:], len(content)))
        return content

    def open(self, path: str) -> Any:
        """Return a file to read from. Raises `FileNotFoundError`."""
        if self.local:
            return self.fs.open(path, "rb")
        ends = self._ends()
        if path not in ends:
            content = self._call(path, "read", lambda: cast("bytes", self.fs.cat_file(path, start=-AT_ONCE)))
            is_all = len(content) < AT_ONCE
            size = len(content) if is_all else self._call(path, "read", lambda: self.fs.info(path))["size"]
            _remember(ends, path, _End(content, size))
        end = ends[path]

        def fetch(start: int, stop: int) -> bytes:
            return self._call(path, "read", lambda: cast("bytes", self.fs.cat_file(path, start=start, end=stop)))

        return ObjectFile(end.size, fetch, end.content)

    def _write(self, path: str, content: bytes, **how: Any) -> None:
        """Write a file; raise `TimeoutError` if the storage takes too long.

        aiohttp drops its read timeout after a "100 Continue", and then waits forever for storage, or a proxy in front
        of it, that sends nothing more.
        """
        waits = _S3 | getattr(self.fs, "config_kwargs", {})
        seconds = waits["connect_timeout"] + waits["read_timeout"] + len(content) / _SLOWEST
        limit = {"timeout": seconds} if isinstance(self.fs, AsyncFileSystem) else {}
        self.fs.pipe_file(path, content, **how, **limit)

    def _write_if(self, path: str, content: bytes, **condition: Any) -> bool:
        """Write a file on a condition, and return whether it was met."""
        if self.conditional:
            if len(content) >= _LARGEST:
                raise StoreError("{path} was not written, it is over 5 GiB: split its source into smaller files", path)
            condition["chunksize"] = _LARGEST

        def attempt() -> bool:
            try:
                self._write(path, content, **condition)
            except OSError as error:
                if not is_taken(error):
                    raise
                # The content shows who wrote the file, because the answer may have been lost on the way.
                try:
                    return self.fs.cat_file(path, start=0) == content
                except FileNotFoundError:
                    return False
            return True

        return self._call(path, "written", attempt)

    def _ends(self) -> dict[str, _End]:
        ends = _fetched.get()
        return {} if ends is None else ends

    def _below(self, start: str, end: str) -> list[dict[str, Any]]:
        """Return every object whose path begins with `start` and `end`.

        This takes one request per thousand objects. The parent folder is listed, because s3fs sends two more requests
        for a folder that is missing.
        """
        above, _, name = start.rpartition("/")
        # Nothing lists what is above a bucket.
        folder, prefix = (above, name + end) if above else (start, "")
        try:
            entries = self._call(
                start,
                "listed",
                lambda: cast("dict[str, dict[str, Any]]", self.fs.find(folder, prefix=prefix, detail=True)),
            )
        except FileNotFoundError:
            return []
        # Not every fsspec file system honours the prefix.
        return [entry for path, entry in entries.items() if path.startswith(start + end)]

    def _call(self, path: str, doing: str, call: Callable[[], T], patience: float | None = None) -> T:
        if self.local:
            return call()
        with translate_errors(path, doing):
            return retry(call, patience)


def _remember(ends: dict[str, _End], path: str, end: _End) -> None:
    while len(ends) >= _MOST_ENDS:
        del ends[next(iter(ends))]
    ends[path] = end


_AT_ONCE = 8
_UNDER_WAY = b'{"complete": false}\n'


@contextmanager
def upload_folder(url: str, marker: str) -> Iterator[Path]:
    """Yield a new folder whose content is uploaded to `url` at the end.

    Nothing is uploaded after an error. `marker` is the file that marks such a folder and says whether it is complete:
    its final content is uploaded last. Raises `StoreError` if other files are at the URL, or if the storage does not
    answer.
    """
    objects, root = Objects.at(url.rstrip("/"))
    before = {path.removeprefix(f"{root}/") for path in objects.below(root)}
    if before and marker not in before:
        raise StoreError("{url} holds files that no such export wrote; name a new or empty place", url)
    with tempfile.TemporaryDirectory(prefix="kopub-export-") as temporary:
        folder = Path(temporary) / "out"
        yield folder
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        objects.put(f"{root}/{marker}", _UNDER_WAY)

        def send(name: str) -> None:
            with translate_errors(f"{url}/{name}", "written"):
                retry(lambda: objects.fs.put_file(str(folder / name), f"{root}/{name}"))

        for _ in bounded_map(send, (name for name in files if name != marker), _AT_ONCE):
            pass
        objects.remove_all([f"{root}/{name}" for name in sorted(before - set(files) - {marker})])
        objects.put(f"{root}/{marker}", (folder / marker).read_bytes())
