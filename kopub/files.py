"""Writes files whole or not at all."""

import errno
import glob
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kopub.errors import StoreError
from kopub.states import phrase

if TYPE_CHECKING:
    import pyarrow as pa

_LEFT_OVER_SECONDS = 24 * 3600
"""No file takes a day to write, so an older temporary file was left by a writer that was killed."""


def replace_file(path: Path, write: Callable[[Path], None]) -> tuple[str, int]:
    """Let `write` make a file, then rename it over `path`.

    Returns its SHA-256 and size. A file that has not changed is left alone. Raises `StoreError` if it cannot be
    written; the old file is then untouched.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_left_overs(temporary_files(path))
        try:
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            sha256 = file_sha256(temporary)
            size = temporary.stat().st_size
            if not (path.exists() and path.stat().st_size == size and file_sha256(path) == sha256):
                os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(cannot_write(path, error)) from error
    return sha256, size


def replace_bytes(path: Path, content: "bytes | memoryview | pa.Buffer") -> tuple[str, int]:
    """Do what `replace_file` does, with content in memory."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(content)

    return replace_file(path, write)


def write_new(path: Path, content: "pa.Buffer") -> None:
    """Write a file, overwriting any of that name, for good even in a power cut.

    Raises `StoreError`.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        new_folders = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_left_overs(path.parent.glob(".*.tmp"))
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        # A name is part of its folder.
        if os.name == "posix":
            for folder in (path.parent, *(folder.parent for folder in new_folders)):
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
    except OSError as error:
        # If nothing can be written, there may be nothing to remove either.
        with suppress(OSError):
            temporary.unlink()
        raise StoreError(cannot_write(path, error)) from error


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def temporary_files(path: Path) -> list[Path]:
    """Return the files of writers that are replacing `path`, or were killed meanwhile."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.*.tmp"))


def _clear_left_overs(files: Iterable[Path]) -> None:
    for left_over in files:
        # A missing one was renamed by its writer in the meantime.
        with suppress(FileNotFoundError):
            if time.time() - left_over.stat().st_mtime > _LEFT_OVER_SECONDS:
                left_over.unlink()


def cannot_write(path: Path | str, error: OSError) -> str:
    """Return the message for a person whose file could not be written.

    `path` may be a URL.
    """
    if error.errno == errno.ENOSPC and _lacks_inodes(path):
        form = (
            "the disk has room but takes no more files (df -i): {path} was not written; what is finished is kept, "
            "remove some files and run again"
        )
        return phrase(form, path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        form = "the disk is full: {path} was not written; what is finished is kept, free some space and run again"
        return phrase(form, path)
    form = "{path} was not written ({error}); check the folder or the credentials and run again"
    return phrase(form, path, error.strerror or error)


def _lacks_inodes(path: Path | str) -> bool:
    """Return whether the disk of a path has free bytes but no free inode."""
    for folder in Path(path).parents:
        with suppress(OSError):
            disk = os.statvfs(folder)
            # Some file systems have no fixed number of inodes, and report none.
            return bool(disk.f_files) and not disk.f_favail and disk.f_bavail > 0
    return False


def is_url(text: str) -> bool:
    """Return whether a text from a person or a setting is a URL."""
    return "://" in text
