"""The search over a home or a release, as in `kopub search`."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, overload

from kopub.config.settings import Settings, read_settings
from kopub.corrections.corrected import CorrectedTables
from kopub.embedding.base import Embedder
from kopub.errors import ConfigError
from kopub.fingerprints import fingerprint
from kopub.pages.corpus import Corpus, corpus_source
from kopub.search.metrics import MeasuredScores
from kopub.search.searcher import Searcher
from kopub.search.vectors import VECTORS
from kopub.store.rows import MADE_WITH
from kopub.store.table_source import CorpusCheck
from kopub.store.table_source import Source as SourceOf
from kopub.store.table_store import ShardStore

if TYPE_CHECKING:
    import pandas as pd

    from kopub.api.pages import Page
    from kopub.api.sources.source import Source
    from kopub.search.answer import Answer as SearcherAnswer
    from kopub.texts.regions import Region

_CACHE = "XDG_CACHE_HOME"


def searcher_of(source: "Source", profile: str | None) -> tuple[Searcher, list[str]]:
    """Return the search over an opened corpus, and notes on it.

    `profile` is a name or path, by default $KOPUB_PROFILE or `cpu`. Raises `ConfigError`.
    """
    from kopub.api.sources.home import HomeSource
    from kopub.api.sources.release import ReleaseSource, ReleaseTables

    settings, folder = _settings(source, profile)
    if isinstance(source, HomeSource):
        place = source.corpus
        corpus = Corpus(home=str(place.home), url=place.url, cache_gb=place.cache_gb)
        return home_searcher(settings, corpus, ShardStore(url=source.store.url)), []
    assert isinstance(source, ReleaseSource)

    tables = ReleaseTables(source, settings.embedding.recipe())
    embedding, notes = settings.embedding, []
    # Nobody chose the default profile, so its engine need not be the one that made the vectors.
    if profile is None:
        recipe = json.loads(json.dumps([embedding.recipe()]))
        # The first shard stands for all.
        first = (tables.metadata(asset, source.shards[0]) for asset in VECTORS.values())
        if recipe not in (json.loads(metadata[MADE_WITH])["engines"] for metadata in first):
            embedding = None
    if embedding is None:
        line = f"words alone are searched: the engine of profile {settings.profile_name} did not make the vectors"
        notes.append(f"{line}; open with profile= the one that made them")
    searcher = Searcher(
        tables,
        source.shards,
        embedding,
        settings.profile_name,
        folder,
        mode=settings.search.mode,
        floor=settings.search.floor,
    )
    return searcher, notes


def embedder_of(source: "Source", profile: str | None) -> Embedder:
    """Return the embedding engine of the profile with which a corpus was opened.

    Raises `ConfigError`.
    """
    return _settings(source, profile)[0].embedding


def home_searcher(
    settings: Settings, corpus: Corpus, store: ShardStore, say: Callable[[str], None] = lambda line: None
) -> Searcher:
    """Return the search over the tables in `store` of the indexed corpus."""

    def of_other_assets() -> SourceOf:
        from kopub.tables.plan import sources_of

        return sources_of({**settings.resources, "corpus": corpus})

    keys, check = corpus.manifest.keys, CorpusCheck(store, corpus_source(corpus.manifest, of_other_assets))
    reranking = None
    if settings.reranking.off is None:
        from kopub.search.reranking import reranking_of

        reranking = reranking_of(settings.reranking, store, corpus)
    return Searcher(
        CorrectedTables(store),
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
        reranking=reranking,
    )


def _settings(source: "Source", profile: str | None) -> tuple[Settings, Path]:
    """Return the settings for a source, and the folder for data about it.

    Raises `ConfigError`.
    """
    from kopub.api.sources.home import HomeSource

    if isinstance(source, HomeSource):
        folder = source.home
    else:
        # What a search keeps of a release is in the user's cache, since nothing is written into a release.
        try:
            base = Path(os.environ.get(_CACHE) or Path.home() / ".cache")
        except RuntimeError:
            line = f"this user has no home folder: set {_CACHE} to a folder for the files of a search"
            raise ConfigError(line) from None
        folder = base / "kopub" / "search" / fingerprint(source.location)
    variables = {"KOPUB_PROFILE": profile} if profile else {}
    return read_settings({**os.environ, **variables, "KOPUB_HOME": str(folder)}), folder


@dataclass(frozen=True, slots=True)
class Hit:
    """A page that answers, and the place on it.

    `score` is specific to the answer's mode and cannot be compared across modes. `passage` is the part of the page's
    text with most words of the question; `marks` are the (start, end) in it of matching words. `also` are other pages
    with the same picture, byte for byte. `matches_well` is None where only the answer as a whole can be judged.
    """

    rank: int
    score: float
    page: "Page"
    passage: str
    marks: tuple[tuple[int, int], ...]
    matching: tuple[int, ...] = field(repr=False)
    """Numbers of the regions with the words, in the reading order of the page."""
    also: "tuple[Page, ...]" = ()
    matches_well: bool | None = None

    @property
    def regions(self) -> "tuple[Region, ...]":
        """The regions with the words, and their boxes."""
        return tuple(region for region in self.page.regions if region.index in self.matching)


@dataclass(frozen=True)
class Answer(Sequence[Hit]):
    """The hits, best first.

    `mode` is how they were ranked, and `chosen` says why, if no mode was requested. `matches_well` is False if no page
    reaches the floor below which nothing matches well, and None if that cannot be judged. `searched` counts the pages
    that could have been found; `notes` say what was not searched.
    """

    query: str
    mode: str
    chosen: str
    hits: tuple[Hit, ...]
    matches_well: bool | None
    searched: int
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, key: int) -> Hit: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, key: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[key]

    def to_pandas(self) -> "pd.DataFrame":
        """Return rank, score, page_id, doc_id, page_no and passage of every hit."""
        import pandas as pd

        rows = [
            (hit.rank, hit.score, hit.page.id, hit.page.document.id, hit.page.number, hit.passage) for hit in self.hits
        ]
        return pd.DataFrame(rows, columns=["rank", "score", "page_id", "doc_id", "page_no", "passage"])


def answer_of(answer: "SearcherAnswer", page_of: "Callable[[str], Page]", notes: Sequence[str] = ()) -> Answer:
    """Return a searcher's answer as hits with pages.

    `page_of` returns a page by its id; `notes` come before the searcher's own.
    """
    hits: list[Hit] = []
    for hit in answer.hits:
        page, passage = page_of(hit.page.page_id), hit.match.passage
        matching = tuple(hit.page.regions[at].index for at in hit.match.regions)
        also = tuple(page_of(page.page_id) for page in hit.also)
        hits.append(Hit(hit.rank, hit.score, page, passage.text, passage.marks, matching, also, hit.matches_well))
    return Answer(
        answer.query,
        answer.mode.value,
        answer.chosen,
        tuple(hits),
        answer.matches_well,
        answer.searched,
        (*notes, *answer.notes),
    )
