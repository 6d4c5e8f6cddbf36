"""Replaces the release folder of this machine whole: readers, and a kill, find the old one or the new."""

import ctypes
import errno
import filecmp
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from resources.errors import StoreError
from resources.files import cannot_write
from resources.release.base import ReleaseDescription
from resources.release.files import DATA_PATH
from resources.release.local import TEXTS, LocalRelease
from resources.release.place import begin, is_release, is_temporary, require_ours

Files = Mapping[str, Mapping[str, str]]
"""By shard, the SHA-256 of its files by path, as the table of released files has them."""
Check = Callable[[Path], None]
"""Looks at the folder that is to be the release; raises what keeps it from that."""


@dataclass(frozen=True, slots=True)
class AvailableShards:
    """What this machine has: the shards whose files are those of the tables, and those with older files."""

    current: list[str]
    older: list[str]


def available_shards(release: LocalRelease, files: Files) -> AvailableShards:
    """Which shards the release and what is staged for it can give."""
    with release.settled() as released, release.staged.settled() as staged:
        current = [shard for shard, of in files.items() if _has(of, staged, released)]
    older = {match["shard"] for path in released if (match := DATA_PATH.fullmatch(path))} - set(current)
    return AvailableShards(current, sorted(older))


def replace_release(release: LocalRelease, about: ReleaseDescription, files: Files, check: Check) -> None:
    """Make the release anew, of the files of the tables as far as this machine has them, and put it in place.

    A shard whose new files are not there keeps those of the release before. Files that no release wrote stay. Raises
    `StoreError` when it cannot be written or anything else than a release lies there, and what `check` raises; what
    was there before is there then.
    """
    require_ours(release.root)
    fresh, staged = release.beside("new"), release.staged
    try:
        with release.settled() as released:
            require_ours(release.root)
            recover(release.root)
            shutil.rmtree(fresh.root, ignore_errors=True)
            begin(fresh.root)
            with staged.settled() as waiting:
                hashes = dict(_linked(release, about, files, waiting, released))
            for path in _foreign(release.root):
                _link(release.root / path, fresh.root / path)
            fresh.describe(about, hashes)
            check(fresh.root)
            if _is_same(fresh.root, release.root):
                shutil.rmtree(fresh.root)
            else:
                put_in_place(fresh.root, release.root)
            with staged.settled() as waiting:
                staged.drop([path for path, sha256 in waiting.items() if hashes.get(path) == sha256])
    except OSError as error:
        raise StoreError(cannot_write(release.root, error)) from error
    finally:
        if is_release(fresh.root):
            shutil.rmtree(fresh.root, ignore_errors=True)


def _linked(
    release: LocalRelease,
    about: ReleaseDescription,
    files: Files,
    staged: Mapping[str, str],
    released: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """The files of the new release with their hashes; each is given its name there."""
    new = release.beside("new").root
    for shard in about.shards:
        wanted = files.get(shard, {})
        if not _has(wanted, staged, released):
            wanted = _of_shard(shard, released)
        for path, sha256 in wanted.items():
            new_one, old_one = release.staged.root / path, release.root / path
            # A file that came out as it was is left alone, unless somebody has changed it.
            keeps = staged.get(path) != sha256 or (
                released.get(path) == sha256 and filecmp.cmp(new_one, old_one, shallow=False)
            )
            _link(old_one if keeps else new_one, new / path)
            yield path, sha256


def _of_shard(shard: str, sums: Mapping[str, str]) -> dict[str, str]:
    return {path: sha256 for path, sha256 in sums.items() if (of := DATA_PATH.fullmatch(path)) and of["shard"] == shard}


def _has(wanted: Mapping[str, str], *sums: Mapping[str, str]) -> bool:
    return bool(wanted) and all(any(known.get(path) == sha256 for known in sums) for path, sha256 in wanted.items())


def _foreign(root: Path) -> Iterator[str]:
    """Files of a release folder that no release wrote."""
    for path in root.rglob("*") if root.is_dir() else ():
        place = path.relative_to(root).as_posix()
        is_ours = place in TEXTS or DATA_PATH.fullmatch(place) or is_temporary(path.name)
        if not is_ours and (path.is_symlink() or not path.is_dir()):
            yield place


def _link(file: Path, name: Path) -> None:
    """Another name for a file; a copy of it where the file system has only one name for each."""
    name.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, name, follow_symlinks=False)
    except OSError:
        shutil.copy2(file, name, follow_symlinks=False)


def _is_same(new: Path, old: Path) -> bool:
    """Whether both hold the same files: other names of one file, or texts of the same bytes."""

    def listed(root: Path) -> dict[str, tuple[int, int] | bytes]:
        found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if not path.is_dir()}
        return {
            place: path.read_bytes() if place in TEXTS else (path.lstat().st_ino, path.lstat().st_size)
            for place, path in found.items()
        }

    return old.is_dir() and listed(new) == listed(old)


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
