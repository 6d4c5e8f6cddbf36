"""Replaces a release folder whole, and refuses folders that no release wrote.

Readers, and a kill, find the old folder or the new one.
"""

import ctypes
import errno
import filecmp
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kopub.errors import ConfigError, StoreError, visible
from kopub.files import cannot_write, is_url, replace_bytes
from kopub.pages.corpus import Corpus
from kopub.release.base import ReleaseDescription
from kopub.release.files import (
    CHECKSUMS,
    DATA_PATH,
    MANIFEST,
    ReleaseManifest,
    parse_checksums,
    parse_manifest,
    render_manifest,
)
from kopub.release.local import ELSEWHERE, TEXTS, LocalRelease, require_apart
from kopub.release.remote import require_ours_at

Files = Mapping[str, Mapping[str, str]]
"""The SHA-256 of files by shard and path, as the table of released files has them."""
Check = Callable[[Path], None]
"""Looks at the folder that is to be the release; raises what keeps it from that."""


@dataclass(frozen=True, slots=True)
class AvailableShards:
    """The shards of this machine: those with the tables' files, and those with older ones."""

    current: list[str]
    older: list[str]


def available_shards(release: LocalRelease, files: Files) -> AvailableShards:
    """Return the shards that the release and its staged files can give."""
    with release.settled() as released, release.staged.settled() as staged:
        current = [shard for shard, of in files.items() if _has(of, staged, released)]
    older = {match["shard"] for path in released if (match := DATA_PATH.fullmatch(path))} - set(current)
    return AvailableShards(current, sorted(older))


def replace_release(release: LocalRelease, about: ReleaseDescription, files: Files, check: Check) -> None:
    """Make the release anew from the files of this machine, and put it in place.

    The files are those of the tables as far as they are here: a shard whose new files are not there keeps those of the
    release before. Files that no release wrote stay. Raises `StoreError` when it cannot be written or anything else
    than a release lies there, and what `check` raises; what was there before is there then.
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
            # Files that no release wrote stay in the folder.
            for path in release.root.rglob("*") if release.root.is_dir() else ():
                place = path.relative_to(release.root).as_posix()
                is_ours = place in TEXTS or DATA_PATH.fullmatch(place) or is_temporary(path.name)
                if not is_ours and (path.is_symlink() or not path.is_dir()):
                    _link(path, fresh.root / place)
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
    """Link the files of the new release, and yield them with their hashes."""
    new = release.beside("new").root
    for shard in about.shards:
        wanted = dict(files.get(shard, {}))
        if not _has(wanted, staged, released):
            # The shard keeps the files of the release before.
            wanted.clear()
            for path, sha256 in released.items():
                if (match := DATA_PATH.fullmatch(path)) and match["shard"] == shard:
                    wanted[path] = sha256
        for path, sha256 in wanted.items():
            new_one, old_one = release.staged.root / path, release.root / path
            # A file that came out as it was is left alone, unless somebody has changed it.
            keeps = staged.get(path) != sha256 or (
                released.get(path) == sha256 and filecmp.cmp(new_one, old_one, shallow=False)
            )
            _link(old_one if keeps else new_one, new / path)
            yield path, sha256


def _has(wanted: Mapping[str, str], staged: Mapping[str, str], released: Mapping[str, str]) -> bool:
    for path, sha256 in wanted.items():
        if sha256 not in (staged.get(path), released.get(path)):
            return False
    return bool(wanted)


def _link(file: Path, name: Path) -> None:
    """Link a second name to the file, or copy it without hard links."""
    name.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, name, follow_symlinks=False)
    except OSError:
        shutil.copy2(file, name, follow_symlinks=False)


def _is_same(new: Path, old: Path) -> bool:
    """Return whether both folders hold the same files.

    Data files by being one file, texts by their bytes.
    """
    if not old.is_dir():
        return False
    both: list[dict[str, tuple[int, int] | bytes]] = []
    for root in (new, old):
        files: dict[str, tuple[int, int] | bytes] = {}
        for path in root.rglob("*"):
            if not path.is_dir():
                place, stat = path.relative_to(root).as_posix(), path.lstat()
                files[place] = path.read_bytes() if place in TEXTS else (stat.st_ino, stat.st_size)
        both.append(files)
    return both[0] == both[1]


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def put_in_place(new: Path, place: Path) -> None:
    """Rename the folder `new` to `place`, and remove what was there.

    Both lie in one folder. Raises `OSError`. Where the system cannot exchange two names, there is none for the moment
    between two renames: `recover` brings back the old folder after a kill.
    """
    if not place.exists():
        new.rename(place)
    elif _exchange(new, place):
        shutil.rmtree(new)
    else:
        old = place.with_name(f"{place.name}.old")
        place.rename(old)
        new.rename(place)
        shutil.rmtree(old)


def recover(place: Path) -> None:
    """Undo a replacement that a kill left half done."""
    old = place.with_name(f"{place.name}.old")
    if old.exists() and not place.exists():
        old.rename(place)
    elif old.exists():
        shutil.rmtree(old)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; return False where that is not possible.

    It depends on the system and the file system.
    """
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


