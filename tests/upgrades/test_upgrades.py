"""A night requests exactly what a change made stale, once."""

import shutil
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Layout
from kopub.pages.page import Page
from kopub.release.local import LocalRelease
from kopub.tables.graph import GRAPH
from tests.doubles.engines import OneRegionLayout, SlowReader, UnitEmbedder
from tests.support.dagster.nights import SCORES, Nights, Requested
from tests.support.harness import Platform, Prepared
from tests.support.sources.corpora import page_image, pages, query

SHARDS = [pages("a_1", "a_2", "a_3"), pages("b_1", "b_2")]
QUERIES = [query("q1", "첫 쪽은 무엇인가?", "a_2"), query("q2", "둘째 문서는?", "b_1")]
BOTH: Set[str | None] = {"shard_00", "shard_01"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return two shards with all assets made."""
    platform = Platform.of(tmp_path_factory.mktemp("upgrades") / "home", SHARDS, QUERIES)
    assert platform.run(last="shard_01").success
    return Prepared(platform)


@pytest.fixture
def platform(built: Prepared) -> Platform:
    """Return the built platform, whose engines are its configuration."""
    return built.renewed()


@pytest.fixture
def nights(platform: Platform) -> Nights:
    """Return nights whose sensor has already evaluated once."""
    nights = Nights(platform)
    assert nights.tick(0) == {}
    return nights


def of(shards: Set[str | None], *assets: str) -> Requested:
    return dict.fromkeys(assets, shards)


class HalfPageLayout(OneRegionLayout):
    """A layout model that finds only half of each region's height."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.half_page", {1: "a double"})

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for layout in super().detect(pages):
            (x1, y1, x2, y2) = layout.regions[0].bbox
            yield replace(layout, regions=(replace(layout.regions[0], bbox=(x1, y1, x2, y2 / 2)),))


def same_boxes(platform: Platform) -> None:
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), revision="r2")


def other_boxes(platform: Platform) -> None:
    platform.engines["layout"] = HalfPageLayout(diary=str(platform.home / "layout.diary"))


def other_reader(platform: Platform, **fields: Any) -> None:
    diary = str(platform.home / "recognition.diary")
    platform.engines["recognition"] = SlowReader(diary=diary, prompt="say", **fields)


def other_embedder(platform: Platform) -> None:
    platform.engines["embedding"] = UnitEmbedder(dim=8)


def other_page(platform: Platform) -> None:
    platform.reindex([[("a_1", page_image(99)), *SHARDS[0][1:]], SHARDS[1]], QUERIES)


def other_query(platform: Platform) -> None:
    platform.reindex(SHARDS, [QUERIES[0], query("q2", "셋째 문서는?", "b_1")])


READING = ("ocr_results", "parsed_texts", "corpus_text_embeddings")
VECTORS = ("corpus_image_embeddings", "corpus_text_embeddings", "query_embeddings")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "requested", "released"),
    [
        (lambda platform: None, {}, set()),
        (same_boxes, of(BOTH, "layout_regions", *READING), set()),
        (other_boxes, of(BOTH, "layout_regions", *READING), BOTH),
        (other_reader, of(BOTH, *READING), BOTH),
        (other_embedder, of(BOTH, *VECTORS), BOTH),
        (
            other_page,
            of({"shard_00"}, "raw_pages", "layout_regions", *READING, "corpus_image_embeddings"),
            {"shard_00"},
        ),
        (other_query, of({"shard_01"}, "query_embeddings"), {"shard_01"}),
    ],
    ids=["nothing", "same boxes", "other boxes", "reading", "embedding", "page", "query"],
)
def test_a_night_requests_what_a_change_makes_stale_once(
    platform: Platform, nights: Nights, change: Any, requested: Requested, released: Set[str | None]
):
    change(platform)
    assert nights.tick(1.9) == {}
    assert nights.tick(2.1) == requested
    assert nights.tick(2.2) == {}
    nights.make(requested)
    expected = [SCORES] if requested else []
    assert nights.aftermath(3) == ([*expected, {"hf_release": released}] if released else expected)
    assert nights.tick(26.1) == {}


