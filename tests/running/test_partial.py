"""A page with an unread region: the rest is used, the loss counted everywhere."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from kopub.cli.commands.status import status_values
from kopub.embedding.hashed import HashedEmbedder
from kopub.search.searcher import Searcher
from kopub.states import TRIES_AGAIN, State
from kopub.tables.asset import RETRY_PARTIAL_TAG
from kopub.tables.rows import RowSpec, assemble
from tests.doubles.engines import OneRegionLayout, SlowReader
from tests.doubles.witness_engines import WitnessReader
from tests.support.harness import Platform
from tests.support.sources.corpora import pages, query

TEXTS = "raw_pages,layout_regions,ocr_results,parsed_texts"
PAGES_AND_VECTORS = f"{TEXTS},corpus_image_embeddings,corpus_text_embeddings"
READ = ("ocr_results", "parsed_texts", "corpus_text_embeddings")


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    """Return a platform with two regions a page, where the second of a_2 is unreadable."""
    platform = Platform.of(tmp_path, [pages("a_1", "a_2", "a_3"), pages("b_1")])
    platform.engines["layout"] = OneRegionLayout(diary=str(tmp_path / "layout.diary"), regions=2)
    platform.engines["recognition"] = reader(platform, lose="a_2")
    return platform


def reader(platform: Platform, **fields: Any) -> SlowReader:
    return SlowReader(diary=str(platform.home / "recognition.diary"), **fields)


def rows_to_try_again(platform: Platform) -> int:
    return status_values(platform.settings)["to_do"]["failed"]


def test_what_was_read_flows_on_and_the_page_is_partial_in_every_table(platform: Platform):
    assert platform.run(PAGES_AND_VECTORS).success
    for asset in READ:
        assert platform.states(asset) == {"a_1": State.OK, "a_2": State.PARTIAL, "a_3": State.OK}, asset
        assert platform.rows(asset)["a_2"]["reason"] == "1 of 2 regions could not be read; region 1: asked to fail"
    assert platform.rows("parsed_texts")["a_2"]["text"] == "read a_2"
    assert platform.rows("corpus_text_embeddings")["a_2"]["vector"] is not None
    assert platform.states("corpus_image_embeddings")["a_2"] == State.OK


def test_what_was_read_is_found_and_measured(platform: Platform):
    platform.reindex([pages("a_1", "a_2", "a_3"), pages("b_1")], [query("q1", "read a_2", "a_2")])
    platform.engines["embedding"] = HashedEmbedder()
    platform.make(*READ, "raw_pages", "layout_regions", "query_embeddings")
    searcher = Searcher(platform.store, ["shard_00"], HashedEmbedder(), "cpu", platform.home / "search")
    hit = searcher.search("a_2").hits[0]
    assert (hit.page.page_id, hit.match.regions) == ("a_2", (0,)), "the region that was lost says nothing"
    assert platform.run("retrieval_scores", first=None).success
    scores = platform.store.read("retrieval_scores", "all").to_pylist()
    found = {row["retriever"]: row["value"] for row in scores if row["metric"] == "recall@1"}
    assert found == dict.fromkeys(("text", "bm25", "fusion"), 1.0)


def test_a_partial_page_is_read_again_only_when_that_is_asked_for(platform: Platform):
    assert platform.run(PAGES_AND_VECTORS).success
    platform.engines["recognition"] = reader(platform)
    assert platform.run(PAGES_AND_VECTORS).success
    assert sorted(platform.diary("recognition").pages) == ["a_1", "a_2", "a_3"]
    assert platform.states("parsed_texts")["a_2"] == State.PARTIAL
    assert platform.run(PAGES_AND_VECTORS, tags={RETRY_PARTIAL_TAG: "true"}).success
    assert sorted(platform.diary("recognition").pages) == ["a_1", "a_2", "a_2", "a_3"]
    for asset in READ:
        assert set(platform.states(asset).values()) == {State.OK}, asset
    assert platform.rows("parsed_texts")["a_2"]["text"] == "read a_2\n\nread a_2"


def test_a_region_lost_to_a_limit_of_time_is_tried_again_without_being_asked_for(platform: Platform):
    platform.engines["recognition"] = reader(platform, lose="a_2", why=f"too slow: {TRIES_AGAIN}")
    assert platform.run(TEXTS).success
    assert platform.states("parsed_texts")["a_2"] == State.PARTIAL
    assert rows_to_try_again(platform) == 1
    platform.engines["recognition"] = reader(platform)
    assert platform.run(TEXTS).success
    assert sorted(platform.diary("recognition").pages) == ["a_1", "a_2", "a_2", "a_3"]
    assert set(platform.states("parsed_texts").values()) == {State.OK}
    assert rows_to_try_again(platform) == 0


@pytest.mark.slow
def test_another_try_that_loses_the_region_again_leaves_the_page_as_it_was(platform: Platform):
    assert platform.run(TEXTS).success
    before = platform.rows("parsed_texts")
    assert platform.run(TEXTS, tags={RETRY_PARTIAL_TAG: "true"}).success
    assert platform.rows("parsed_texts") == before


@pytest.mark.slow
def test_another_try_that_reads_nothing_leaves_what_was_read(platform: Platform):
    platform.engines["recognition"] = WitnessReader(lose="a_2")
    assert platform.run(TEXTS).success
    before = platform.rows("ocr_results")
    assert before["a_2"]["state"] == State.PARTIAL
    platform.engines["recognition"] = WitnessReader(fail_on="a_2")
    assert platform.run(TEXTS, tags={RETRY_PARTIAL_TAG: "true"}).success
    assert platform.rows("ocr_results") == before
    platform.engines["recognition"] = WitnessReader()
    assert platform.run(TEXTS, tags={RETRY_PARTIAL_TAG: "true"}).success
    assert set(platform.states("ocr_results").values()) == {State.OK}


def test_another_try_without_an_answer_leaves_what_was_read():
    page, regions = RowSpec("a", [], {}), [[{"state": "ok"}, {"state": "failed"}], None]
    tries = {"page_id": ["a"] * 2, "fingerprint": [page.key[1]] * 2, "state": ["partial", "failed"]}
    known = pa.table({**tries, "regions": regions})
    assert assemble([page], known, "page_id", "regions")["state"].to_pylist() == ["partial"]


def test_another_try_that_reads_less_leaves_what_was_read(platform: Platform):
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), regions=3)
    platform.engines["recognition"] = WitnessReader(lose="a_2")
    assert platform.run(TEXTS).success
    before = platform.rows("ocr_results")
    platform.engines["recognition"] = WitnessReader(lose="a_2", losses=2)
    assert platform.run(TEXTS, tags={RETRY_PARTIAL_TAG: "true"}).success
    assert platform.rows("ocr_results") == before


@pytest.mark.slow
def test_another_try_that_reads_more_takes_the_place_of_what_was_read(platform: Platform):
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), regions=3)
    platform.engines["recognition"] = WitnessReader(lose="a_2", losses=2)
    assert platform.run(TEXTS).success
    platform.engines["recognition"] = WitnessReader(lose="a_2")
    assert platform.run(TEXTS, tags={RETRY_PARTIAL_TAG: "true"}).success
    (page,) = [row for row in platform.rows("ocr_results").values() if row["page_id"] == "a_2"]
    assert [region["state"] for region in page["regions"]] == [State.OK, State.OK, State.FAILED]


def nothing_lost(result: dg.ExecuteInProcessResult, asset: str) -> dg.AssetCheckEvaluation:
    (found,) = [
        check
        for check in result.get_asset_check_evaluations()
        if (check.check_name, check.asset_key) == ("nothing_lost", dg.AssetKey(asset))
    ]
    return found


@pytest.mark.slow
def test_a_loss_stays_in_the_check_when_another_shard_is_made_without_one(platform: Platform):
    first = nothing_lost(platform.run(TEXTS), "ocr_results")
    second = nothing_lost(platform.run(TEXTS, first="shard_01"), "ocr_results")
    assert (first.passed, second.passed) == (False, False)
    assert "a_2 partial: 1 of 2 regions could not be read" in (second.description or "")
    figures = {name: value.value for name, value in second.metadata.items()}
    assert (figures["rows"], figures["rows_ok"], figures["rows_partial"], figures["shards"]) == (4, 3, 1, 2)
    assert figures["lost_share"] == 0.0
    platform.engines["recognition"] = reader(platform)
    assert nothing_lost(platform.run(TEXTS, tags={RETRY_PARTIAL_TAG: "true"}), "ocr_results").passed


@pytest.mark.slow
def test_a_closed_gate_stays_in_its_check_and_stops_no_other_shard(platform: Platform):
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), empty=True)
    assert not platform.run(TEXTS).success
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), regions=2)
    result = platform.run(TEXTS, first="shard_01")
    assert result.success
    (check,) = [c for c in result.get_asset_check_evaluations() if c.check_name == "pages_have_regions"]
    assert not check.passed
    assert "shard_00: no page with ink has a region" in (check.description or "")
    result = platform.run(TEXTS)
    assert result.success
    assert all(c.passed for c in result.get_asset_check_evaluations() if c.check_name == "pages_have_regions")
