"""All assets run through Dagster: states, bad input, partial failure, resumption."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from kopub.errors import EngineError, UndecodableImage
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Layout
from kopub.pages import inspection
from kopub.pages.indexing import index
from kopub.pages.page import Page
from kopub.pages.page_reader import ImageReader
from kopub.states import State
from kopub.store.table_store import ShardStore
from kopub.tables import pages_and_layout
from kopub.tables.pages_and_layout import RawPages
from tests.doubles.engines import OneRegionLayout, SlowReader, UnitEmbedder
from tests.doubles.full_disk import FullDisk
from tests.search.test_search import Typist
from tests.support.harness import STANDARD, Platform, Prepared, failure
from tests.support.sources.corpora import cut, page_image, pages, query, write_corpus

TWO_SHARDS = [pages("a_1", "a_2", "a_3"), pages("b_1", "b_2")]
TEXTS = "raw_pages,layout_regions,ocr_results,parsed_texts"
QUERIES = [query("q1", "첫 쪽은 무엇인가?", "a_2"), query("q2", "둘째 문서는?", "b_1"), query("q3", "답이 없는 질문")]


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform.of(tmp_path, TWO_SHARDS, QUERIES)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    platform = Platform.of(tmp_path_factory.mktemp("materialize") / "home", TWO_SHARDS, QUERIES)
    assert platform.run(last="shard_01").success
    return Prepared(platform)


@pytest.fixture
def built(prepared: Prepared) -> Platform:
    """Return a platform where every asset has both of its shards."""
    return prepared.renewed()


def computed(result: dg.ExecuteInProcessResult, asset: str) -> dict[str | None, Any]:
    return {
        made.partition: made.metadata["computed"].value
        for made in result.asset_materializations_for_node(asset)
        if made.asset_key == dg.AssetKey(asset)
    }


def test_an_engine_gives_back_what_it_holds_when_its_step_ends(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    pages_done: list[int] = []
    done = platform.diary("layout")
    monkeypatch.setattr(OneRegionLayout, "release", lambda engine: pages_done.append(len(done.pages)))
    assert platform.run("raw_pages,layout_regions", last="shard_01").success
    assert pages_done == [5, 5], "after all shards of the step, and at the end of the run"


def test_one_partition_key_builds_all_assets(platform: Platform):
    assert platform.run().success
    assert {asset for asset, _ in platform.tables()} == set(STANDARD)
    assert platform.states("parsed_texts") == dict.fromkeys(["a_1", "a_2", "a_3"], State.OK)
    assert platform.rows("parsed_texts")["a_1"]["text"] == "read a_1"
    assert platform.rows("ocr_results")["a_2"]["page_idx"] == 1


def test_a_range_is_one_run_over_the_same_code(platform: Platform):
    result = platform.run(TEXTS, last="shard_01")
    assert result.success
    assert computed(result, "ocr_results") == {"shard_00": 3, "shard_01": 2}
    assert list(platform.rows("ocr_results", "shard_01")) == ["b_1", "b_2"]


def test_the_labels_of_a_shard_are_counted_in_the_ui(platform: Platform):
    (made,) = platform.run("raw_pages,layout_regions").asset_materializations_for_node("layout_regions")
    assert made.metadata["regions_by_label"].value == {"text": 3}
    assert made.metadata["regions"].value == 3


def test_a_query_belongs_to_the_shard_of_its_page(built: Platform):
    queries = {shard: built.rows("query_embeddings", shard) for shard in ("shard_00", "shard_01")}
    assert {"q1"} <= set(queries["shard_00"])
    assert {"q2"} <= set(queries["shard_01"])
    assert sum(map(len, queries.values())) == 3


def test_a_second_run_computes_nothing_and_writes_nothing(platform: Platform):
    platform.run(last="shard_01")
    files = {path: path.stat().st_mtime_ns for path in (platform.home / "store").rglob("*.parquet")}
    result = platform.run(last="shard_01")
    assert result.success
    for asset in STANDARD:
        assert set(computed(result, asset).values()) == {0}, asset
    assert {path: path.stat().st_mtime_ns for path in (platform.home / "store").rglob("*.parquet")} == files
    assert sorted(platform.diary("recognition").pages) == ["a_1", "a_2", "a_3", "b_1", "b_2"]


def test_shards_without_anything_to_compute_are_one_line(built: Platform):
    again = built.run("raw_pages", last="shard_01")
    lines = [entry.user_message for entry in built.instance.all_logs(again.run_id) if "shard" in entry.user_message]
    assert [line for line in lines if line.startswith("raw_pages")] == ["raw_pages: nothing to compute in 2 shards"]


def test_only_what_changed_is_made_again(platform: Platform):
    platform.run(TEXTS)
    changed = [*pages("a_0"), ("a_1", page_image(99)), *TWO_SHARDS[0][1:]]
    platform.reindex([changed, TWO_SHARDS[1]], QUERIES)
    assert platform.run(TEXTS).success
    assert sorted(platform.diary("recognition").pages) == ["a_0", "a_1", "a_1", "a_2", "a_3"]
    assert [row["page_idx"] for row in platform.rows("ocr_results").values()] == [0, 1, 2, 3]


@pytest.mark.slow
def test_the_data_version_follows_the_recipes(built: Platform):
    def versions() -> dict[str, str]:
        result = built.run()
        return {
            asset: (made.tags or {})["dagster/data_version"]
            for asset in STANDARD
            for made in result.asset_materializations_for_node(asset)
        }

    first, again = versions(), versions()
    assert first == again
    built.engines["recognition"] = SlowReader(diary=str(built.home / "recognition.diary"), prompt="say")
    other = versions()
    assert {asset for asset in first if first[asset] != other[asset]} == {
        "ocr_results",
        "parsed_texts",
        "corpus_text_embeddings",
        "hf_release",
    }


def test_a_field_set_in_the_launchpad_counts_for_that_run(platform: Platform):
    assert platform.run(TEXTS, launchpad={"recognition": {"prompt": "say"}, "gates": {"max_empty_jump": 0.5}}).success
    assert platform.rows("parsed_texts")["a_1"]["text"] == "say a_1"
    platform.run(TEXTS)
    assert platform.rows("parsed_texts")["a_1"]["text"] == "read a_1"


def test_a_page_that_failed_is_tried_again_and_the_others_are_not(platform: Platform):
    broken = OneRegionLayout(diary=str(platform.home / "layout.diary"), fail_on="a_2")
    platform.engines["layout"] = broken
    assert platform.run(f"{TEXTS},corpus_text_embeddings").success
    assert platform.states("parsed_texts")["a_2"] == State.FAILED
    assert platform.rows("corpus_text_embeddings")["a_2"]["vector"] is None
    assert platform.rows("corpus_text_embeddings")["a_2"]["reason"] == "asked to fail"
    platform.run(f"{TEXTS},corpus_text_embeddings")
    assert sorted(platform.diary("layout").pages) == ["a_1", "a_2", "a_2", "a_3"]


def test_a_page_the_engine_forgets_is_a_failure_not_a_gap(platform: Platform):
    platform.engines["layout"] = OneRegionLayout(diary=str(platform.home / "layout.diary"), forget="a_2")
    result = platform.run(TEXTS)
    assert result.success
    row = platform.rows("layout_regions")["a_2"]
    assert (row["state"], row["reason"]) == (State.FAILED, "the engine ended without an answer")
    lost = [e for e in result.get_asset_check_evaluations() if e.check_name == "nothing_lost" and not e.passed]
    assert {e.asset_key.path[-1] for e in lost} >= {"layout_regions", "ocr_results"}


class EchoLayout(OneRegionLayout):
    """A layout that answers again for its first page; `under` is the id that it says the second time."""

    under: str

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for at, found in enumerate(super().detect(pages)):
            yield found
            if not at:
                yield replace(found, page_id=self.under)


@pytest.mark.parametrize("page_id", ["a_1", "z_9"])
def test_an_answer_that_nobody_asked_for_stops_the_engine_by_name(platform: Platform, page_id: str):
    platform.engines["layout"] = EchoLayout(diary=str(platform.home / "layout.diary"), under=page_id)
    with pytest.raises(EngineError, match=f"^the engine answered twice, or unasked, for '{page_id}'; this is a bug"):
        platform.make("raw_pages", "layout_regions")
    assert not platform.store.has("layout_regions", "shard_00")


def test_a_shard_that_cannot_be_made_does_not_stop_the_others(platform: Platform):
    platform.run("raw_pages", last="shard_01")
    (platform.home / "store" / "raw_pages" / "shard_00.parquet").unlink()
    result = platform.run("layout_regions", last="shard_01")
    assert not result.success
    assert failure(result) == "shard_00: raw_pages of shard_00 has not been made yet: `kopub run` makes it"
    assert platform.store.has("layout_regions", "shard_01")
    assert platform.instance.get_materialized_partitions(dg.AssetKey("layout_regions")) == {"shard_01"}


def test_an_engine_that_breaks_keeps_what_it_finished(platform: Platform):
    diary = str(platform.home / "recognition.diary")
    platform.engines["recognition"] = SlowReader(diary=diary, die_on="a_3")
    result = platform.run(TEXTS)
    assert failure(result) == "shard_00: the engine is out of order; repair it and run again"
    platform.engines["recognition"] = SlowReader(diary=diary)
    assert platform.run(TEXTS).success
    assert platform.diary("recognition").pages == ["a_1", "a_2", "a_3"]


@pytest.mark.slow
def test_an_upgrade_that_is_given_up_leaves_what_was_there(platform: Platform):
    platform.run(TEXTS)
    diary = str(platform.home / "recognition.diary")
    platform.engines["recognition"] = SlowReader(diary=diary, prompt="say", die_on="a_3")
    assert not platform.run(TEXTS).success
    del platform.engines["recognition"]
    before = platform.diary("recognition").pages
    assert platform.run(TEXTS).success
    assert platform.diary("recognition").pages == before
    assert platform.rows("parsed_texts")["a_1"]["text"] == "read a_1"


@pytest.mark.slow
def test_a_page_that_is_no_longer_quarantined_is_made_everywhere(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    def refuse(data: memoryview) -> None:
        raise UndecodableImage("refused by an older release")

    with monkeypatch.context() as older:
        older.setattr(inspection, "inspect", refuse)
        older.setattr(RawPages, "code_version", CodeVersion("raw_pages", {1: "the first release"}))
        assert platform.run(f"{TEXTS},corpus_image_embeddings").success
    assert set(platform.states("corpus_image_embeddings").values()) == {State.QUARANTINED}
    assert platform.run(f"{TEXTS},corpus_image_embeddings").success
    for asset in ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_image_embeddings"):
        assert set(platform.states(asset).values()) == {State.OK}, asset


def test_a_detector_that_finds_nothing_stops_the_run_and_the_old_table_stays(platform: Platform):
    platform.run("raw_pages,layout_regions")
    before = platform.store.read("layout_regions", "shard_00")
    diary = str(platform.home / "layout.diary")
    platform.engines["layout"] = OneRegionLayout(diary=diary, revision="r2", empty=True)
    result = platform.run("raw_pages,layout_regions")
    assert not result.success
    assert "no page with ink has a region" in failure(result)
    assert platform.store.read("layout_regions", "shard_00").equals(before)
    failed = [e for e in result.get_asset_check_evaluations() if not e.passed]
    assert "pages_have_regions" in {e.check_name for e in failed}
    assert not [e for e in result.get_asset_materialization_events() if e.asset_key == dg.AssetKey("layout_regions")]


def test_unsound_vectors_are_not_published(platform: Platform):
    platform.engines["embedding"] = UnitEmbedder(spoil=True)
    result = platform.run()
    assert not result.success
    assert "3 vectors hold NaN or are not of norm 1" in failure(result)
    assert not platform.store.has("corpus_text_embeddings", "shard_00")
    assert not platform.store.has("hf_release", "shard_00")


def test_pages_that_cannot_be_used_are_quarantined_and_the_others_come_out(tmp_path: Path):
    unusable = [
        ("empty_1", b"", "no bytes"),
        ("gif_1", b"GIF89a" + bytes(30), "not a PNG, JPEG, WEBP, TIFF image"),
        ("truncated_1", page_image(1)[:200], "damaged"),
        ("null_1", None, "no image bytes"),
        ("../../escape", page_image(1), "has a slash"),
        ("nul\0byte", page_image(1), "cannot be printed"),
        ("long" * 75, page_image(1), "longer than 200 bytes"),
        ("a_1", page_image(1), "an earlier page has the id 'a_1' already"),
    ]
    bad = [(page_id, data) for page_id, data, _ in unusable]
    platform = Platform.of(tmp_path / "home", [[*pages("a_1"), *bad, *pages("a_3")]])
    before = {path for path in tmp_path.rglob("*") if "home" not in path.parts}
    assert platform.run(f"{TEXTS},corpus_image_embeddings").success
    for asset in ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_image_embeddings"):
        first, *lost, last = platform.rows(asset).values()
        assert (first["state"], last["state"]) == (State.OK, State.OK), asset
        for row, (page_id, _, reason) in zip(lost, unusable, strict=True):
            assert row["state"] == State.QUARANTINED, (asset, page_id)
            assert reason in row["reason"], (asset, page_id)
    assert {path for path in tmp_path.rglob("*") if "home" not in path.parts} == before


def test_what_is_left_of_a_damaged_picture_is_read_and_its_page_is_partial(tmp_path: Path):
    whole = page_image(7, (1240, 1754), "JPEG")
    damaged = whole[: len(whole) * 2 // 3] + b"\xff\xd9"
    platform = Platform.of(tmp_path / "home", [[("a_1", whole), ("a_2", damaged)]])
    assert platform.run(f"{TEXTS},corpus_image_embeddings").success
    for asset in ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_image_embeddings"):
        sound, partial = platform.rows(asset).values()
        assert (sound["state"], partial["state"]) == (State.OK, State.PARTIAL), asset
        assert partial["reason"].startswith("the image is damaged: Corrupt JPEG data"), asset


def test_a_damaged_page_without_text_says_why(tmp_path: Path):
    whole = page_image(7, (1240, 1754), "JPEG")
    damaged = whole[: len(whole) * 2 // 3] + b"\xff\xd9"
    platform = Platform.of(tmp_path / "home", [[("a_1", damaged)]])
    platform.engines["recognition"] = Typist(texts={"a_1": ""})
    assert platform.run(f"{TEXTS},corpus_text_embeddings").success
    assert platform.states("ocr_results") == {"a_1": State.PARTIAL}
    for asset in ("parsed_texts", "corpus_text_embeddings"):
        row = platform.rows(asset)["a_1"]
        assert row["state"] == State.BLANK, asset
        assert row["reason"].startswith("the image is damaged"), asset


@pytest.mark.parametrize("became", ["cut off", "other pages"])
def test_a_file_that_is_not_the_indexed_one_is_not_read(tmp_path: Path, became: str):
    platform = Platform(tmp_path)
    index(str(write_corpus(tmp_path / "source", [pages("a_1", "a_2", "a_3"), pages("b_1")])), tmp_path)
    file = tmp_path / "source" / "corpus" / "data-0.arrow"
    whole = file.read_bytes()
    if became == "cut off":
        cut(file, len(whole) * 3 // 5)
    else:
        # Other content of the same size.
        image = pages("a_1", "a_2", "a_3")[1][1] or b""
        file.write_bytes(whole.replace(image, image[:100] + image[:99:-1]))
        assert file.stat().st_size == len(whole)
    result = platform.run(TEXTS, last="shard_01")
    line = f"{file} changed since it was indexed: run `kopub index` again, or bring the file back"
    assert failure(result) == f"shard_00: {line}"
    assert set(platform.store.published("raw_pages")) == {"shard_01"}
    file.write_bytes(whole)
    assert platform.run(TEXTS, last="shard_01").success
    assert platform.states("ocr_results") == dict.fromkeys(("a_1", "a_2", "a_3"), State.OK)


@pytest.mark.parametrize("damage", ["flipped bit", "edited"])
def test_a_damaged_table_is_named_and_made_again(platform: Platform, damage: str, capfd: pytest.CaptureFixture[str]):
    assert platform.run(TEXTS).success
    path = Path(platform.store.location("ocr_results", "shard_00"))
    if damage == "edited":
        table = pq.read_table(path)
        pq.write_table(table.slice(0, 1), path)
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 8] ^= 1
        path.write_bytes(content)
    result = platform.run(TEXTS)
    assert result.success
    assert computed(result, "ocr_results") == {"shard_00": 3}
    assert computed(result, "parsed_texts") == {"shard_00": 0}
    assert set(platform.states("ocr_results").values()) == {State.OK}
    assert f"{path} is damaged" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("place", [0.5, 1.0], ids=["middle", "footer"])
def test_one_run_makes_every_damaged_table_again(built: Platform, place: float):
    """Scores and lists of released files are tables too."""
    paths = sorted((built.home / "store").glob("[a-z]*/*.parquet"))
    assert {"retrieval_scores", "hf_release", "raw_pages"} <= {path.parent.name for path in paths}
    for path in paths:
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 1
        path.write_bytes(content)
    assert built.run(last="shard_01").success
    for path in paths:
        built.store.read(path.parent.name, path.stem)


def test_a_full_disk_is_one_line_and_what_was_finished_stays(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FullDisk, "no_room_for", "ocr_results")
    platform.engines["store"] = ShardStore(url="fulldisk://platform")
    result = platform.run(TEXTS)
    assert not result.success
    assert failure(result).startswith("shard_00: the disk is full: ")
    assert "\n" not in failure(result)
    assert platform.engines["store"].has("layout_regions", "shard_00")
    assert not platform.engines["store"].has("ocr_results", "shard_00")


@pytest.mark.slow
def test_a_corpus_without_queries_has_empty_query_tables(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1")])
    assert platform.run().success
    assert platform.rows("query_embeddings") == {}


def test_pages_are_read_by_other_threads_than_the_one_that_takes_their_regions(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    readers: set[threading.Thread] = set()
    page = ImageReader.page

    def noted(reader: ImageReader, *arguments: Any) -> Page:
        readers.add(threading.current_thread())
        return page(reader, *arguments)

    assert platform.run("raw_pages", last="shard_01").success
    monkeypatch.setattr(ImageReader, "page", noted)
    # The preview of the finished table would read a page too.
    monkeypatch.setattr(pages_and_layout, "first_page", lambda *_: dg.MetadataValue.md(""))
    assert platform.run("layout_regions", last="shard_01").success
    assert readers
    assert threading.current_thread() not in readers


def test_no_more_threads_check_pages_than_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    platform = Platform.of(tmp_path, [pages(*(f"p_{number}" for number in range(24)))])
    working, most = set[int](), 0
    at_once, inspect = threading.Barrier(inspection.CHECKERS), inspection.inspect

    def together(data: bytes) -> Any:
        nonlocal most
        working.add(threading.get_ident())
        most = max(most, len(working))
        at_once.wait(timeout=60)
        working.discard(threading.get_ident())
        return inspect(data)

    monkeypatch.setattr(inspection, "inspect", together)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(4 * inspection.CHECKERS))
    assert platform.run("raw_pages").success
    assert most == inspection.CHECKERS
