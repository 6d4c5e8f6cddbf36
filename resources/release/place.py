"""Where a release may be written: a new or empty folder, or a release of ours, and never over anything else."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from resources.errors import ConfigError, StoreError
from resources.pages.corpus import Corpus
from resources.printable import visible
from resources.release.files import (
    CHECKSUMS,
    DATA_PATH,
    MANIFEST,
    ReleaseManifest,
    parse_checksums,
    parse_manifest,
    render_manifest,
)
from resources.release.local import TEXTS, LocalRelease
from resources.release.remote import require_ours_at
from resources.urls import is_url

_STAGING = ".staging"
_BESIDE = (".new", ".old", _STAGING)
"""Ends of the names of folders beside the release, in which it is made."""
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
"""Names of files that `replace_file` has not finished."""
_ELSEWHERE = "name a new or empty folder in release.folder"


def require_place(release: LocalRelease, corpus: Corpus, store: str) -> None:
    """Raise `ConfigError` where making the release would write over, or remove, what no release wrote.

    `store` is the folder or URL of the tables. Nothing is written, and a release at a URL takes one request or two.
    """
    require_apart(release, corpus.folder, store, _source(corpus))
    try:
        require_ours(release.root)
        if release.url is not None:
            require_ours_at(release.url)
    except StoreError as error:
        raise ConfigError(str(error)) from None


def require_apart(release: LocalRelease, home: Path, store: str, source: str = "") -> None:
    """Raise `ConfigError` where the release would lie in the store or the source, or hold them or the home.

    Below the home it may lie beside the store, which is where it is made when no folder is named, though the home
    itself lies in the source.
    """
    home = home.resolve()
    for what, place in (("the home", str(home)), ("the store", store), ("the source", source)):
        if release.url is not None and is_url(place) and _is_within(release.url, place):
            raise ConfigError(f"release.folder: {release.url} is {what} or lies in it; {_ELSEWHERE}")
        if not place or is_url(place):
            continue
        root, other = release.root.resolve(), Path(place).resolve()
        if root == other or root in other.parents:
            raise ConfigError(f"release.folder: {root} is {what} or holds it; {_ELSEWHERE}")
        if what != "the home" and other in root.parents and (what == "the store" or home not in root.parents):
            raise ConfigError(f"release.folder: {root} lies in {what}, {other}; {_ELSEWHERE}")


def require_ours(root: Path) -> None:
    """Raise `StoreError` where `root`, or what lies beside it under the names that a release uses, is no release's."""
    for made in (root, root.with_name(root.name + _STAGING)):
        lock = made.with_name(f"{made.name}.lock")
        if lock.is_file() and lock.stat().st_size:
            raise StoreError(f"{lock} is no lock of a release, and taking it would empty it: {_ELSEWHERE}")
    for end in ("", *_BESIDE):
        folder = root.with_name(root.name + end)
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file: {_ELSEWHERE}, or move the file")
        if is_release(folder) or (end and _is_begun(folder)):
            continue
        for path in _files(folder):
            if not is_temporary(path.name):
                stranger = visible(path.relative_to(folder).as_posix())
                raise StoreError(f"{folder} holds {stranger}, which no release wrote: {_ELSEWHERE}, or move the files")
    if stray := next(_unlisted(root), None):
        raise StoreError(f"{root / stray} is no file of the release there: move it out of {root}")


def is_release(folder: Path) -> bool:
    """Whether the manifest of a folder says that a release wrote it."""
    try:
        found: Any = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("shards"), list) and isinstance(found.get("files"), dict)


def begin(folder: Path) -> None:
    """Make a new folder one of a release, so that what a kill leaves of it is known for ours."""
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text(render_manifest(ReleaseManifest([], {})), "utf-8")


def is_temporary(name: str) -> bool:
    """Whether a file was left by a writer of ours that was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def _is_begun(folder: Path) -> bool:
    """Whether all files of a folder are named as those of a release, whose manifest comes last."""
    names = {path.relative_to(folder).as_posix() for path in _files(folder) if not is_temporary(path.name)}
    data = {name for name in names if DATA_PATH.fullmatch(name)}
    return bool(data or CHECKSUMS in names) and names <= data | set(TEXTS)


def _unlisted(root: Path) -> Iterator[str]:
    """Data files of a release folder that neither its manifest nor its checksums list, though they are named so."""
    known: set[str] = set()
    with suppress(OSError, ValueError, StoreError):
        known |= parse_manifest((root / MANIFEST).read_bytes()).files.keys()
    with suppress(OSError, ValueError):
        known |= parse_checksums((root / CHECKSUMS).read_text("utf-8")).keys()
    for path in _files(root / "data"):
        place = path.relative_to(root).as_posix()
        if DATA_PATH.fullmatch(place) and place not in known:
            yield place


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_symlink() or not path.is_dir():
            yield path


def _source(corpus: Corpus) -> str:
    """The folder or URL that the corpus was indexed from; empty for a single file and a dataset of the Hub."""
    location = corpus.manifest.location
    return location if is_url(location) or Path(location).is_dir() else ""


def _is_within(url: str, place: str) -> bool:
    return f"{url.rstrip('/')}/".startswith(f"{place.rstrip('/')}/")
