"""The search for a question's answer: pages ranked by words, by vectors or by both."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kopub.embedding.base import Embedder
from kopub.errors import KopubError, did_you_mean, first_line
from kopub.search.answer import Answer, CannotSearch, Hit, NotInCorpus, QueryWords, best_passage, passage_at
from kopub.search.morphemes import korean_analyser, query_tokens, query_words
from kopub.search.options import FLOOR, NOTHING, Mode, Scores, Where, best_mode
from kopub.search.pages import ArrowCache, PlacedText, SearchedTables, Snapshot, TablesNow, View, ViewLookup
from kopub.search.ranking import DEPTH, reciprocal_ranks, weighted_scores
from kopub.search.vectors import VECTORS, KnownQuestions, Neighbour, PageFilter, VectorLookup, Vectors, left_out
from kopub.search.words import TEXTS, WordLookup, Words
from kopub.states import Reason, phrase
from kopub.store.table_source import CorpusCheck, IsOfCorpus

if TYPE_CHECKING:
    from kopub.search.reranking import Reranking

EVERYWHERE = Where()
_Page = tuple[str, str]
"""A page by shard and id."""


@dataclass
class _Rankings:
    """The rankings of a question, and the floors from which their pages match well.

    A floor is None if a ranking cannot tell, and missing if it need not.
    """

    by_mode: dict[Mode, list[Neighbour]] = field(default_factory=dict)
    floors: dict[Mode, float | None] = field(default_factory=dict)
    pages: int = 0

    def judged(self, ranked: Sequence[Neighbour], floor: float | None) -> tuple[bool | None, dict[_Page, bool]]:
        """Return whether any page matches well, and whether each does.

        Scores that cannot tell that of each page give none. `floor` is that of a fusion's own scores, if it has one:
        what words and meaning say together is surer than what either says alone.
        """
        if floor is None and len(self.by_mode) == 1:
            floor = next(iter(self.floors.values()), None)
        if floor is not None:
            well = {(near.shard, near.page_id): near.score >= floor for near in ranked}
            return any(well.values()), well
        for mode, floor in self.floors.items():
            ranking = self.by_mode[mode]
            if ranking and floor is not None and ranking[0].score >= floor:
                return True, {}
        return (None if not self.floors or None in self.floors.values() else False), {}


class Searcher:
    """The search over the shards of a corpus; threads may share it.

    Every answer comes from the tables as they are at the time. `folder` caches what a search reads from them. Without
    an `embedding`, only words are searched. Tables that `corpus_check` finds to be of another corpus are left out;
    without it, all are used. With `notes`, words of the notes on figures count too. `scores` returns measured scores,
    `mode` is the default mode, and `floor` the match below which nothing matches well; `say` is called about work that
    takes long. Without `reranking`, no search is reranked.
    """

    def __init__(
        self,
        store: SearchedTables,
        shards: Sequence[str],
        embedding: Embedder | None,
        profile: str,
        folder: Path,
        corpus_check: CorpusCheck | None = None,
        *,
        notes: bool = False,
        scores: Scores = lambda: NOTHING,
        mode: Mode = Mode.AUTO,
        floor: float = FLOOR,
        say: Callable[[str], None] = lambda line: None,
        reranking: "Reranking | None" = None,
    ) -> None:
        self._store = store = TablesNow(store)
        self._shards, self._embedding, self._profile = list(shards), embedding, profile
        self._corpus_check, self._scores, self._mode, self._floor = corpus_check, scores, mode, floor
        self._cache = ArrowCache(folder)
        self._pages = ViewLookup(store, self._cache)
        self._words = WordLookup(store, self._cache, say, notes)
        self._vectors = VectorLookup(store, self._shards, embedding, profile, self._cache) if embedding else None
        self._known = KnownQuestions(store)
        self._reranking = reranking
        self._told_problem = self._has_asked = False
        self._lock, self._words_lock = Lock(), Lock()

    def search(self, query: str, top: int = 10, mode: Mode | None = None, where: Where = EVERYWHERE) -> Answer:
        """Return the best `top` pages that `where` selects, ranked by `mode`.

        Without `mode`, the searcher's own is used. Pages with the same picture, byte for byte, are one hit. Raises
        `CannotSearch`, and what the engine and the store raise.
        """
        query = _composed(query)
        with self._lock:
            is_of_corpus = self._look()
            used, chosen = self._chosen(mode or self._mode)
            kinds = self._kinds(used)
            tokens = self._query_words(query, used, kinds)
            searched = {kind: self._lookup.refreshed(kind, is_of_corpus) for kind in kinds}
            views = self._pages.refreshed(is_of_corpus)
            pages = self._searched_pages(where, views)
        notes = [note for _, of_kind in searched.values() for note in of_kind]
        notes += self._lacking(used, kinds)
        if used is Mode.RERANKED and self._reranking:
            self._reranking.engine.boot()
        ranks = _Rankings()
        fusion = self._embedding.fusion if self._embedding and used in _FUSED else {}
        # A home from before passages were embedded is searched as it was.
        weights = fusion if set(fusion) <= {Mode.BM25, *kinds} else {}
        if kinds:
            # This is done without the lock, because a model server may have to start, and page views must not wait.
            vector = self._embed(query) if kinds != [Mode.MEANING] else None
            for kind, (vectors, _) in searched.items():
                self._compare(ranks, kind, vectors, query, vector, pages, is_of_corpus)
        if used in _WITH_WORDS:
            with self._words_lock:
                words, of_words = self._words_now(is_of_corpus)
                query_tokens = tokens()
            ranking, match = words.best(query_tokens, DEPTH, pages)
            if ranking and weights:
                # A share of the highest score that a page could have can be added to dot products of unit vectors.
                share = match / ranking[0].score
                ranking = [replace(near, score=near.score * share) for near in ranking]
            ranks.by_mode[Mode.BM25] = ranking
            ranks.floors[Mode.BM25] = self._floor * ranking[0].score / match if ranking else 0.0
            ranks.pages = max(ranks.pages, words.count(pages))
            notes += of_words
        ranked = _fuse(ranks.by_mode, weights) if len(ranks.by_mode) > 1 else next(iter(ranks.by_mode.values()))
        matches_well, well = ranks.judged(ranked, self._embedding.fusion_floor if weights and self._embedding else None)
        if used is Mode.RERANKED:
            ranked, problem = self._rerank(query, ranked)
            if problem:
                used, chosen = Mode.FUSION if kinds else Mode.BM25, ""
                notes.append(f"the pages are not reranked: {problem}")
        with self._lock:
            # Pages with the same picture are one hit, at the place of the first of them.
            by_picture: dict[object, list[Neighbour]] = {}
            for near in ranked:
                page = (near.shard, near.page_id)
                by_picture.setdefault(views.picture(*page) or page, []).append(near)
            best: list[tuple[Neighbour, list[View]]] = []
            for same in list(by_picture.values())[:top]:
                best.append((same[0], [views.page(near.shard, near.page_id) for near in same]))
            if self._cache.problem is not None and not self._told_problem:
                self._told_problem = True
                notes.append(
                    f"what was read is kept in memory only, so every start takes longer: {self._cache.problem}"
                )
        of_query = QueryWords.of(query)
        hits = tuple(_hit(rank, near, same, of_query, well) for rank, (near, same) in enumerate(best, start=1))
        return Answer(query, used, chosen, hits, matches_well, ranks.pages, tuple(notes))

    @property
    def choices(self) -> tuple[Mode, ...]:
        """The modes to choose from, besides `auto`; the first is used if nothing was measured."""
        self._store.look_again()
        return self._choices

    @property
    def _choices(self) -> tuple[Mode, ...]:
        matching, kinds = self._embedding.queries_match if self._embedding else (), list[Mode]()
        for kind in VECTORS:
            # Figures have vectors only if somebody had them made.
            if kind in matching and (kind is not Mode.FIGURE or self._is_made(kind)):
                kinds.append(kind)
        every = (Mode.VECTORS,) if len(kinds) > 1 else ()
        # Reranking comes after the fusion, which is used if nothing was measured or if both are equally good.
        reranked = (Mode.RERANKED,) if self._reranking else ()
        return (Mode.FUSION, *reranked, Mode.BM25, *every, *kinds) if kinds else (Mode.BM25, *reranked)

    @property
    def documents(self) -> list[str]:
        """The documents of the corpus, in corpus order."""
        with self._lock:
            return self._pages.refreshed(self._look()).values(self._shards, "doc_id")

    def page(self, shard: str, page_id: str) -> View:
        """Return a page by shard and id; an unknown one has neither number nor regions."""
        if shard not in self._shards:
            return View(shard, page_id)
        with self._lock:
            return self._pages.refreshed(self._look()).page(shard, page_id)

    def vectors(self, kind: Mode) -> Vectors:
        """Return the current vectors of one kind. Raises `CannotSearch`."""
        with self._lock:
            return self._lookup.refreshed(kind, self._look())[0]

    def words_are_known(self, mode: Mode | None = None) -> bool:
        """Return whether a search by `mode` needs no unknown words. Raises `CannotSearch`."""
        with self._lock:
            self._store.look_again()
            if self._chosen(mode or self._mode)[0] not in _WITH_WORDS:
                return True
        return self._words.is_open(self._texts_now(self._look())[0])

    @property
    def words_found(self) -> tuple[int, int] | None:
        """The numbers of shards with known words, and of all shards.

        None unless the words of many pages are being found.
        """
        return self._words.progress

    def end(self) -> None:
        """Stop long work in any thread; afterwards, the searcher finds no new words."""
        self._words.end()

    def words(self) -> Words:
        """Return the words of the current texts. Raises `CannotSearch`."""
        with self._words_lock:
            return self._words_now(self._look())[0]

    def open(self) -> None:
        """Open what a search by the default mode reads, before the first one.

        Model servers are left alone. Raises `CannotSearch`, and what the store raises.
        """
        with self._lock:
            is_of_corpus = self._look()
            used, _ = self._chosen(self._mode)
            kinds = self._kinds(used)
        if used in _WITH_WORDS:
            with self._words_lock:
                korean_analyser()
            self.words()
        with self._lock:
            for kind in kinds:
                self._lookup.refreshed(kind, is_of_corpus)
            views = self._pages.refreshed(is_of_corpus)
            for shard in self._shards:
                views.opened(shard)
        if self._embedding and self._embedding.is_lexical:
            self._embed("meaning")
            if Mode.MEANING in kinds:
                self._embedding.embed_questions(["meaning"])

    def _query_words(self, query: str, mode: Mode, kinds: Sequence[Mode]) -> Callable[[], list[str]]:
        """Return the function that returns the words of a query.

        With vectors to load beside them, the first query does not wait for the analyser in this process.
        """
        if mode in _WITH_WORDS and kinds and not self._has_asked:
            self._has_asked = True
            return query_words(query)
        return lambda: next(query_tokens([query]))

    def _look(self) -> IsOfCorpus:
        self._store.look_again()
        return self._corpus_check.look() if self._corpus_check else lambda asset, shard: True

    @property
    def _lookup(self) -> VectorLookup:
        if self._vectors is None:
            form = "profile {profile} has no engine for vectors; choose {mode}"
            raise CannotSearch(phrase(form, self._profile, Mode.BM25))
        return self._vectors

    def _chosen(self, mode: Mode) -> tuple[Mode, str]:
        """Return the mode to use, and the reason if nobody asked for it."""
        if mode is Mode.AUTO:
            # If no choice has its tables, each is one, so that using it reports what is missing.
            has_texts = bool(self._store.published(TEXTS))
            usable: list[Mode] = []
            for choice in self._choices:
                if (has_texts or choice not in _WITH_WORDS) and all(map(self._is_made, self._kinds(choice))):
                    usable.append(choice)
            return best_mode(self._scores(), usable or self._choices)
        if mode is Mode.VECTORS and len(kinds := [kind for kind in VECTORS if kind in self._choices]) == 1:
            return kinds[0], ""
        if mode not in self._choices:
            form = "profile {profile} cannot search by {mode}; choose {modes}"
            raise CannotSearch(phrase(form, self._profile, mode, " or ".join(self._choices)))
        return mode, ""

    def _kinds(self, mode: Mode) -> list[Mode]:
        """Return the kinds of vectors that a mode compares; a fusion uses existing ones."""
        if mode not in _WITH_VECTORS:
            return [kind for kind in VECTORS if kind is mode]
        choices = self._choices
        kinds = [kind for kind in VECTORS if kind in choices]
        return [kind for kind in kinds if self._is_made(kind)] or kinds[:1]

    def _lacking(self, mode: Mode, kinds: Sequence[Mode]) -> list[str]:
        """Return notes on the kinds of vectors that a mode lacks."""
        if mode not in _WITH_VECTORS:
            return []
        # What was made before passages were embedded is searched as it was, and `kopub plan` names what lacks.
        lacking = {*self._choices} - {*kinds, Mode.MEANING}
        return [Reason("there are no {by} vectors yet", by=kind) for kind in VECTORS if kind in lacking]

    def _rerank(self, query: str, ranked: list[Neighbour]) -> tuple[list[Neighbour], str]:
        """Return the pages in the reranker's order, or unchanged with the reason."""
        assert self._reranking is not None
        by_page = {(near.shard, near.page_id): near for near in ranked}
        try:
            pages, scores = self._reranking.reordered(query, list(by_page))
        except KopubError as error:
            return ranked, first_line(error)
        return [replace(by_page[page], score=scores.get(page, 0.0)) for page in pages], ""

    def _is_made(self, kind: Mode) -> bool:
        return bool(self._store.published(VECTORS[kind]))

    def _compare(
        self,
        ranks: _Rankings,
        kind: Mode,
        vectors: Vectors,
        query: str,
        vector: np.ndarray | None,
        pages: PageFilter | None,
        is_of_corpus: IsOfCorpus,
    ) -> None:
        assert self._embedding is not None
        if kind is Mode.MEANING:
            vector = self._embedding.embed_questions([query])[0]
        assert vector is not None
        ranks.by_mode[kind] = vectors.nearest(vector, DEPTH, pages)
        ranks.pages = max(ranks.pages, vectors.count(pages))
        if kind is Mode.MEANING:
            ranks.floors[kind] = self._embedding.passage_floor
            return
        if kind is Mode.FIGURE:
            # Figures have no known floor, because most questions are answered by text.
            return
        with self._lock:
            floor = self._known.floor(kind, self._shards, vectors, self._lookup.is_of_engine, is_of_corpus)
        if floor is not None or not self._embedding.is_lexical:
            ranks.floors[kind] = floor

    def _words_now(self, is_of_corpus: IsOfCorpus) -> tuple[Words, list[str]]:
        """Return the words of the current texts, and notes on what is left out.

        Raises `CannotSearch`.
        """
        versions, notes = self._texts_now(is_of_corpus)
        words = self._words.refreshed(versions)
        return words, [*notes, "the words of a model's notes on figures are searched too"] if words.of_notes else notes

    def _texts_now(self, is_of_corpus: IsOfCorpus) -> tuple[dict[str, str], list[str]]:
        """Return the versions of the text tables by shard, and notes on left-out ones.

        Raises `CannotSearch`.
        """
        published = self._store.published(TEXTS)
        with_texts = [shard for shard in self._shards if shard in published]
        if not with_texts:
            raise CannotSearch("there are no texts yet: run `kopub run`")
        of_corpus = [shard for shard in with_texts if is_of_corpus(TEXTS, shard)]
        if not of_corpus:
            raise CannotSearch("the texts are of another corpus than the indexed one: run `kopub run`")
        versions = {shard: published[shard] for shard in of_corpus}
        return versions, left_out("texts", self._shards, with_texts, of_corpus)

    def _searched_pages(self, where: Where, views: Snapshot) -> PageFilter | None:
        """Return the filter of searched page ids by shard, or None if all are searched."""
        if unknown := sorted(where.shards - set(self._shards)):
            form = "there is no shard {shard}{guess}"
            raise NotInCorpus(phrase(form, unknown[0], did_you_mean(unknown[0], self._shards)))
        documents = views.values(self._shards, "doc_id") if where.documents else []
        scripts = views.values(self._shards, "script") if where.scripts else []
        # As in a query, Hangul may be entered as single letters; the names of scripts are stored in capitals.
        composed = (name if name in documents else unicodedata.normalize("NFC", name) for name in where.documents)
        where = replace(where, documents=frozenset(composed), scripts=frozenset(map(str.upper, where.scripts)))
        for names, of_corpus, form, error in (
            (where.documents, documents, "there is no document {name!r}{guess}", NotInCorpus),
            (where.scripts, scripts, "there is no page whose main script is {name!r}{guess}", CannotSearch),
        ):
            if unknown := sorted(names - set(of_corpus)):
                raise error(phrase(form, unknown[0], did_you_mean(unknown[0], of_corpus)))
        if not where.shards and not where.looks_at_pages:
            return None
        ids = dict.fromkeys(self._shards, pa.array([], pa.string()))
        for shard in where.shards or self._shards:
            ids[shard] = views.ids(shard, where) if where.looks_at_pages else None
        return ids.__getitem__

    def _embed(self, query: str) -> np.ndarray:
        assert self._embedding is not None
        for embedding in self._embedding.embed_queries([("query", query)]):
            if embedding.vector is not None:
                return embedding.vector
            raise CannotSearch(phrase("the query has no vector: {reason}", embedding.reason or embedding.state))
        raise CannotSearch("the engine gave no answer; this is a bug in it")


