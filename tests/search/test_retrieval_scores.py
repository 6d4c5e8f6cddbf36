"""The asset `retrieval_scores`: what it measures, what it compares with, and what it leaves out."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest

from kopub.cli.score_lines import retrieval_lines
from kopub.embedding.base import Embedder, Embedding
from kopub.fingerprints import CodeVersion
from kopub.pages.page import Page
from kopub.release.gates import Gates
from kopub.search.metrics import significant_drops
from kopub.search.options import Mode
from kopub.search.searcher import Searcher
from kopub.states import State
from kopub.store.table_store import ShardStore
from kopub_assets.running.execution import failures_of
from tests.doubles.engines import OneRegionLayout, SlowReader
from tests.doubles.full_disk import FullDisk
from tests.support.harness import Platform, Prepared
from tests.support.sources.corpora import pages, query

IDS = [f"p_{number}" for number in range(12)]
UPSTREAM = "*retrieval_scores"
QUERIES = [query(f"q{number}", f"find {page_id}", page_id) for number, page_id in enumerate(IDS)]


class NamingEmbedder(Embedder):
    """An embedder with one axis per page; queries from `lost` on miss their pages."""

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.naming", {1: "a double"})
    dim: int = 16
    lost: int = 99
    silent: str = ""

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        return (self._made(page.page_id, page.page_id) for page in pages)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return (self._made(text_id, text) for text_id, text in texts)

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        for query_id, text in queries:
            number = int(text.rpartition("_")[2])
            yield self._made(query_id, text if number < self.lost else "p_15")

    def _made(self, item_id: str, named: str) -> Embedding:
        if item_id == self.silent:
            return Embedding(item_id, State.FAILED, reason="asked to fail")
        return Embedding(item_id, State.OK, np.eye(self.dim, dtype=np.float32)[int(named.rpartition("_")[2])])


class TextOnly(NamingEmbedder):
    queries_match: ClassVar[frozenset[str]] = frozenset({"text"})


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return _indexed(tmp_path)


def _indexed(home: Path) -> Platform:
    platform = Platform.of(home, [pages(*IDS[:6]), pages(*IDS[6:])], QUERIES)
    platform.engines["embedding"] = NamingEmbedder()
    return platform


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    platform = _indexed(tmp_path_factory.mktemp("scores") / "home")
    assert platform.run(UPSTREAM, last="shard_01").success
    return Prepared(platform)


@pytest.fixture
def measured(prepared: Prepared) -> Platform:
    """Return a platform on which retrieval was measured on both shards."""
    return prepared.renewed()


def _metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    assert result.success
    (event,) = result.asset_materializations_for_node("retrieval_scores")
    return {name: value.value for name, value in event.metadata.items()}


def _check(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    return next(check for check in result.get_asset_check_evaluations() if check.check_name == "no_significant_drop")


def _scores(platform: Platform) -> pa.Table:
    return platform.store.read("retrieval_scores", "all")


def _values(platform: Platform, metric: str = "recall@1", **named: str) -> dict[str, float]:
    wanted = {"convention": "first", "query_type": "all", "metric": metric, **named}
    return {row["retriever"]: row["value"] for row in _scores(platform).to_pylist() if wanted.items() <= row.items()}


def test_every_retriever_is_scored_before_the_release(platform: Platform):
    result = platform.run(last="shard_01")
    metadata = _metadata(result)
    assert _values(platform) == {"image": 1.0, "text": 1.0, "bm25": 1.0, "fusion": 1.0}
    assert metadata["text_ndcg_at_10"] == metadata["image_mrr"] == 1.0
    assert (metadata["queries"], metadata["pages"], metadata["shards"], metadata["computed"]) == (12, 12, 2, 12)
    assert len(metadata["scores"].records) == _scores(platform).num_rows == 4 * 2 * 2 * 6
    finished = [event.step_key for event in result.all_events if event.is_step_success]
    assert finished.index("query_embeddings") < finished.index("retrieval_scores") < finished.index("hf_release")
    assert _check(result).passed


@pytest.mark.parametrize("full", ["retrieval_scores/", "retrieval_runs/"])
def test_a_full_disk_is_one_line_and_the_next_run_makes_the_scores(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, full: str
):
    platform.engines["store"] = ShardStore(url=f"fulldisk://scores{len(full)}")
    with monkeypatch.context() as disk:
        disk.setattr(FullDisk, "no_room_for", full)
        result = platform.run(UPSTREAM)
    assert not result.success
    (line,) = failures_of(result)
    assert line.startswith("retrieval_scores: the disk is full: ")
    assert full in line
    assert platform.run("retrieval_scores", first=None).success


@pytest.mark.slow
def test_scores_of_before_a_shard_was_made_are_not_those_of_today(platform: Platform):
    def told() -> Sequence[str]:
        return retrieval_lines(platform.settings, lambda asset, shard: True)[0]

    assert platform.run(UPSTREAM).success
    of_one_shard = told()
    assert platform.run("*corpus_image_embeddings,*corpus_text_embeddings", first="shard_01").success
    assert told() == of_one_shard
    assert platform.run("query_embeddings", first="shard_01").success
    assert told() == ["finding  not measured on the tables as they are now: kopub run measures it"]
    assert platform.run("retrieval_scores", first=None).success
    assert told()[0].startswith("finding  by ")


def test_images_that_queries_cannot_be_compared_with_are_no_retriever(platform: Platform):
    platform.engines["embedding"] = TextOnly()
    platform.run(UPSTREAM, last="shard_01")
    assert set(_values(platform)) == {"text", "bm25", "fusion"}


def test_both_conventions_and_queries_that_nothing_here_answers(platform: Platform, tmp_path: Path):
    asked = [
        query("several", "find p_3", "p_1", "p_3"),
        query("elsewhere", "find p_2", "gone_1", "p_2"),
        query("nowhere", "find p_2", "gone_1"),
        query("nothing", "find p_2"),
    ]
    platform.reindex([pages(*IDS[:6]), pages(*IDS[6:])], asked)
    metadata = _metadata(platform.run(UPSTREAM, last="shard_01"))
    assert (metadata["queries"], metadata["queries_left_out"]) == (2, 2)
    assert "2 queries left out" in metadata["measured"]
    assert _values(platform)["text"] == 0.0
    assert _values(platform, convention="any")["text"] == 1.0
    counted = {row["convention"]: row["queries"] for row in _scores(platform).to_pylist()}
    assert counted == {"first": 1, "any": 2}


@pytest.mark.slow
def test_a_second_run_computes_nothing_and_keeps_the_comparison(measured: Platform):
    measured.engines["embedding"] = NamingEmbedder(lost=2)
    measured.run(UPSTREAM, last="shard_01")
    before = _scores(measured)
    result = measured.run("retrieval_scores", first=None)
    assert _metadata(result)["computed"] == 0
    assert _scores(measured).equals(before)
    # Two queries find their page, and a third's page comes first among pages that all tie.
    assert _values(measured)["text"] == pytest.approx(3 / 12)
    assert not _check(result).passed


@pytest.mark.slow
def test_a_drop_stays_one_until_it_is_mended_or_accepted(measured: Platform):
    for lost in (2, 1):
        measured.engines["embedding"] = NamingEmbedder(lost=lost)
        result = measured.run(UPSTREAM, last="shard_01")
        check = _check(result)
        assert result.success
        assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert "text finds less: ndcg@10 fell from 1.000" in str(check.description)
        assert {drop.split()[0] for drop in significant_drops(_scores(measured))} == {"text", "image", "fusion"}
    measured.engines["gates"] = Gates(override="the old vectors were a leak")
    assert not _check(measured.run("retrieval_scores", first=None)).passed
    measured.engines["gates"] = Gates()
    measured.engines["embedding"] = NamingEmbedder(lost=0)
    assert _check(measured.run(UPSTREAM, last="shard_01")).passed
    measured.engines["embedding"] = NamingEmbedder()
    assert _check(measured.run(UPSTREAM, last="shard_01")).passed
    row = next(row for row in _scores(measured).to_pylist() if row["retriever"] == "text")
    assert row["change"] == pytest.approx(11 / 12)


@pytest.mark.slow
def test_a_larger_corpus_is_not_a_drop(platform: Platform):
    first = _metadata(platform.run(UPSTREAM))
    assert (first["pages"], first["shards"], first["queries"]) == (6, 1, 6)
    assert "shard_01 left out: no parsed_texts, corpus_image_embeddings" in first["measured"]
    platform.engines["embedding"] = NamingEmbedder(lost=0)
    second = _metadata(platform.run(UPSTREAM, last="shard_01"))
    assert second["compared"] == "not compared: the run before had 6 pages, of which 6 are here"
    assert set(_scores(platform)["change"].to_pylist()) == {None}


def test_rows_that_are_not_ok_are_left_out(platform: Platform):
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), fail_on="p_1")
    platform.engines["embedding"] = NamingEmbedder(silent="q3")
    metadata = _metadata(platform.run(UPSTREAM, last="shard_01"))
    assert (metadata["pages"], metadata["queries"], metadata["queries_left_out"]) == (12, 11, 1)
    # The unread page still counts as relevant: it is found by its picture, not by its text.
    assert _values(platform, "recall@20") == {"image": 1.0, "fusion": 1.0} | dict.fromkeys(["text", "bm25"], 10 / 11)


def test_a_shard_of_another_width_is_left_out(measured: Platform):
    measured.engines["embedding"] = NamingEmbedder(dim=32)
    metadata = _metadata(measured.run(UPSTREAM))
    assert metadata["shards"] == 1
    assert "shard_01 left out: corpus_image_embeddings has vectors of 16 dimensions" in metadata["measured"]


def test_shards_of_different_vectors_are_named(measured: Platform):
    measured.engines["embedding"] = NamingEmbedder(lost=50)
    assert "query_embeddings: made by different recipes" in _metadata(measured.run(UPSTREAM))["measured"]


def test_texts_that_did_not_change_are_not_tokenised_again(measured: Platform):
    files = [measured.home / "store" / "retrieval_tokens" / f"shard_0{at}.parquet" for at in (0, 1)]
    before = [file.stat().st_mtime_ns for file in files]
    measured.engines["recognition"] = SlowReader(diary=str(measured.home / "again"), prompt="see")
    metadata = _metadata(measured.run(UPSTREAM))
    assert metadata["computed"] == 12
    after = [file.stat().st_mtime_ns for file in files]
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_words_of_texts_that_changed_since_they_were_measured_are_found_anew(measured: Platform):
    measured.engines["recognition"] = SlowReader(diary=str(measured.home / "again"), prompt="see")
    measured.make("ocr_results", "parsed_texts")
    found = Searcher(measured.store, ["shard_00"], None, "cpu", measured.home / "search", mode=Mode.BM25).search("see")
    assert len(found.hits) == len(IDS[:6])


def test_another_tokenizer_is_measured_anew(measured: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kopub.search.words.tokenizer", lambda: {"tokenizer": "another"})
    assert _metadata(measured.run("retrieval_scores", first=None))["computed"] == 12


def test_a_run_of_another_schema_is_none(measured: Platform):
    measured.store.write("retrieval_runs", "now", pa.table({"query_id": ["q0"]}), {"inputs": "old", "accepted": "yes"})
    measured.store.write("retrieval_scores", "all", pa.table({"metric": ["old"]}), {"inputs": "old"})
    metadata = _metadata(measured.run("retrieval_scores", first=None))
    assert (metadata["computed"], metadata["compared"].partition(":")[0]) == (12, "the first of its kind")
    assert _values(measured)["text"] == 1.0


def shown_scores(platform: Platform) -> tuple[Sequence[str], list[str]]:
    return retrieval_lines(platform.settings, lambda asset, shard: True)


def test_a_corpus_without_queries_is_explained(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("p_1")])
    result = platform.run(UPSTREAM)
    assert _metadata(result)["compared"].startswith("nothing to measure")
    assert _check(result).passed
    assert _scores(platform).num_rows == 0
    assert shown_scores(platform) == ([], [])


@pytest.mark.slow
def test_status_shows_the_headline(platform: Platform):
    assert shown_scores(platform) == ([], [])
    platform.run(UPSTREAM, last="shard_01")
    perfect = "nDCG@10 1.000, recall@1 1.000, recall@5 1.000"
    shown = [f"finding  by {retriever}: {perfect}" for retriever in ("image", "text", "bm25", "fusion")]
    assert shown_scores(platform) == (shown, [])
    platform.engines["embedding"] = NamingEmbedder(lost=0)
    platform.run(UPSTREAM, last="shard_01")
    assert len(shown_scores(platform)[1]) == 3
