"""A full disk: a file system for stores at `fulldisk://`, and a function."""

import errno
import os
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


def no_room(*arguments: Any) -> None:
    """Refuse to write, in place of a function that does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk(MemoryFileSystem):
    """A file system that has no space for paths that contain `no_room_for`."""

    protocol = "fulldisk"
    no_room_for = ""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if self.no_room_for and self.no_room_for in path:
            no_room()
        super().pipe_file(path, value, mode, **kwargs)


fsspec.register_implementation("fulldisk", FullDisk, clobber=True)
