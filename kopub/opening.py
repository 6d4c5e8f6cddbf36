"""`kopub.open`: a home or a release."""

import os
from pathlib import Path

from kopub.corpus import Corpus
from kopub.home import HomeSource
from kopub.release import ReleaseSource, is_release
from resources.config.places import placed, store_url
from resources.errors import SourceError
from resources.pages.manifest import NAME
from resources.printable import quoted
from resources.store.table_store import TableStore

STORE = "store"
"""Folder of the tables in a home, unless the profile says otherwise."""


def open(where: str | os.PathLike[str] | None = None, *, store: str | None = None) -> Corpus:
    """The corpus of a home or of a release folder; of $KOPUB_HOME, or `data`, when left out.

    `store` is the folder or fsspec URL of a home's tables where they lie elsewhere, as `store.url` of a profile says.
    Raises `SourceError` for what is neither, and `StoreError` for a table that is damaged.
    """
    given = os.environ.get("KOPUB_HOME", "data") if where is None else os.fspath(where)
    folder = placed(given) if where is None else Path(given).expanduser().absolute()
    if not folder.is_dir():
        raise SourceError(f"{quoted(given)} is no folder: name a home or a release folder")
    if is_release(folder):
        return Corpus(ReleaseSource(folder))
    if store is None and not (folder / STORE).is_dir():
        made = (
            "has an index and no tables yet: run `kopub run`"
            if (folder / NAME).exists()
            else ("is neither a home with tables nor a release: run `kopub run` in it, or name another folder")
        )
        raise SourceError(f"{quoted(given)} {made}")
    return Corpus(HomeSource(folder, TableStore(store_url(store) if store else str(folder / STORE))))
