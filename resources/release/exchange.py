"""Puts one folder in the place of another, so that a reader sees the one or the other and nothing between."""

import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def put_in_place(new: Path, place: Path) -> None:
    """Give the folder `new` the name `place`; what had it is removed. Both lie in one folder. Raises `OSError`.

    Where the system cannot exchange two names, there is none for the moment between two renames: `recover` brings back
    the old folder after a kill.
    """
    if not place.exists():
        new.rename(place)
    elif _exchange(new, place):
        shutil.rmtree(new)
    else:
        old = _old(place)
        place.rename(old)
        new.rename(place)
        shutil.rmtree(old)


def recover(place: Path) -> None:
    """Undo what a kill left half done."""
    old = _old(place)
    if old.exists() and not place.exists():
        old.rename(place)
    elif old.exists():
        shutil.rmtree(old)


def _old(place: Path) -> Path:
    return place.with_name(f"{place.name}.old")


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; false where the system or the file system has no way to."""
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    if library.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))
