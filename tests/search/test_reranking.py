"""Search with a reranker: what it changes, what is measured, and searching without it."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from kopub.errors import EngineError
from kopub.fingerprints import CodeVersion
from kopub.pages.corpus import Corpus
from kopub.reranking.base import NoReranking, Reranker
from kopub.reranking.pairs import Pair, Relevance
from kopub.search.measuring import SearchedCorpus, inputs_of, measure
from kopub.search.metrics import HISTORY, headline
from kopub.search.options import Mode, ModeScores
from kopub.search.reranking import Reranking, reranking_of
from kopub.search.searcher import Searcher
from kopub.store.schemas import RETRIEVAL_SCORES
from tests.search.test_modes import SEARCHED
from tests.search.test_search import TEXTS, Typist
from tests.support.harness import Platform, Prepared
from tests.support.sources.corpora import pages, query

HANG_SECONDS = 30.0


class Favourite(Reranker):
    """A reranker that prefers pages with `word` and records the pairs it scores."""

    code_version: ClassVar[CodeVersion] = CodeVersion("reranking.favourite", {1: "a double"})
    asked: ClassVar[list[Pair]] = []
    word: str = "공유기"
    fault: str = ""
    hangs: float = 0

    def score(self, pairs: Iterable[Pair]) -> Iterator[Relevance]:
        if self.fault:
            raise EngineError(self.fault)
        for pair in pairs:
            time.sleep(self.hangs)
            self.asked.append(pair)
            yield Relevance(pair.id, 0.9 if self.word in pair.text else 0.1)


class Wordless(Favourite):
    """A reranker that scores no pair."""

    def score(self, pairs: Iterable[Pair]) -> Iterator[Relevance]:
        return (Relevance(pair.id, None, "the server read 3 tokens where 4 were sent") for pair in pairs)


class Broken(Favourite):
    """A reranker that raises an error that no engine should."""

    error: Any = None

    def score(self, pairs: Iterable[Pair]) -> Iterator[Relevance]:
        next(iter(pairs))
        raise self.error


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    questions = [query("q1", "화면 밝기 메뉴", "b_1"), query("q2", "화면 밝기 메뉴 조절", "b_1")]
    folder = tmp_path_factory.mktemp("reranked")
    platform = Platform.of(folder, [pages("a_1", "a_2"), pages("b_1", "b_2", first=2)], questions)
    platform.engines["recognition"] = Typist(texts=TEXTS)
    platform.make(*SEARCHED, "corpus_image_embeddings")
    return Prepared(platform)


@pytest.fixture
def platform(prepared: Prepared) -> Platform:
    Favourite.asked.clear()
    return prepared.renewed()


def reranking(platform: Platform, engine: Reranker) -> Reranking | None:
    return reranking_of(engine, platform.store, Corpus(home=str(platform.home)))


def searched(platform: Platform, engine: Reranker, **options: Any) -> Searcher:
    embedding = platform.resources()["embedding"]
    shards = ["shard_00", "shard_01"]
    folder = platform.home / "search"
    return Searcher(platform.store, shards, embedding, "mine", folder, reranking=reranking(platform, engine), **options)


QUESTION = "화면 밝기 메뉴"


def test_the_first_pages_are_in_the_order_of_the_reranker(platform: Platform):
    search = searched(platform, Favourite(sees="text"))
    fused = search.search(QUESTION, mode=Mode.FUSION)
    assert fused.hits[0].page.page_id == "a_1"
    assert Favourite.asked == []
    answer = search.search(QUESTION, mode=Mode.RERANKED)
    assert (answer.mode, answer.hits[0].page.page_id) == (Mode.RERANKED, "b_1")
    assert answer.hits[0].score == pytest.approx(0.9)
    assert {hit.page.page_id for hit in answer.hits} == {hit.page.page_id for hit in fused.hits}
    # Pages with equal scores keep their order, and repeating the question scores nothing again.
    rest = [hit.page.page_id for hit in fused.hits if hit.page.page_id != "b_1"]
    assert [hit.page.page_id for hit in answer.hits[1:]] == rest
    before = len(Favourite.asked)
    assert search.search(QUESTION, mode=Mode.RERANKED).hits == answer.hits
    assert len(Favourite.asked) == before


def test_only_the_first_are_scored(platform: Platform):
    answer = searched(platform, Favourite(sees="text", depth=1)).search(QUESTION, mode=Mode.RERANKED)
    assert len(Favourite.asked) == 1
    assert answer.hits[0].page.page_id == "a_1"


@pytest.mark.parametrize("sees", ["image", "both"])
def test_it_sees_the_picture_of_the_page_as_it_was_read(platform: Platform, sees: Any):
    searched(platform, Favourite(sees=sees)).search(QUESTION, mode=Mode.RERANKED)
    with Corpus(home=str(platform.home)).reader("shard_00") as reader:
        row = platform.rows("raw_pages")["a_1"]
        picture = bytes(reader.page("a_1", row["page_idx"], row["sha256"]).data)
    seen = [pair for pair in Favourite.asked if pair.picture == picture]
    assert seen
    assert all(bool(pair.text) == (sees == "both") for pair in seen)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        (Favourite(sees="text", fault="no external server serves m"), "no external server serves m"),
        (Wordless(sees="text"), "the server read 3 tokens where 4 were sent"),
        (Favourite(sees="text", hangs=HANG_SECONDS, search_seconds=0.05), "no scores within 0 s"),
        (Broken(sees="text", error=ConnectionRefusedError("refused")), "ConnectionRefusedError: refused"),
        (Broken(sees="text", error=BrokenProcessPool("killed\nby 9")), "BrokenProcessPool: killed"),
        (Broken(sees="text", error=KeyError("pair")), "KeyError: 'pair'"),
    ],
)
def test_a_search_goes_on_without_it_and_says_so(platform: Platform, engine: Reranker, says: str):
    search = searched(platform, engine)
    started = time.monotonic()
    answer = search.search(QUESTION, mode=Mode.RERANKED)
    assert time.monotonic() - started < HANG_SECONDS / 2
    assert [hit.page.page_id for hit in answer.hits] == [
        hit.page.page_id for hit in search.search(QUESTION, mode=Mode.FUSION).hits
    ]
    assert (answer.mode, answer.notes[-1]) == (Mode.FUSION, f"the pages are not reranked: {says}")
    if says.startswith("no scores"):
        assert search.search(QUESTION, mode=Mode.RERANKED).notes[-1].endswith("it still works on another question")


def test_a_search_that_gets_no_thread_for_it_goes_on_and_the_next_one_is_reranked(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    search = searched(platform, Favourite(sees="text"))
    found = search.search(QUESTION, mode=Mode.FUSION).hits
    no_thread = Mock(side_effect=RuntimeError("can't start new thread"))
    with monkeypatch.context() as full:
        full.setattr("threading.Thread.start", no_thread)
        answer = search.search(QUESTION, mode=Mode.RERANKED)
    assert (answer.hits, answer.notes[-1]) == (found, "the pages are not reranked: can't start new thread")
    assert search.search(QUESTION, mode=Mode.RERANKED).mode is Mode.RERANKED


def test_a_search_by_words_alone_that_it_fails_is_named_so(platform: Platform):
    engine = reranking(platform, Favourite(sees="text", fault="no server"))
    alone = Searcher(platform.store, ["shard_00", "shard_01"], None, "none", platform.home / "search", reranking=engine)
    answer = alone.search(QUESTION, mode=Mode.RERANKED)
    assert answer.hits == alone.search(QUESTION, mode=Mode.BM25).hits
    assert (answer.mode, answer.notes[-1]) == (Mode.BM25, "the pages are not reranked: no server")


def test_a_search_takes_it_where_it_measured_better(platform: Platform):
    engine = Favourite(sees="text")
    for scores, best in (
        ({"fusion": 0.5, "reranked": 0.6}, Mode.RERANKED),
        ({"fusion": 0.5, "reranked": 0.5}, Mode.FUSION),
        ({"fusion": 0.7, "reranked": 0.6}, Mode.FUSION),
        ({}, Mode.FUSION),
    ):
        search = searched(platform, engine, scores=lambda scores=scores: ModeScores(scores, 9))
        assert search.search(QUESTION).mode is best
    # Without a reranker, the mode is not offered.
    assert Mode.RERANKED not in searched(platform, NoReranking()).choices


def test_it_is_measured_with_and_without_and_never_twice(platform: Platform):
    keys = ["shard_00", "shard_01"]
    corpus = SearchedCorpus(platform.store, keys, ["text"], platform.resources()["embedding"])
    engine = Favourite(sees="text")
    measured = measure(platform.store, corpus, reranking=reranking(platform, engine))
    found = headline(measured.scores)
    assert found["reranked"]["recall@1"] == 1
    assert found["fusion"]["recall@1"] < 1
    rows = [row for row in measured.scores.to_pylist() if row["retriever"] == "reranked"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    pairs = len(Favourite.asked)
    # After another release of a library, scores are computed again, but no pair is scored again.
    HISTORY.write_scores(platform.store, RETRIEVAL_SCORES.empty_table(), "other", "", {})
    again = measure(platform.store, corpus, reranking=reranking(platform, engine))
    assert again.computed
    assert again.scores.equals(measured.scores)
    assert len(Favourite.asked) == pairs
    # Measurements with each engine and without one have different inputs.
    other = Favourite(sees="text", word="덮개")
    assert len({inputs_of(corpus), *(inputs_of(corpus, reranking(platform, each)) for each in (engine, other))}) == 3
    measure(platform.store, corpus, reranking=reranking(platform, other))
    assert len(Favourite.asked) == 2 * pairs


def test_the_asset_measures_it(tmp_path: Path, prepared: Prepared):
    platform = prepared.renewed()
    platform.engines["reranking"] = Favourite(sees="text")
    assert platform.run("retrieval_scores", last="shard_01").success
    scores = platform.store.read("retrieval_scores", "all")
    assert "reranked" in scores["retriever"].to_pylist()
