"""Search by meaning without a GPU: passages, their table and release, and the fusion with words."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kopub
from benchmarks.made_up_vectors import column, noise, unit
from kopub.embedding.hashed import HashedEmbedder
from kopub.embedding.sentence import SentenceEmbedder, passages
from kopub.search.morphemes import tokens
from kopub.search.options import Mode
from kopub.search.searcher import Searcher
from kopub.search.vectors import ShardVectors, Vectors
from tests.search.test_search import TEXTS, Typist
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

BEFORE = "raw_pages,layout_regions,ocr_results,parsed_texts,corpus_image_embeddings,corpus_text_embeddings"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    home = tmp_path_factory.mktemp("meaning")
    platform = Platform.of(home, [pages("a_1", "a_2"), pages("b_1", "b_2", first=2)], [])
    platform.engines = {"embedding": HashedEmbedder(), "recognition": Typist(texts=TEXTS)}
    platform.make(*BEFORE.split(","))
    platform.engines["embedding"] = SentenceEmbedder()
    assert platform.run("passage_embeddings,query_embeddings,hf_release", last="shard_01").success
    return platform


def searcher(platform: Platform) -> Searcher:
    return Searcher(platform.store, ["shard_00", "shard_01"], SentenceEmbedder(), "cpu", platform.home / "search")


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("모니터를 더 환하게 하고 싶어요", "a_1"),
        ("How do I make the screen brighter?", "a_1"),
        ("the printer has a paper jam", "a_2"),
        ("インターネットにつながらない", "b_1"),
    ],
)
def test_a_question_in_other_words_or_another_language_finds_its_page(platform: Platform, question: str, page: str):
    answer = searcher(platform).search(question)
    best = answer.hits[0]
    assert (best.page.page_id, answer.mode, "meaning" in best.by) == (page, Mode.FUSION, True)
    assert best.match.passage.text == TEXTS[page]
    assert best.match.regions == (0,)


def test_a_question_that_no_page_answers_matches_nothing_well(platform: Platform):
    assert searcher(platform).search("프린터에 종이가 걸렸어요").matches_well
    assert searcher(platform).search("김치찌개 맛있게 끓이는 법").matches_well is False


def test_a_home_of_hashed_vectors_gets_passages_and_nothing_else_anew(platform: Platform):
    recipes = HashedEmbedder().recipe(), SentenceEmbedder().recipe()
    assert recipes[0] == recipes[1] != SentenceEmbedder().passage_recipe()
    assert platform.states("passage_embeddings", "shard_01") == {"b_1": "ok", "b_2": "blank"}
    (passage,) = platform.rows("passage_embeddings")["a_1"]["passages"]
    assert TEXTS["a_1"][passage["start"] : passage["end"]] == TEXTS["a_1"]
    vector = SentenceEmbedder().embed_questions([TEXTS["a_1"]])[0]
    assert sum(a * b for a, b in zip(passage["vector"], vector.tolist(), strict=True)) > 0.9


def test_a_release_is_searched_by_meaning(platform: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    corpus = kopub.open(platform.settings.release.root)
    assert [hit.page.id for hit in corpus.search("How do I make the screen brighter?", limit=1)] == ["a_1"]


@pytest.mark.parametrize("count", [1, 7, 40, 500])
def test_a_page_is_as_near_as_its_nearest_passage_however_many_are_asked_for(count: int):
    chance = np.random.default_rng(0)
    shards, near = [], {}
    question = unit(noise(chance, 1, 64))[0].astype(np.float16)
    for shard, rows in (("shard_00", 300), ("shard_01", 3), ("shard_02", 900)):
        # Most passages near the question are of a few pages, so that the nearest rows are not enough.
        pages = np.sort((chance.random(rows) ** 3 * rows / 7).astype(int))
        vectors = unit(noise(chance, rows, 64) + (pages % 5 == 0)[:, None] * question).astype(np.float16)
        ids = [f"{shard}_{page}" for page in pages]
        places = pa.array(range(rows), pa.int32())
        table = pa.table({"page_id": ids, "start": places, "end": places, "vector": column(vectors)})
        shards.append(ShardVectors(shard, "1", table))
        for page, score in zip(ids, vectors.astype(np.float32) @ question.astype(np.float32), strict=True):
            near[page] = max(near.get(page, -2.0), float(score))
    found = Vectors(shards).nearest(question.astype(np.float32), count)
    assert [each.score for each in found] == pytest.approx(sorted(near.values(), reverse=True)[:count], abs=2e-3)
    assert all(near[each.page_id] == pytest.approx(each.score, abs=2e-3) for each in found)
    assert len({each.page_id for each in found}) == len(found) == min(count, len(near))
    assert Vectors(shards).count() == len(near)


@pytest.mark.parametrize(
    "text", ["", " \n ", "한 문장이다.", "가나다 " * 400, "가" * 1000, "첫 줄\n\n둘째 줄. 끝?\n" * 40]
)
def test_passages_are_all_of_a_text_in_order(text: str):
    spans = list(passages(text))
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(text[start:end].strip() and end - start <= 160 for start, end in spans)


def test_a_compound_is_found_whole_and_in_its_parts_and_a_number_without_separators():
    (words,) = tokens(["정보공개청구 2,310건을 처리했다"])
    assert {"정보", "공개", "청구", "정보공개청구", "2310"} <= set(words)
