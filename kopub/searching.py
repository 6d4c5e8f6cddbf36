"""The search over a home or a release, with the engine of a profile: what `kopub search` asks too."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from kopub.sources.home import HomeSource
from kopub.sources.release import ReleaseSource
from kopub.sources.release_tables import ReleaseTables
from kopub.sources.source import Source
from resources.config.settings import Settings, read_settings
from resources.embedding.base import Embedder
from resources.fingerprints import fingerprint
from resources.pages.corpus import Corpus
from resources.pages.corpus_sources import corpus_source
from resources.search.metrics import MeasuredScores
from resources.search.searcher import Searcher
from resources.search.tables import SearchedTables
from resources.search.vectors import VECTORS
from resources.store.page_rows import MADE_WITH
from resources.store.shard_store import ShardStore
from resources.store.table_source import CorpusCheck
from resources.store.table_source import Source as SourceOf

Say = Callable[[str], None]

_CACHE = "XDG_CACHE_HOME"


def searcher_of(source: Source, profile: str | None) -> tuple[Searcher, list[str]]:
    """The search over a corpus that was opened, and notes on it.

    `profile` is the name or path of one, $KOPUB_PROFILE or `cpu` when left out. Raises `ConfigError`.
    """
    if isinstance(source, HomeSource):
        settings = _settings(source.home, profile)
        place = source.corpus
        corpus = Corpus(home=str(place.home), url=place.url, cache_gb=place.cache_gb)
        return home_searcher(settings, corpus, ShardStore(url=source.store.url), _unsaid), []
    assert isinstance(source, ReleaseSource)
    return _release_searcher(source, profile)


def home_searcher(settings: Settings, corpus: Corpus, store: ShardStore, say: Say) -> Searcher:
    """The search over the tables in `store` of the corpus that is indexed."""

    def of_other_assets() -> SourceOf:
        from kopub_assets.upgrades.stale_scan import sources_of

        return sources_of({**settings.resources, "corpus": corpus})

    keys, check = corpus.manifest.keys, CorpusCheck(store, corpus_source(corpus.manifest, of_other_assets))
    return Searcher(
        store,
        keys,
        settings.embedding,
        settings.profile_name,
        corpus.folder / "search",
        check,
        notes=settings.search.notes,
        scores=MeasuredScores(store, keys, check),
        mode=settings.search.mode,
        floor=settings.search.floor,
        say=say,
    )


def _release_searcher(release: ReleaseSource, profile: str | None) -> tuple[Searcher, list[str]]:
    """Where no profile is asked for and the engine of the usual one did not make the vectors, words are searched."""
    folder = _cache_folder(release)
    settings = _settings(folder, profile)
    tables = ReleaseTables(release, settings.embedding.recipe())
    embedding, notes = settings.embedding, []
    if profile is None and not _fits(tables, release, embedding):
        embedding = None
        line = f"words alone are searched: the engine of profile {settings.profile_name} did not make the vectors"
        notes.append(f"{line}; open with profile= the one that made them")
    searcher = Searcher(
        tables,
        release.shards,
        embedding,
        settings.profile_name,
        folder,
        mode=settings.search.mode,
        floor=settings.search.floor,
    )
    return searcher, notes


def _fits(tables: SearchedTables, release: ReleaseSource, embedding: Embedder) -> bool:
    """Tell whether the engine made the vectors of the first shard."""
    recipe = json.loads(json.dumps([embedding.recipe()]))
    made = (tables.metadata(asset, release.shards[0])[MADE_WITH] for asset in VECTORS.values())
    return any(json.loads(made_with)["engines"] == recipe for made_with in made)


def _settings(home: Path, profile: str | None) -> Settings:
    chosen = {"KOPUB_PROFILE": profile} if profile else {}
    return read_settings({**os.environ, **chosen, "KOPUB_HOME": str(home)})


def _cache_folder(release: ReleaseSource) -> Path:
    """Where a search keeps what it reads of a release: in the user's cache, since a release is only read."""
    base = Path(os.environ.get(_CACHE) or Path.home() / ".cache")
    return base / "kopub" / "search" / fingerprint(release.location)


def _unsaid(line: str) -> None:
    """A caller of Python waits for the answer."""
