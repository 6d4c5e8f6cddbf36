"""`kopub.open`: a home, a release folder, or a release on the Hub."""

import os
import re
from pathlib import Path

from kopub.corpus import Corpus
from kopub.sources.home import HomeSource
from kopub.sources.release import ReleaseSource, is_release
from resources.config.places import placed, store_url
from resources.errors import SourceError
from resources.pages.manifest import NAME
from resources.printable import quoted
from resources.store.table_store import TableStore

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
STORE = "store"
"""Folder of the tables in a home, unless the profile says otherwise."""


def open(
    where: str | os.PathLike[str] | None = None,
    *,
    store: str | None = None,
    revision: str | None = None,
    profile: str | None = None,
) -> Corpus:
    """The corpus of a home, of a release folder, or of a release on the Hub by its id; of $KOPUB_HOME when left out.

    `store` is the folder or fsspec URL of a home's tables where they lie elsewhere, as `store.url` of a profile says.
    `revision` is a branch, tag or commit of a repository on the Hub, whose files are fetched when they are first
    needed: those with the pages at once. `profile` is the name or path of the one whose engine embeds questions;
    $KOPUB_PROFILE or `cpu` when left out. Raises `SourceError` for what is none of these, `HubError` where a repository
    cannot be read, and `StoreError` for a table that is damaged.
    """
    given = os.environ.get("KOPUB_HOME", "data") if where is None else os.fspath(where)
    folder = placed(given) if where is None else Path(given).expanduser().absolute()
    if folder.is_dir():
        return Corpus(ReleaseSource(folder) if is_release(folder) else _home(folder, given, store), profile)
    if folder.exists() or where is None or not _HUB_ID.fullmatch(given):
        raise SourceError(f"{quoted(given)} is no folder: name a home, a release folder, or OWNER/NAME on the Hub")
    from kopub.sources.hub import HubSource

    return Corpus(HubSource(given, revision), profile)


def _home(folder: Path, given: str, store: str | None) -> HomeSource:
    if store is None and not (folder / STORE).is_dir():
        if (folder / NAME).exists():
            raise SourceError(f"{quoted(given)} has an index and no tables yet: run `kopub run`")
        line = "is neither a home with tables nor a release: run `kopub run` in it, or name another folder"
        raise SourceError(f"{quoted(given)} {line}")
    return HomeSource(folder, TableStore(store_url(store) if store else str(folder / STORE)))
