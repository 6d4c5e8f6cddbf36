"""`kopub.read`: a file read at once, by the assets themselves, in a home that goes with the result."""

import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kopub.corpus import Corpus
from kopub.documents import Document
from kopub.sources.home import HomeSource
from kopub_assets.graph import GRAPH
from kopub_assets.materialize.asset import Run, ShardAsset
from kopub_assets.materialize.checks import Problems
from resources.config.configured import configured
from resources.config.settings import Settings, read_settings
from resources.errors import KopubError, SourceError
from resources.pages.corpus import Corpus as IndexedCorpus
from resources.pages.documents.folder import find_documents
from resources.pages.indexing import index
from resources.printable import quoted
from resources.states import LOST
from resources.store.corpus_tables import TABLES
from resources.store.shard_store import ShardStore
from resources.urls import is_url


def read(path: str | os.PathLike[str], *, profile: str | None = None) -> Document:
    """The pages of an image or a PDF with regions, text and markdown, as the engines of a profile read them.

    `profile` is the name or path of one, $KOPUB_PROFILE or `cpu` when left out. The assets of a corpus do the work,
    on a corpus of this file alone; what they make is removed with the result. A page that could not be read has its
    state and reason. Raises `KopubError`, one line: for a file that is no document, and where no page could be read.
    """
    if is_url(os.fspath(path)):
        raise SourceError(f"{quoted(os.fspath(path), 200)} is a URL: name an image or a PDF of this machine")
    source = Path(path).expanduser().absolute()
    _require_document(source)
    home = Path(tempfile.mkdtemp(prefix="kopub-read-"))
    try:
        settings = _settings(home, profile)
        index(str(source), home)
        _make(settings)
        opened = HomeSource(home, settings.store)
        weakref.finalize(opened, shutil.rmtree, home, ignore_errors=True)
        (document,) = Corpus(opened).documents
        _require_pages(document)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    return document


def _require_document(source: Path) -> None:
    if not source.is_file():
        raise SourceError(f"{quoted(str(source), 200)} is no file: name an image or a PDF")
    for file in find_documents(source).left_out:
        raise SourceError(f"{quoted(file.name, 200)} cannot be read: {file.reason}")


def _settings(home: Path, profile: str | None) -> Settings:
    """Those of the profile, with an empty home of their own."""
    chosen = {"KOPUB_PROFILE": profile} if profile else {}
    settings = read_settings({**os.environ, **chosen, "KOPUB_HOME": str(home)})
    store = ShardStore(url=str(home / "store"), keep_versions=0)
    return replace(settings, corpus=configured(IndexedCorpus, home=str(home)), store=store)


def _make(settings: Settings) -> None:
    """Make the texts of the pages, and what they are made from."""
    wanted = _with_ancestors(TABLES.texts.name)
    assets = [asset(settings.resources) for name, asset in GRAPH.by_name.items() if name in wanted]
    for asset in assets:
        try:
            for _, outcome in asset.make_shards(_run(asset)):
                if isinstance(outcome, KopubError):
                    raise outcome
        finally:
            for engine in asset.engines:
                engine.release()


def _with_ancestors(asset: str) -> set[str]:
    return {asset}.union(*map(_with_ancestors, GRAPH.parents(asset)))


def _run(asset: ShardAsset) -> Run:
    problems = Problems(asset.checks, {})
    return Run(uuid.uuid4().hex, tuple(asset.corpus.manifest.keys), problems, _unsaid, _unsaid)


def _unsaid(line: str) -> None:
    """The result says what became of each page."""


def _require_pages(document: Document) -> None:
    lost = list(_reasons(document))
    if len(lost) == len(document.pages):
        raise SourceError(lost[0])


def _reasons(document: Document) -> Iterator[str]:
    for page in document.pages.where(LOST):
        yield f"{page.id} cannot be read: {page.reason}"