_FIRST = 10
"""A way of searching found a page of a fusion if the page is among its first ten."""
_MOST_WORDS = 0.5
"""From this share of the query's words, a region shows better why its page was found than the nearest passage does."""
_FUSED = (Mode.FUSION, Mode.RERANKED)
_WITH_WORDS = frozenset({Mode.BM25, *_FUSED})
_WITH_VECTORS = frozenset({Mode.VECTORS, *_FUSED})


def _composed(query: str) -> str:
    """Return a query as it is analysed. Raises `CannotSearch` if it cannot be."""
    if not query.strip():
        raise CannotSearch("the query is empty: type a question")
    if any("\ud800" <= char <= "\udfff" for char in query):
        # Bytes of an argument that are not UTF-8 become surrogates, which nothing can analyse or print.
        raise CannotSearch("the query is not valid Unicode: type it in a terminal with a UTF-8 locale")
    # Some systems enter Hangul as single letters (NFD), which a model reads as different words.
    return unicodedata.normalize("NFC", query)


def _fuse(rankings: Mapping[Mode, Sequence[Neighbour]], weights: Mapping[str, float]) -> list[Neighbour]:
    """Return the pages of all rankings, best first, by the weighted sums of their scores.

    Without weights, ranks are fused. Equal pages keep the order in which the rankings name them.
    """
    figures: dict[_Page, int] = {}
    passages: dict[_Page, tuple[int, int]] = {}
    by: dict[_Page, tuple[str, ...]] = {}
    numbers: dict[_Page, int] = {}
    numbered: list[np.ndarray] = []
    parts: list[np.ndarray] = []
    for mode, ranking in rankings.items():
        ranked = np.empty(len(ranking), np.int64)
        for place, near in enumerate(ranking):
            page = (near.shard, near.page_id)
            ranked[place] = numbers.setdefault(page, len(numbers))
            if near.figure is not None:
                figures[page] = near.figure
            if near.passage is not None:
                passages[page] = near.passage
            if place < _FIRST:
                by[page] = (*by.get(page, ()), mode)
        numbered.append(ranked)
        parts.append(np.array([near.score for near in ranking], np.float32))
    if weights:
        _, scores = weighted_scores(numbered, parts, [weights.get(mode, 0.0) for mode in rankings])
    else:
        _, scores = reciprocal_ranks(numbered)
    pages, fused = list(numbers), list[Neighbour]()
    for at in np.argsort(-scores, kind="stable").tolist():
        shard, page_id = page = pages[at]
        found_by = by.get(page, ())
        fused.append(Neighbour(shard, page_id, float(scores[at]), figures.get(page), passages.get(page), found_by))
    return fused


def _hit(rank: int, near: Neighbour, pages: Sequence[View], words: QueryWords, well: Mapping[_Page, bool]) -> Hit:
    """Return the hit of the first of `pages`; the others have the same picture."""
    page, *also = pages
    texts = [region.text for region in page.regions]
    match = best_passage(words, texts)
    if near.passage is not None and match.share < _MOST_WORDS:
        match = passage_at(words, texts, *near.passage) or match
    figure: PlacedText | None = None
    for at, region in enumerate(page.regions):
        if region.index == near.figure:
            figure, match = region, replace(match, regions=tuple(sorted({*match.regions, at})))
    matches_well = well.get((near.shard, near.page_id))
    return Hit(rank, near.score, page, match, tuple(also), figure, near.by, matches_well)