_STAGING = ".staging"
_BESIDE = (".new", ".old", _STAGING)
"""Ends of the names of folders beside the release, in which it is made."""
_BEGUN = render_manifest(ReleaseManifest([], {})).encode()
"""The manifest of a release that has only begun."""
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
"""Names of files that `replace_file` has not finished."""


def require_place(release: LocalRelease, corpus: Corpus, store: str, writes: bool = True) -> None:
    """Raise `ConfigError` where making the release would overwrite or remove foreign files.

    `store` is the folder or URL of the tables. Nothing is written, and a release at a URL takes one request or two. A
    caller that never `writes` a release does not mind what lies there.
    """
    location = corpus.manifest.location
    source = location if is_url(location) or Path(location).is_dir() else ""
    require_apart(release, corpus.folder, store, source)
    if not writes:
        return
    try:
        require_ours(release.root)
        if release.url is not None:
            require_ours_at(release.url)
    except StoreError as error:
        raise ConfigError(str(error)) from None


def require_ours(root: Path) -> None:
    """Raise `StoreError` where `root` or a folder beside it is no release's.

    Those beside it are looked at under the names that a release uses. A mounted disk is none, because no other folder
    can be renamed to its place.
    """
    if os.path.ismount(root):
        form = (
            "{folder} is a disk of its own, and a release is put in place by renaming its folder: name a folder on it "
            "in release.folder"
        )
        raise StoreError(form, root)
    for folder in (root, root.with_name(root.name + _STAGING)):
        lock = folder.with_name(f"{folder.name}.lock")
        if lock.is_file() and lock.stat().st_size:
            raise StoreError("{lock} is no lock of a release, and taking it would empty it: {remedy}", lock, ELSEWHERE)
    for end in ("", *_BESIDE):
        folder = root.with_name(root.name + end)
        if folder.exists() and not folder.is_dir():
            raise StoreError("{path} is a file: {remedy}, or move the file", folder, ELSEWHERE)
        if is_release(folder) or (end and _is_begun(folder)):
            continue
        for path in _files(folder):
            if not is_temporary(path.name):
                stranger = visible(path.relative_to(folder).as_posix())
                form = "{folder} holds {name}, which no release wrote: {remedy}, or move the files"
                raise StoreError(form, folder, stranger, ELSEWHERE)
    listed: set[str] = set()
    with suppress(OSError, ValueError, StoreError):
        listed |= parse_manifest((root / MANIFEST).read_bytes()).files.keys()
    with suppress(OSError, ValueError):
        listed |= parse_checksums((root / CHECKSUMS).read_text("utf-8")).keys()
    for path in _files(root / "data"):
        place = path.relative_to(root).as_posix()
        if DATA_PATH.fullmatch(place) and place not in listed:
            raise StoreError("{file} is no file of the release there: move it out of {folder}", path, root)


def is_release(folder: Path) -> bool:
    """Return whether a release wrote the folder, by its manifest."""
    try:
        content: Any = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return (
        isinstance(content, dict) and isinstance(content.get("shards"), list) and isinstance(content.get("files"), dict)
    )


def begin(folder: Path) -> None:
    """Make a new folder one of a release.

    It gets a manifest at once, by which it is known as ours even if a kill leaves it unfinished.
    """
    folder.mkdir(parents=True)
    replace_bytes(folder / MANIFEST, _BEGUN)


def is_temporary(name: str) -> bool:
    """Return whether a file was left by a writer of ours that was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def _is_begun(folder: Path) -> bool:
    """Return whether all files of a folder are named as those of a release.

    Its manifest comes last. The first manifest may be cut, because earlier releases did not write it as a whole.
    """
    names = {path.relative_to(folder).as_posix() for path in _files(folder) if not is_temporary(path.name)}
    if names == {MANIFEST}:
        return _BEGUN.startswith((folder / MANIFEST).read_bytes())
    data = set(filter(DATA_PATH.fullmatch, names))
    return bool(data or CHECKSUMS in names) and names <= data | set(TEXTS)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_symlink() or not path.is_dir():
            yield path