@pytest.mark.parametrize(
    ("asset", "requested"),
    [
        ("ocr_results", of(BOTH, *READING)),
        ("parsed_texts", of(BOTH, "parsed_texts", "corpus_text_embeddings")),
    ],
)
def test_another_version_of_the_code_is_a_change(
    platform: Platform, nights: Nights, monkeypatch: pytest.MonkeyPatch, asset: str, requested: Requested
):
    steps = GRAPH.by_name[asset].code_version.steps
    newer = CodeVersion(asset, {**steps, len(steps) + 1: "rows split at wide gaps"})
    monkeypatch.setattr(GRAPH.by_name[asset], "code_version", newer)
    assert nights.tick(2.1) == requested


def test_a_model_that_finds_the_same_boxes_leaves_the_tables_below_as_they_are(platform: Platform, nights: Nights):
    def below() -> dict[Path, bytes]:
        return {path: path.read_bytes() for asset in READING for path in (platform.home / "store" / asset).iterdir()}

    before = below()
    same_boxes(platform)
    nights.make(nights.tick(2.1))
    assert sorted(platform.diary("layout").pages) == sorted(2 * ["a_1", "a_2", "a_3", "b_1", "b_2"])
    assert len(platform.diary("recognition").pages) == 5
    assert below() == before


def test_a_reader_that_reads_the_same_stops_at_the_first_table_that_is_unchanged(platform: Platform, nights: Nights):
    def rows() -> dict[str, Any]:
        return {asset: platform.store.read(asset, "shard_00").to_pylist() for asset in READING[1:]}

    def vectors() -> bytes:
        return (platform.home / "store" / READING[2] / "shard_00.parquet").read_bytes()

    before, file = rows(), vectors()
    diary = str(platform.home / "recognition.diary")
    platform.engines["recognition"] = OtherRevision(diary=diary)
    requested = nights.tick(2.1)
    assert requested == of(BOTH, *READING)
    nights.make(requested)
    assert len(platform.diary("recognition").pages) == 10
    assert rows() == before
    assert vectors() == file


class OtherRevision(SlowReader):
    """A model of another revision that reads the same."""

    def weights(self) -> dict[str, str]:
        return {"model": "r2"}


def test_what_was_redone_by_hand_is_not_redone(platform: Platform, nights: Nights):
    other_reader(platform)
    assert platform.run(",".join(READING), "shard_00").success
    assert nights.tick(2.1) == of({"shard_01"}, *READING)


def test_an_asset_redone_by_hand_leaves_those_below_it(platform: Platform, nights: Nights):
    other_reader(platform)
    assert platform.run("ocr_results", last="shard_01").success
    assert nights.tick(2.1) == of(BOTH, *READING[1:])


@pytest.mark.slow
def test_a_failed_run_is_tried_again_the_next_night_and_not_before(platform: Platform, nights: Nights):
    other_reader(platform, die_on="b_2")
    assert nights.tick(2.1) == of(BOTH, *READING)
    assert platform.run(",".join(READING), "shard_00").success
    assert not platform.run(",".join(READING), "shard_01").success
    assert nights.tick(2.2) == nights.tick(5.9) == nights.tick(20) == {}
    assert nights.tick(26.1) == of({"shard_01"}, *READING)


@pytest.mark.slow
def test_a_page_that_failed_and_came_out_later_is_news_to_the_tables_below(platform: Platform, nights: Nights):
    diary = str(platform.home / "layout.diary")
    platform.engines["layout"] = OneRegionLayout(diary=diary, revision="r2", fail_on="b_2")
    nights.make(nights.tick(2.1))
    assert platform.states("parsed_texts", "shard_01")["b_2"] == "failed"
    platform.engines["layout"] = Repaired(diary=diary, revision="r2", fail_on="b_2")
    assert platform.run("layout_regions", "shard_01").success
    assert nights.tick(20) == {}
    requested = nights.tick(26.1)
    assert requested == of({"shard_01"}, *READING)
    nights.make(requested)
    assert platform.states("parsed_texts", "shard_01")["b_2"] == "ok"


class Repaired(OneRegionLayout):
    """The same model, once the cause of its failure is gone."""

    def recipe(self) -> dict[str, Any]:
        return OneRegionLayout(diary=self.diary, revision=self.revision, fail_on=self.fail_on).recipe()

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        yield from OneRegionLayout(diary=self.diary, revision=self.revision).detect(pages)


