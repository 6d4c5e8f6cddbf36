"""The ranking of pages, the search filter, and the floor of a good match."""

import json
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest

from kopub.embedding.base import Embedding
from kopub.embedding.hashed import HashedEmbedder
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import DEFAULT_TASKS, Layout, Region
from kopub.pages.page import Page
from kopub.search import morphemes
from kopub.search.answer import CannotSearch, as_json
from kopub.search.measuring import SearchedCorpus, measure
from kopub.search.metrics import MeasuredScores
from kopub.search.options import NOTHING, Mode, ModeScores, Where, best_mode
from kopub.search.ranking import Bm25
from kopub.search.searcher import EVERYWHERE, Searcher
from kopub.search.vectors import ShardVectors, Vectors, known_floor
from kopub.states import State
from kopub.store.table_source import CorpusCheck
from tests.cli.test_cli import run
from tests.search.test_search import TEXTS, TwoWayEmbedder, Typist, made, searcher, vector_table
from tests.support.harness import Platform
from tests.support.sources.corpora import pages, query

SEARCHED = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_text_embeddings", "query_embeddings")


class Kinds(LayoutDetector):
    """A detector of one region a page, with the label given for the page."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.kinds", {1: "a double"})
    labels: dict[str, str]

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for page in pages:
            label = self.labels.get(page.page_id, "text")
            region = Region(0, label, DEFAULT_TASKS[label], 0.9, (0.0, 0.0, 160.0, 220.0))
            yield Layout(page.page_id, State.OK, None, (region,))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return made(tmp_path_factory.mktemp("modes"))


def found(platform: Platform, question: str, mode: Mode = Mode.BM25, where: Where = EVERYWHERE) -> list[str]:
    return [hit.page.page_id for hit in searcher(platform).search(question, mode=mode, where=where).hits]


def test_bm25_finds_pages_by_their_words_and_no_other(platform: Platform):
    answer = searcher(platform).search("밝기 덮개", mode=Mode.BM25)
    assert {hit.page.page_id for hit in answer.hits} == {"a_1", "a_2"}
    assert (answer.mode, answer.searched) == (Mode.BM25, 3)
    assert found(platform, "무지개") == []


def test_the_scores_of_bm25_are_those_that_are_measured(platform: Platform):
    """The command and `retrieval_scores` use the same index."""
    bm25, ids = Bm25(), [page_id for page_id, text in TEXTS.items() if text]
    for at, tokens in enumerate(morphemes.tokens(TEXTS[page_id] for page_id in ids)):
        bm25.add(at, tokens)
    asked = next(morphemes.query_tokens(["화면을 다시 시작"]))
    expected = {ids[at]: score for at, score in enumerate(bm25.index().scores(asked).tolist()) if score}
    answer = searcher(platform).search("화면을 다시 시작", mode=Mode.BM25)
    assert {hit.page.page_id: hit.score for hit in answer.hits} == pytest.approx(expected)
    assert answer.hits[0].page.page_id == "b_1"


def test_the_fusion_is_of_the_words_and_the_vectors(platform: Platform):
    asked = "공유기 화면"
    ranked = {mode: found(platform, asked, mode) for mode in (Mode.BM25, Mode.TEXT)}
    fused = {hit.page.page_id: hit.score for hit in searcher(platform).search(asked, mode=Mode.FUSION).hits}
    for page, score in fused.items():
        assert score == pytest.approx(sum(1 / (61 + order.index(page)) for order in ranked.values() if page in order))


def test_all_vectors_of_an_engine_that_has_one_kind_are_that_kind(platform: Platform):
    assert searcher(platform).search("화면", mode=Mode.VECTORS).mode is Mode.TEXT


def test_the_best_measured_mode_is_taken():
    choices = (Mode.FUSION, Mode.BM25, Mode.TEXT)
    assert best_mode(ModeScores({"bm25": 0.9, "fusion": 0.8, "image": 1.0}, 16), choices) == (
        Mode.BM25,
        "best of 16 questions, nDCG@10 0.900",
    )
    assert best_mode(ModeScores({"bm25": 0.9, "fusion": 0.9}, 16), choices)[0] is Mode.FUSION
    assert best_mode(NOTHING, choices) == (Mode.FUSION, "nothing was measured on these tables")


def test_what_was_measured_on_other_rows_decides_nothing(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")], [query("q1", "밝기 조절", "a_1")])
    platform.engines = {"embedding": HashedEmbedder(), "recognition": Typist(texts=TEXTS)}
    platform.make(*SEARCHED)
    store, keys = platform.store, ["shard_00"]
    check = CorpusCheck(store, lambda asset, shard: dict(_sources(platform))[asset, shard])
    scores = MeasuredScores(store, keys, check)
    assert scores() == NOTHING
    measure(store, SearchedCorpus(store, keys, ["text"], HashedEmbedder()))
    assert (dict(scores().ndcg), scores().questions) == ({"text": 1.0, "bm25": 1.0, "fusion": 1.0}, 1)
    by_itself = Searcher(store, keys, HashedEmbedder(), "cpu", tmp_path / "search", scores=scores)
    assert by_itself.search("밝기").chosen == "best of 1 questions, nDCG@10 1.000"
    platform.engines["recognition"] = Typist(texts={**TEXTS, "a_1": "달력"})
    platform.make(*SEARCHED)
    assert scores() == NOTHING
    assert by_itself.search("달력").chosen == "nothing was measured on these tables"


def _sources(platform: Platform) -> Iterator[tuple[tuple[str, str], str]]:
    for asset in SEARCHED:
        for root, content in json.loads(platform.store.metadata(asset, "shard_00")["sources"]):
            yield (root, "shard_00"), content


def test_what_is_made_is_searched(tmp_path: Path):
    platform = made(tmp_path, select="raw_pages,layout_regions,ocr_results,parsed_texts")
    answer = searcher(platform).search("밝기", mode=Mode.AUTO)
    assert (answer.mode, answer.hits[0].page.page_id) == (Mode.BM25, "a_1")
    with pytest.raises(CannotSearch, match="no text vectors yet: run `kopub run`"):
        searcher(platform).search("밝기", mode=Mode.FUSION)


def test_without_an_engine_words_are_searched(platform: Platform):
    alone = Searcher(platform.store, ["shard_00", "shard_01"], None, "none", platform.home / "search")
    assert alone.choices == (Mode.BM25,)
    assert alone.search("밝기").hits[0].page.page_id == "a_1"
    with pytest.raises(CannotSearch, match="cannot search by text; choose bm25"):
        alone.search("밝기", mode=Mode.TEXT)


def test_a_part_of_the_corpus_is_searched(platform: Platform):
    for mode in (Mode.BM25, Mode.TEXT, Mode.FUSION):
        assert set(found(platform, "화면 공유기 덮개", mode, Where(documents=frozenset({"a"})))) == {"a_1", "a_2"}
        assert set(found(platform, "화면 공유기 덮개", mode, Where(shards=frozenset({"shard_01"})))) == {"b_1"}
        for where, count in ((Where(), 3), (Where(documents=frozenset({"b"})), 1), (Where(has_table=True), 0)):
            assert searcher(platform).search("화면", mode=mode, where=where).searched == count
    with pytest.raises(CannotSearch, match=r"there is no document 'aa'$"):
        found(platform, "화면", where=Where(documents=frozenset({"aa"})))
    with pytest.raises(CannotSearch, match="there is no shard shard_0; did you mean shard_00 or shard_01"):
        found(platform, "화면", where=Where(shards=frozenset({"shard_0"})))


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_document_is_found_by_its_name_in_single_letters(tmp_path: Path, form: Literal["NFC", "NFD"]):
    page_id = unicodedata.normalize(form, "보고서_1")
    platform = Platform.of(tmp_path, [pages(page_id)], [])
    platform.engines["recognition"] = Typist(texts={page_id: "화면 밝기"})
    platform.make(*SEARCHED[:4])
    alone = Searcher(platform.store, ["shard_00"], None, "none", tmp_path / "search")
    for name in (page_id.removesuffix("_1"), unicodedata.normalize("NFD", "보고서")):
        (hit,) = alone.search("화면", where=Where(documents=frozenset({name}))).hits
        assert hit.page.page_id == page_id


def test_pages_with_a_table_or_a_figure(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1", first=2)], [])
    layout = Kinds(labels={"a_2": "table", "b_1": "chart"})
    platform.engines = {"embedding": HashedEmbedder(), "recognition": Typist(texts=TEXTS), "layout": layout}
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    assert found(platform, "화면 공유기 덮개", where=Where(has_table=True)) == ["a_2"]
    assert found(platform, "화면 공유기 덮개", where=Where(has_figure=True)) == ["b_1"]
    assert found(platform, "화면 공유기 덮개", where=Where(has_table=True, has_figure=True)) == []


def test_pages_of_a_script(platform: Platform):
    assert set(found(platform, "화면 공유기 덮개", where=Where(scripts=frozenset({"HANGUL"})))) == {"a_1", "a_2", "b_1"}
    with pytest.raises(CannotSearch, match="no page whose main script is 'HANGULL'; did you mean HANGUL"):
        found(platform, "화면", where=Where(scripts=frozenset({"HANGULL"})))


def test_a_question_of_another_topic_matches_nothing_well(platform: Platform):
    for mode in (Mode.BM25, Mode.FUSION):
        assert searcher(platform).search("화면 밝기를 조절하려면?", mode=mode).matches_well is True
        assert searcher(platform).search("김치찌개와 화면", mode=mode).matches_well is True
        assert searcher(platform).search("김치찌개 끓이는 법", mode=mode).matches_well is False
    assert searcher(platform).search("김치찌개 끓이는 법", mode=Mode.TEXT).matches_well is None


def test_vectors_that_know_more_than_words_are_judged_by_the_corpus_own_questions(tmp_path: Path):
    """Twenty questions that match their pages set the floor: a distant question has no answer."""
    asked = [query(f"q{at}", TEXTS["a_1"], "a_1") for at in range(20)]
    platform = Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1", "b_2", first=2)], asked)
    knowing = type("Knowing", (TwoWayEmbedder,), {"is_lexical": False})(says=TEXTS)
    platform.engines = {"embedding": knowing, "recognition": Typist(texts=TEXTS)}
    platform.make(*SEARCHED)
    for mode in (Mode.TEXT, Mode.FUSION):
        judged = searcher(platform, knowing)
        assert judged.search(TEXTS["a_1"], mode=mode).matches_well is True
        assert judged.search("김치찌개 끓이는 법", mode=mode).matches_well is False
    for shard in ("shard_00", "shard_01"):
        (tmp_path / "store" / "query_embeddings" / f"{shard}.parquet").unlink(missing_ok=True)
    assert searcher(platform, knowing).search("김치찌개 끓이는 법", mode=Mode.FUSION).matches_well is None


def test_a_twentieth_of_the_known_questions_is_below_the_floor():
    vectors = Vectors([ShardVectors("s", "v1", vector_table("s", np.eye(4)))])
    near = [(np.array([at / 100, 0, 0, 0]), "s_0") for at in range(101)]
    assert known_floor(near, vectors) == pytest.approx(0.05)
    assert known_floor(near[:19], vectors) is None
    assert known_floor([*near[:19], (np.ones(4), "elsewhere")], vectors) is None


def test_the_passage_names_its_region(platform: Platform):
    (hit, *_) = as_json(searcher(platform).search("밝기", mode=Mode.BM25))["hits"]
    assert hit["passage_region"] == hit["regions"][0]["index"] == 0
    assert len(hit["regions"][0]["bbox_2d"]) == 4


@pytest.mark.services
def test_the_command_shows_pages_and_passages_and_no_scores(platform: Platform):
    shown = run(platform.home, "kopub", "search", "밝기", "--document", "a", "--shards", "shard_00", "--top", "1")
    passage, page = shown.stdout.splitlines()
    assert passage.startswith(" 1. 화면 밝기를")
    assert page.strip() == "a_1  a, page 1  words in region 0"
    assert "ranked by" not in shown.stdout
    weak = run(platform.home, "kopub", "search", "김치찌개").stdout
    assert weak.startswith("Nothing matches well.")
    assert "weak match" in weak
    nothing = run(platform.home, "kopub", "search", "김치찌개", "--mode", "bm25", "--json")
    assert (json.loads(nothing.stdout)["matches_well"], json.loads(nothing.stdout)["hits"]) == (False, [])


class Deaf(HashedEmbedder):
    """An embedder that fails when it is asked to embed a question."""

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        raise AssertionError("the engine was asked")


def test_a_search_by_words_asks_nothing_of_the_engine(platform: Platform):
    assert searcher(platform, Deaf()).search("밝기", mode=Mode.BM25).hits
