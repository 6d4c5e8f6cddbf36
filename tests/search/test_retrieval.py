"""Rankings, metrics and intervals: what `retrieval_scores` is made of."""

import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopub.config.settings import ROOT
from kopub.search import metrics, morphemes
from kopub.search.metrics import METRICS, RUN, compare, headline, headline_changes, score, significant_drops
from kopub.search.ranking import NO_PAGE, Bm25, Ranker, Ranking, fuse
from kopub.search.scores import ALL, ScoredRun, interval
from kopub.store.table_store import ShardStore
from tests.support.installed import imported


@pytest.mark.slow
@given(
    scores=st.lists(st.sampled_from([-1.5, -0.0, 0.0, 1e-7, 0.25, 0.5]), min_size=1, max_size=30),
    portion=st.integers(1, 31),
    depth=st.integers(1, 12),
)
def test_the_best_pages_are_the_same_however_they_are_portioned(scores: list[float], portion: int, depth: int):
    pages = np.arange(len(scores))[::-1]
    best = Ranker(1, depth)
    for start in range(0, len(scores), portion):
        best.add(pages[start : start + portion], np.array([scores[start : start + portion]]))
    by_score_then_id = sorted(zip(scores, pages.tolist(), strict=True), reverse=True)
    # Python's sort treats -0.0 and 0.0 as equal, as the ranking must.
    assert best.ranking()[0][0].tolist() == [page for _, page in by_score_then_id][:depth]


def test_equal_vectors_tie_wherever_they_lie():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(5000, 64)).astype(np.float16)
    vectors[[3, 2047, 2048, 4999]] = vectors[3]
    query = vectors[[3]].astype(np.float64)
    best = Ranker(1, 4)
    best.add_vectors(np.arange(5000), vectors, query)
    assert best.ranking()[0][0].tolist() == [4999, 2048, 2047, 3]


def test_few_equal_vectors_tie_too():
    """Single precision adds up the last vectors of a block in another order."""
    generator = np.random.default_rng(0)
    vectors = np.tile(generator.normal(size=2048).astype(np.float16), (37, 1))
    best = Ranker(3, 37)
    best.add_vectors(np.arange(37), vectors, generator.normal(size=(3, 2048)))
    assert best.ranking()[0].tolist() == [list(range(36, -1, -1))] * 3


def test_a_score_of_minus_zero_ties_with_zero():
    best = Ranker(1, 2)
    best.add(np.array([0, 1]), np.array([[0.0, -0.0]]))
    assert best.ranking()[0].tolist() == [[1, 0]]


def test_the_best_of_several_vectors_of_a_page_counts():
    best = Ranker(1)
    vectors = np.array([[0, 1], [1, 0], [0.75, 0.5]], np.float16)
    best.add_vectors(np.array([0, 0, 1]), vectors, np.array([[1.0, 0.0]]))
    assert best.ranking()[0].tolist() == [[0, 1]]


def test_a_vector_ranking_is_that_of_all_dot_products():
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(300, 32)).astype(np.float16)
    queries = generator.normal(size=(7, 32)).astype(np.float16).astype(np.float64)
    best = Ranker(7, 20)
    for start in range(0, 300, 70):
        best.add_vectors(np.arange(start, min(start + 70, 300)), vectors[start : start + 70], queries)
    expected = np.argsort(-(queries @ vectors.astype(np.float64).T), axis=1)[:, :20]
    assert np.array_equal(best.ranking()[0], expected)


def test_korean_words_are_compared_without_their_particles_and_endings():
    texts = ["학교에서 급식을 먹었습니다.", "학교는 급식이 먹다", "", "２０２４년 GDP 成長"]
    first, second, empty, mixed = morphemes.tokens(texts)
    assert first == second == ["학교", "급식", "먹"]
    assert empty == []
    assert {"2024", "gdp", "成長"} <= set(mixed)


def test_hangul_typed_as_letters_is_the_same_words():
    composed = "학교 급식 예산"
    as_on_a_mac = unicodedata.normalize("NFD", composed)
    assert as_on_a_mac != composed
    (found,) = morphemes.tokens([as_on_a_mac])
    assert found == ["학교", "급식", "예산"]


