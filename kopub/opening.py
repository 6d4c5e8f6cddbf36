"""`kopub.open`: a home, or a release in a folder, on object storage or on the Hub."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kopub.corpus import Corpus
from kopub.sources.home import HomeSource
from kopub.sources.release import ReleaseSource, is_release
from resources.config.places import placed, store_url
from resources.errors import SourceError
from resources.pages.manifest import NAME
from resources.pages.places.corpus_place import CorpusPlace
from resources.printable import quoted
from resources.store.table_store import TableStore
from resources.urls import is_url

if TYPE_CHECKING:
    from resources.pages.places.fetched_files import FetchedFiles

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
STORE = "store"
"""Folder of the tables in a home, unless the profile says otherwise."""


def open(
    where: str | os.PathLike[str] | None = None,
    *,
    store: str | None = None,
    index: str | None = None,
    revision: str | None = None,
    profile: str | None = None,
) -> Corpus:
    """The corpus of a home, of a release by its folder, its URL or its id on the Hub; of $KOPUB_HOME when left out.

    `store` and `index` are the folders or fsspec URLs of a home's tables and of the index of its corpus, where they lie
    elsewhere, as `store.url` and `corpus.url` of a profile say. `revision` is a branch, tag or commit of a repository
    on the Hub, whose files are fetched when they are first needed: those with the pages at once. Those of a release at
    a URL come so too, into $KOPUB_HOME/sources. `profile` is the name or path of the one whose engine embeds questions;
    $KOPUB_PROFILE or `cpu` when left out. Raises `SourceError` for what is none of these, `HubError` where a repository
    cannot be read, and `StoreError` for a table that is damaged or a storage that does not answer.
    """
    given = os.environ.get("KOPUB_HOME", "data") if where is None else os.fspath(where)
    if where is not None and is_url(given):
        given = _opened_by_a_package(given)
    if where is not None and is_url(given):
        from kopub.sources.object_release import ObjectReleaseSource

        return Corpus(ObjectReleaseSource(given, _fetched()), profile)
    folder = placed(given) if where is None else Path(given).expanduser().absolute()
    if folder.is_dir():
        return Corpus(ReleaseSource(folder) if is_release(folder) else _home(folder, given, store, index), profile)
    if folder.exists() or where is None or not _HUB_ID.fullmatch(given):
        raise SourceError(
            f"{quoted(given)} is no folder: name a home, a release by its folder or URL, or OWNER/NAME on the Hub"
        )
    from kopub.sources.hub import HubSource

    return Corpus(HubSource(given, revision), profile)


def _fetched() -> "FetchedFiles":
    home = placed(os.environ.get("KOPUB_HOME", "data"))
    return CorpusPlace(home).fetched


def _opened_by_a_package(url: str) -> str:
    try:
        return store_url(url)
    except ValueError as error:
        raise SourceError(str(error)) from None


def _home(folder: Path, given: str, store: str | None, index: str | None) -> HomeSource:
    corpus = CorpusPlace(folder, _opened_by_a_package(index).rstrip("/") if index else "")
    if store is None and not (folder / STORE).is_dir():
        if (folder / NAME).exists():
            raise SourceError(f"{quoted(given)} has an index and no tables yet: run `kopub run`")
        line = "is neither a home with tables nor a release: run `kopub run` in it, or name another folder"
        raise SourceError(f"{quoted(given)} {line}")
    return HomeSource(corpus, TableStore(_opened_by_a_package(store) if store else str(folder / STORE)))
