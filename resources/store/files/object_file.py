"""A file of an object store, read in as few requests as can be."""

import io
from collections.abc import Callable

AT_ONCE = 2**18
"""Bytes at the end of a file that come in one request: a small table, or the footer of a large one."""
_AHEAD = 2**16
"""Bytes that a request brings at least."""


class ObjectFile(io.RawIOBase):
    """`size` bytes that `fetch` brings, from one position up to another. The last ones are `known`."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes], known: bytes) -> None:
        super().__init__()
        self._size, self._fetch, self._end = size, fetch, known
        self._at = self._begins = 0
        self._known = b""

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
        known_from = self._size - len(self._end)
        if self._at >= known_from:
            found = self._end[self._at - known_from : end - known_from]
        else:
            if not self._begins <= self._at <= end <= self._begins + len(self._known):
                self._begins = self._at
                self._known = self._fetch(self._at, min(max(end, self._at + _AHEAD), self._size))
            found = self._known[self._at - self._begins : end - self._begins]
        self._at += len(found)
        return found

    def readall(self) -> bytes:
        return self.read()