FORKED = """
import os, signal, sys
from kopub.search.morphemes import tokens

found = next(tokens(["화면 밝기를 조절합니다"]))
for uses in (True, False):
    child = os.fork()
    if not child:
        # Whoever waits for threads that are not there is killed, and says so.
        signal.alarm(30)
        sys.exit(uses and next(tokens(["화면 밝기를 조절합니다"])) != found)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_a_forked_process_finds_words_and_ends() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout.split(), ran.stderr) == (["0", "0"], "")


def test_bm25_finds_pages_with_the_rarer_word_first_and_no_page_without_a_word():
    bm25 = Bm25()
    for page, text in enumerate(["예산 예산 정부", "예산 연구", "", "연구 정부 정책 통계"]):
        bm25.add(page, text.split())
    found = bm25.rank([["통계", "예산"], ["없음"], []]).pages
    assert found[0].tolist() == [3, 0, 1, NO_PAGE]
    assert found[1:].tolist() == [[NO_PAGE] * 4] * 2


def test_bm25_is_the_formula_of_lucene():
    pages = [["a", "b"], ["a", "a", "c", "d"], ["b"]]
    bm25 = Bm25()
    for page, terms in enumerate(pages):
        bm25.add(page, terms)
    average, idf = 7 / 3, np.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    expected = [idf * n / (n + 1.2 * (1 - 0.75 + 0.75 * size / average)) for n, size in ((1, 2), (2, 4))]
    assert bm25.rank([["a"]]).pages[0].tolist() == [*np.argsort(expected)[::-1], NO_PAGE]


@pytest.mark.parametrize("words", [[], [[], []]])
def test_bm25_of_pages_without_words_finds_nothing(words: list[list[str]]):
    bm25 = Bm25()
    for page, tokens in enumerate(words):
        bm25.add(page, tokens)
    assert not np.any(bm25.rank([["a"]]).pages != NO_PAGE)


def test_fusion_is_the_sum_of_reciprocal_ranks():
    first = np.array([[0, 1, 2, NO_PAGE]])
    second = np.array([[2, 3, 0, NO_PAGE]])
    # 0: 1/61 + 1/63, 2: 1/63 + 1/61, which tie; 1: 1/62 and 3: 1/62, which tie too.
    rankings = [
        Ranking(name, pages, np.zeros(pages.shape, np.float32)) for name, pages in (("a", first), ("b", second))
    ]
    assert fuse(rankings, {})[0].tolist()[:4] == [2, 0, 3, 1]
    assert not np.any(fuse(rankings, {})[0][4:] != NO_PAGE)


def test_fusion_with_weights_is_the_sum_of_scores():
    first = Ranking("text", np.array([[0, 1, NO_PAGE]]), np.array([[0.5, 0.4, 0]], np.float32))
    second = Ranking("meaning", np.array([[2, 0, 1]]), np.array([[0.6, 0.1, -0.9]], np.float32))
    # 0: 0.25 + 0.1, 1: 0.2, and nothing from below zero, 2: 0.6.
    assert fuse([first, second], {"text": 0.5, "meaning": 1.0})[0].tolist()[:3] == [2, 0, 1]


def test_scores_of_a_ranking_are_those_that_were_added():
    best = Ranker(1)
    best.add(np.array([4, 7, 9]), np.array([[-0.25, 0.5, -np.inf]]))
    found, scores = best.ranking()
    assert (found.tolist(), scores.tolist()) == ([[7, 4, NO_PAGE]], [[0.5, -0.25, 0.0]])


def test_metrics_by_hand():
    ranking = np.array([[5, 1, 7, NO_PAGE], [2, 3, 4, 1], [NO_PAGE] * 4])
    scores = score(ranking, [[1], [9], [1]])
    assert dict(zip(METRICS, scores[0], strict=True)) == pytest.approx(
        {"recall@1": 0, "recall@5": 1, "recall@10": 1, "recall@20": 1, "ndcg@10": 1 / np.log2(3), "mrr": 0.5}
    )
    assert not scores[1:].any()


def test_with_several_pages_that_answer_one_is_enough_for_recall():
    scores = dict(zip(METRICS, score(np.array([[5, 1, 7]]), [[1, 8]])[0], strict=True))
    assert scores["recall@5"] == 1
    assert scores["ndcg@10"] == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3)))


@pytest.mark.slow
def test_the_scores_are_those_of_trec_eval():
    ir_measures = imported("ir_measures")
    names = ["Success@1", "Success@5", "Success@10", "Success@20", "nDCG@10", "RR"]
    measures = [ir_measures.parse_measure(name) for name in names]
    random = np.random.default_rng(1)
    for depth in (1, 7, 30):
        ranking = np.stack([random.permutation(40)[:depth] for _ in range(100)])
        ranking[::9, depth // 2 :] = NO_PAGE
        relevant = [random.permutation(40)[: 1 + at % 14].tolist() for at in range(100)]
        qrels = {str(at): {str(page): 1 for page in pages} for at, pages in enumerate(relevant)}
        run = {
            str(at): {str(page): float(-place) for place, page in enumerate(pages) if page != NO_PAGE}
            for at, pages in enumerate(ranking.tolist())
        }
        expected = np.zeros((100, len(names)))
        for found in ir_measures.iter_calc(measures, qrels, run):
            expected[int(found.query_id), measures.index(found.measure)] = found.value
        assert score(ranking, relevant) == pytest.approx(expected, abs=1e-12)


def test_an_interval_has_the_width_that_theory_gives_and_is_the_same_each_time():
    values = np.random.default_rng(2).normal(0.5, 0.3, (400, 1))
    low, high = interval(values)
    assert interval(values).tolist() == [low.tolist(), high.tolist()]
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    assert low < values.mean() < high


def _run(first_rank_found: list[bool], retriever: str = "text", kinds: Sequence[str] = "tv") -> pa.Table:
    rows = []
    for convention in ("first", "any"):
        for at, found in enumerate(first_rank_found):
            known = {"retriever": retriever, "convention": convention, "query_id": f"q{at}"}
            values = dict.fromkeys(METRICS, float(found))
            rows.append({**known, "query_type": kinds[at % len(kinds)], **values})
    return pa.Table.from_pylist(rows, RUN)


def _row(table: pa.Table, **named: str) -> dict[str, Any]:
    wanted = {"convention": "first", "query_type": "all", "metric": "ndcg@10", **named}
    return next(row for row in table.to_pylist() if wanted.items() <= row.items())


def test_a_drop_is_significant_when_its_whole_interval_is_below_zero():
    scores = compare(_run([True] * 25 + [False] * 15), _run([True] * 40))
    row = _row(scores)
    assert (row["previous"], row["value"], row["change"], row["dropped"]) == (1.0, 0.625, -0.375, True)
    assert row["change_low"] < -0.375 < row["change_high"] < 0
    (sentence,) = significant_drops(scores)
    assert sentence.startswith("text finds less: ndcg@10 fell from 1.000 by 0.375")
    assert sentence.endswith("over the queries of both runs")


@pytest.mark.parametrize(
    ("now", "before"),
    [
        pytest.param([True] * 39 + [False], [True] * 40, id="one query of forty"),
        pytest.param([False] * 5, [True] * 5, id="too few queries"),
        pytest.param([True] * 35 + [False] * 5, [True] * 40, id="too few that changed"),
        pytest.param([True] * 20 + [False] * 20, [False] * 20 + [True] * 20, id="as many gained as lost"),
        pytest.param([True] * 40, [False] * 40, id="a gain"),
        pytest.param([False] * 9 + [True] * 991, [True] * 1000, id="sure, and too small to matter"),
    ],
)
def test_what_is_no_drop(now: list[bool], before: list[bool]):
    assert not significant_drops(compare(_run(now), _run(before)))


def test_a_change_is_over_the_queries_of_both_runs():
    row = _row(compare(_run([True] * 8 + [False] * 4), _run([True] * 8)))
    assert (row["queries"], row["value"]) == (12, pytest.approx(8 / 12))
    assert (row["previous"], row["change"]) == (1.0, 0.0)


def test_what_moved_is_told_over_the_queries_of_both_runs():
    worse = compare(_run([False] * 40 + [True] * 160), _run([True] * 15 + [False] * 25))
    assert str(headline_changes(worse)[0]) == "text nDCG@10 0.375 to 0.000 (worse)"
    same = compare(_run([False] * 40 + [True] * 160), _run([False] * 40))
    assert str(headline_changes(same)[0]) == "text nDCG@10 0.800 (same)"
    few = compare(_run([True, False, False]), _run([True] * 3))
    assert str(headline_changes(few)[0]) == "text nDCG@10 1.000 to 0.333, not significant with 3 questions"


def test_a_retriever_that_is_new_is_not_compared():
    row = _row(compare(_run([True] * 8, "image"), _run([True] * 8)), retriever="image")
    assert (row["previous"], row["change"], row["change_low"], row["dropped"]) == (None, None, None, False)


def test_a_type_of_queries_that_is_named_all_is_no_second_total():
    scores = compare(_run([True] * 25 + [False] * 15, kinds=["all", "v"]), _run([True] * 40, kinds=["all", "v"]))
    assert len(significant_drops(scores)) == 1
    assert _row(scores)["queries"] == 40
    assert len(scores.filter(pc.field("query_type") == "all")) == 2 * len(METRICS)


def test_scores_by_query_type():
    scores = compare(_run([True, False] * 10), None)
    assert [_row(scores, query_type=kind)["value"] for kind in ("all", "t", "v")] == [0.5, 1.0, 0.0]
    assert [_row(scores, query_type=kind)["queries"] for kind in ("all", "t", "v")] == [20, 10, 10]
    assert headline(scores) == {"text": dict.fromkeys(METRICS, 0.5)}


def _published(store: ShardStore, inputs: str, page_ids: list[str], found: bool = True) -> str:
    metrics.HISTORY.publish(store, ScoredRun(inputs, _run([found] * 8), page_ids), {}, accept=False)
    return store.metadata(metrics.SCORES, ALL)["compared"]


def test_an_accepted_run_that_comes_back_is_not_called_the_first(tmp_path: Path):
    store, page_ids = ShardStore(url=str(tmp_path)), ["a_1"]
    assert _published(store, "good", page_ids).startswith("the first of its kind")
    assert _published(store, "bad", page_ids, found=False) == "compared with run good"
    assert _published(store, "good", page_ids) == "the accepted run again: later runs are compared with it"


SMALL = "not compared: the run before had 1 pages, of which 1 are here"


@pytest.mark.parametrize(
    ("table", "role", "compared"),
    [
        ("retrieval_pages", "before", SMALL),
        ("retrieval_runs", "before", SMALL),
        ("retrieval_pages", "now", SMALL),
        ("retrieval_runs", "now", SMALL),
        ("retrieval_scores", "all", "compared with run large"),
    ],
)
def test_a_writer_that_is_killed_mixes_no_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, role: str, compared: str
):
    store = ShardStore(url=str(tmp_path))
    _published(store, "small", ["p_1"])
    write = ShardStore.write

    def killed(store: ShardStore, asset: str, shard: str, *content: Any) -> None:
        if (asset, shard) == (table, role):
            raise KeyboardInterrupt
        write(store, asset, shard, *content)

    with monkeypatch.context() as patched:
        patched.setattr(ShardStore, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            _published(store, "large", ["p_1", "p_2"])
    assert _published(store, "other", ["p_1", "p_2"]) == compared


def test_only_the_run_of_the_same_inputs_is_accepted(tmp_path: Path):
    store = ShardStore(url=str(tmp_path))
    _published(store, "good", ["p_1"])
    _published(store, "bad", ["p_1"], found=False)
    metrics.HISTORY.accept(store, "good")
    assert _published(store, "other", ["p_1"]) == "compared with run good"
    _published(store, "bad", ["p_1"], found=False)
    metrics.HISTORY.accept(store, "bad")
    assert _published(store, "again", ["p_1"]) == "compared with run bad"