def test_a_night_that_began_during_a_restart_is_made_up_for(platform: Platform, nights: Nights):
    other_reader(platform)
    assert nights.tick(1.5) == {}
    assert nights.tick(3.5) == of(BOTH, *READING)


def test_a_night_that_was_missed_altogether_waits_for_the_next(platform: Platform, nights: Nights):
    other_reader(platform)
    assert nights.tick(1.5) == nights.tick(9) == nights.tick(23) == {}
    assert nights.tick(26.1) == of(BOTH, *READING)


def test_a_sensor_that_has_forgotten_everything_takes_its_turn(platform: Platform, nights: Nights):
    other_reader(platform)
    assert nights.tick(1.5) == {}
    forgetful = Nights(platform)
    assert forgetful.tick(3) == of(BOTH, *READING)
    assert forgetful.tick(3.1) == {}
    assert Nights(platform).tick(12) == {}


def test_a_shard_that_was_never_made_is_left_alone(tmp_path: Path):
    platform = Platform.of(tmp_path, SHARDS, QUERIES)
    assert platform.run().success
    nights = Nights(platform)
    other_reader(platform)
    assert nights.tick(2.1) == of({"shard_00"}, *READING)


def test_a_shard_that_is_no_longer_there_is_not_made(platform: Platform, nights: Nights):
    shutil.rmtree(platform.home / "source")
    platform.reindex(SHARDS[:1], QUERIES[:1])
    other_reader(platform)
    assert nights.tick(2.1) == of({"shard_00"}, *READING)


def test_a_table_whose_parent_is_gone_waits(platform: Platform, nights: Nights):
    other_reader(platform)
    (platform.home / "store" / "layout_regions" / "shard_01.parquet").unlink()
    assert nights.tick(2.1) == of({"shard_00"}, *READING)


def test_the_release_waits_for_the_last_shard(platform: Platform, nights: Nights):
    other_embedder(platform)
    requested = nights.tick(2.1)
    nights.make({asset: {"shard_00"} for asset in requested})
    assert nights.tick(3) == {}
    nights.make({asset: {"shard_01"} for asset in requested})
    assert nights.aftermath(8) == [SCORES, {"hf_release": BOTH}]


@pytest.mark.slow
def test_scores_that_dagster_s_history_does_not_know_are_measured_before_the_release(platform: Platform):
    platform.recorded = dg.DagsterInstance.ephemeral()
    nights = Nights(platform)
    assert nights.tick(0) == {}
    other_embedder(platform)
    nights.make(nights.tick(2.1))
    assert nights.aftermath(3) == [SCORES, {"hf_release": BOTH}]


@pytest.mark.slow
def test_scores_that_the_corpus_has_no_more_hold_up_no_release(platform: Platform, nights: Nights):
    platform.instance.report_runless_asset_event(dg.AssetMaterialization("ocr_scores"))
    other_embedder(platform)
    nights.make(nights.tick(2.1))
    assert nights.aftermath(3) == [SCORES, {"hf_release": BOTH}]


def test_a_setting_that_changes_the_release_makes_it_again(platform: Platform, nights: Nights):
    folder = platform.home / "release"
    platform.engines["release"] = LocalRelease(folder=str(folder), title="Andere Seiten")
    assert nights.tick(2.1) == {"hf_release": BOTH}
    nights.make({"hf_release": BOTH})
    assert "# Andere Seiten" in (folder / "README.md").read_text()
    assert nights.tick(2.2) == nights.tick(26.1) == {}


def test_an_upgrade_that_is_taken_back_computes_nothing(platform: Platform, nights: Nights):
    other_reader(platform)
    nights.make(nights.tick(2.1))
    read = len(platform.diary("recognition").pages)
    del platform.engines["recognition"]
    assert nights.tick(20) == {}
    requested = nights.tick(26.1)
    assert requested == of(BOTH, *READING)
    nights.make(requested)
    assert len(platform.diary("recognition").pages) == read
    assert platform.rows("parsed_texts")["a_1"]["text"] == "read a_1"
