"""The release folder and the export load, hold everything, and are whole at every moment."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import datasets.config
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from kopub.errors import StoreError
from kopub.release import dataset
from kopub.release.base import ASSETS, PAGE_ASSETS, ReleaseInput
from kopub.release.dataset import write_parquet
from kopub.release.export import export
from kopub.release.files import list_parts
from kopub.release.fitness import fitness, hub_licences
from kopub.release.gates import Gates
from kopub.release.local import LocalRelease
from kopub.release.verify import verify
from kopub.store.schemas import RETRIEVAL_SCORES
from tests.doubles.full_disk import no_room
from tests.support.released import (
    DIM,
    HOSTILE,
    about,
    changed,
    contents,
    front_matter,
    jpeg,
    load,
    page_tables,
    release_of,
    unit,
    without_queries,
)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def test_every_config_loads_with_its_features(tmp_path: Path):
    release_of(tmp_path / "r", page_tables(0), page_tables(1))
    pages, regions, crops = (load(tmp_path / "r", config) for config in ("pages", "regions", "crops"))
    assert pages["page_id"][:4] == ["doc0_1", "doc0_2", "doc0_3", "doc1_1"]
    assert pages[0]["text"] == "본문 doc0_1"
    assert pages[0]["n_regions"] == 2
    assert (pages[0]["text_layer"], pages[0]["text_layer_distance"], pages[1]["text_layer"]) == ("sound", 0.25, None)
    assert regions[1] == {
        "region_id": "doc0_1_1", "page_id": "doc0_1", "index": 1, "label": "text", "native_label": "text",
        "task": "text", "score": 0.5, "bbox": [1.0, 2.0, 30.5, 40.0], "bbox_2d": [10, 20, 305, 400],
        "polygon": [[0.0, 0.0], [1.0, 1.0]], "content": "본문 doc0_1", "origin": "recognizer", "state": "ok",
        "reason": None,
    }  # fmt: skip
    assert crops.features["image"] == datasets.Image()
    assert crops[1]["image"].size == (20, 10)
    assert (crops[1]["page_id"], crops[1]["index"], crops[1]["path"]) == ("doc0_2", 0, "crops/doc0_2_0.jpg")
    assert load(tmp_path / "r").column_names == pages.column_names


def listed_features(folder: Path, config: str) -> datasets.Features:
    stored = pq.read_schema(next((folder / "data" / config).glob("*.parquet")))
    return datasets.Features.from_arrow_schema(stored)


def test_vectors_are_fixed_length_float16_of_the_rows_that_have_one(tmp_path: Path):
    release_of(tmp_path / "r", page_tables(0), page_tables(1))
    for config in ("image_embeddings", "text_embeddings"):
        vectors = load(tmp_path / "r", config)
        assert vectors.features["vector"] == datasets.List(datasets.Value("float16"), length=DIM)
        assert vectors["page_id"][:] == ["doc0_1", "doc0_2", "doc1_1", "doc1_2"]
        assert vectors.with_format("numpy")[1]["vector"].tolist() == np.eye(DIM)[1].tolist()


def test_queries_and_qrels_have_the_names_that_mteb_reads(tmp_path: Path):
    release_of(tmp_path / "r", page_tables(0))
    queries, qrels, corpus = (load(tmp_path / "r", config) for config in ("queries", "qrels", "corpus"))
    assert queries[0]["query_id"] == queries[0]["id"] == "q0"
    assert queries[0]["query"] == queries[0]["text"] == "무엇?"
    assert (queries[0]["answer"], queries[0]["type"], queries[0]["domain"]) == ("그것", "text", "law")
    assert qrels.to_list() == [{"query-id": "q0", "corpus-id": f"doc0_{n}", "score": 1} for n in (1, 2)]
    assert set(qrels["corpus-id"]) <= set(corpus["id"])


def test_answers_that_the_corpus_lacks_are_told_and_judge_nothing(tmp_path: Path):
    made = page_tables(0)
    asked = changed(made.query_embeddings, ground_truth=[["doc9_9", "doc0_2"]])
    release = LocalRelease(folder=str(tmp_path / "r"))
    release.publish("shard_00", replace(made, query_embeddings=asked, unknown_pages={"doc9_9"}))
    release.finish(about("shard_00"))
    assert load(tmp_path / "r", "qrels")["corpus-id"][:] == ["doc0_2"]
    assert load(tmp_path / "r", "queries")[0]["ground_truth"] == ["doc9_9", "doc0_2"]
    card = (tmp_path / "r" / "README.md").read_text("utf-8")
    assert "Answers that the source names and this corpus does not have: 1." in card
    assert list(verify(tmp_path / "r")) == []


def test_a_lost_page_says_where_and_why(tmp_path: Path):
    made = page_tables(0)
    unread = changed(
        made.ocr_results,
        state=["failed", "ok", "quarantined"],
        reason=["the server was gone", None, "the image is damaged"],
        regions=[None, *made.ocr_results["regions"].to_pylist()[1:]],
    )
    release_of(tmp_path / "r", replace(made, ocr_results=unread))
    pages, regions = load(tmp_path / "r", "pages"), load(tmp_path / "r", "regions")
    assert (pages[0]["state"], pages[0]["reason"]) == ("failed", "ocr_results: the server was gone")
    assert pages[0]["states"]["layout_regions"] == "ok"
    assert (pages[2]["state"], pages[2]["reason"]) == ("quarantined", "raw_pages: the image is damaged")
    assert (regions[0]["page_id"], regions[0]["native_label"]) == ("doc0_1", "image")
    assert (regions[0]["content"], regions[0]["reason"]) == (None, "the server was gone")
    card = (tmp_path / "r" / "README.md").read_text("utf-8")
    assert "| doc0\\_3 | quarantined | raw\\_pages: the image is damaged |" in card
    assert "| ocr\\_results | 1 | 0 | 0 | 1 | 1 |" in card
    assert "| pages, all steps | 1 | 0 | 0 | 1 | 1 |" in card


def partly_read(made: ReleaseInput) -> ReleaseInput:
    """Return a shard's tables in which the first page's text region failed."""
    regions = made.ocr_results["regions"].to_pylist()
    regions[0][1] |= {"content": "", "state": "failed", "reason": "the answer repeats itself"}
    tables = {}
    for asset in ("ocr_results", "parsed_texts", "corpus_text_embeddings"):
        table = getattr(made, asset)
        states, reasons = (table[name].to_pylist() for name in ("state", "reason"))
        states[0], reasons[0] = "partial", "1 of 2 regions: it repeats itself"
        tables[asset] = changed(table, state=states, reason=reasons)
    return replace(made, **{**tables, "ocr_results": changed(tables["ocr_results"], regions=regions)})


def test_what_was_read_of_a_partial_page_is_released_and_what_was_not_is_counted(tmp_path: Path):
    release = release_of(tmp_path / "r", partly_read(page_tables(0)), page_tables(1))
    pages, regions = load(tmp_path / "r", "pages"), load(tmp_path / "r", "regions")
    assert (pages[0]["state"], pages[0]["reason"]) == ("partial", "ocr_results: 1 of 2 regions: it repeats itself")
    assert (pages[0]["text"], pages[0]["states"]["parsed_texts"]) == ("본문 doc0_1", "partial")
    assert load(tmp_path / "r", "text_embeddings")["page_id"][:2] == ["doc0_1", "doc0_2"]
    assert (regions[1]["content"], regions[1]["state"], regions[1]["reason"]) == (
        "", "failed", "the answer repeats itself",
    )  # fmt: skip
    assert list(verify(tmp_path / "r")) == []
    card = (tmp_path / "r" / "README.md").read_text("utf-8")
    assert "| pages, all steps | 3 | 1 | 0 | 0 | 2 |" in card
    assert "| ocr\\_results | 3 | 1 | 0 | 0 | 2 |" in card
    assert "Regions that could not be read: 1 of the 4 that were to be (25.00 %)." in card
    assert "| doc0\\_1 | partial | ocr\\_results: 1 of 2 regions: it repeats itself |" in card
    release.publish("shard_00", page_tables(0))
    release.finish(about("shard_00", "shard_01"))
    assert "Regions that could not be read: 0 of the 4" in (tmp_path / "r" / "README.md").read_text("utf-8")


def test_too_many_regions_that_could_not_be_read_keep_a_release_off_the_hub(tmp_path: Path):
    shards = [f"shard_{at:02d}" for at in range(3)]
    release_of(tmp_path / "r", *(partly_read(page_tables(at, pages=7)) for at in range(3)))
    inventory = list_parts(tmp_path / "r")

    def closed(**limits: Any) -> list[str]:
        gates = Gates(max_lost_share=1, max_doubtful_share=1, **limits)
        return fitness(inventory, about(*shards, gates=gates)).closed

    assert closed() == [
        "3 of 18 regions could not be read, more than gates.max_lost_regions_share (1.0%); "
        "give gates.override a reason to publish it all the same"
    ]
    assert closed(max_lost_regions_share=0.2) == []
    assert closed(override="they are stamps") == []


def test_rows_are_joined_by_page_whatever_their_order(tmp_path: Path):
    made = page_tables(0, pages=4)
    turned = {asset: getattr(made, asset).take([3, 1, 0, 2]) for asset in PAGE_ASSETS if asset != "raw_pages"}
    release_of(tmp_path / "a", made)
    release_of(tmp_path / "b", replace(made, **turned))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_readings_of_another_layout_are_not_released(tmp_path: Path):
    made = page_tables(0)
    layouts = made.layout_regions["regions"].to_pylist()
    layouts[1] = layouts[1][:1]
    with pytest.raises(StoreError, match="ocr_results of doc0_2 read another region 1 than layout_regions has"):
        release_of(tmp_path / "r", replace(made, layout_regions=changed(made.layout_regions, regions=layouts)))


def test_a_picture_is_never_released_under_the_name_of_another(tmp_path: Path):
    made = page_tables(0, pages=4)
    pictures = made.ocr_results["crop_images"].to_pylist()
    shifted = [[], [*pictures[0], *pictures[1]], *pictures[2:]]
    with pytest.raises(StoreError, match="ocr_results of doc0_1 lists 1 pictures and holds 0: materialize it again"):
        release_of(tmp_path / "r", replace(made, ocr_results=changed(made.ocr_results, crop_images=shifted)))


def test_a_loss_outweighs_an_earlier_blank(tmp_path: Path):
    made = page_tables(0)
    blank = changed(made.parsed_texts, state=["blank", "ok", "quarantined"])
    lost = changed(made.corpus_image_embeddings, state=["failed", "ok", "quarantined"], reason=["no memory", None, "x"])
    release_of(tmp_path / "r", replace(made, parsed_texts=blank, corpus_image_embeddings=lost))
    assert load(tmp_path / "r", "pages")[0]["reason"] == "corpus_image_embeddings: no memory"


def test_equal_tables_give_equal_bytes(tmp_path: Path):
    first, second = tmp_path / "a", tmp_path / "b"
    release_of(first, page_tables(0), page_tables(1))
    release_of(second, page_tables(0), page_tables(1))
    assert contents(first) == contents(second)


def test_how_a_table_was_put_together_does_not_show(tmp_path: Path):
    made = page_tables(0)
    assembled = {
        asset: pa.concat_tables([getattr(made, asset).slice(0, 1), getattr(made, asset).slice(1)]) for asset in ASSETS
    }
    release_of(tmp_path / "a", made)
    release_of(tmp_path / "b", ReleaseInput(**assembled))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_files_are_made_for_the_viewer_and_for_streaming(tmp_path: Path):
    release_of(tmp_path / "r", page_tables(0))
    column = pq.read_metadata(tmp_path / "r" / "data" / "pages" / "shard_00.parquet").row_group(0).column(0)
    assert column.has_offset_index
    assert column.has_column_index
    stream = datasets.load_dataset(str(tmp_path / "r"), "crops", split="train", streaming=True)
    assert next(iter(stream))["image"].size == (20, 10)


def test_a_row_group_of_long_texts_is_no_larger_than_a_viewer_reads(tmp_path: Path):
    table = pa.table({"text": ["글" * 100_000] * 600})
    write_parquet(table, tmp_path / "long.parquet")
    written = pq.read_metadata(tmp_path / "long.parquet")
    assert [written.row_group(at).num_rows for at in range(written.num_row_groups)] == [334, 266]


def test_a_damaged_card_is_made_anew(tmp_path: Path):
    release = release_of(tmp_path / "r", page_tables(0))
    before = contents(tmp_path / "r")
    (tmp_path / "r" / "README.md").write_bytes(b"---\nconfigs: [\n---\n\xff")
    release.publish("shard_00", page_tables(0))
    release.finish(about("shard_00"))
    assert contents(tmp_path / "r") == before


def test_released_files_are_described_as_they_are(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    files = [*release.publish("shard_00", page_tables(0)), *release.finish(about("shard_00"))]
    found = contents(tmp_path / "r")
    assert {file.path: (file.sha256, file.bytes) for file in files} == {
        path: (hashlib.sha256(data).hexdigest(), len(data)) for path, data in found.items()
    }
    assert {file.path: file.rows for file in files}["data/regions/shard_00.parquet"] == 4


def test_republishing_a_shard_moves_only_its_files(tmp_path: Path):
    release = release_of(tmp_path / "r", page_tables(0), page_tables(1))
    before = contents(tmp_path / "r")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "r").rglob("*.parquet")}
    made = page_tables(1)
    release.publish("shard_01", replace(made, parsed_texts=changed(made.parsed_texts, text=["새 글", "b", None])))
    release.finish(about("shard_00", "shard_01"))
    after = contents(tmp_path / "r")
    moved = {path for path in after if after[path] != before[path]}
    assert moved == {"data/pages/shard_01.parquet", "README.md", "SHA256SUMS", "manifest.json"}
    touched = [path for path, time in times.items() if path.stat().st_mtime_ns != time]
    assert touched == [tmp_path / "r" / "data" / "pages" / "shard_01.parquet"]


def test_publishing_what_is_there_leaves_the_card(tmp_path: Path):
    release = release_of(tmp_path / "r", page_tables(0))
    before = contents(tmp_path / "r")
    written = (tmp_path / "r" / "README.md").stat().st_mtime_ns
    release.publish("shard_00", page_tables(0))
    assert contents(tmp_path / "r") == before
    assert (tmp_path / "r" / "README.md").stat().st_mtime_ns == written


def test_the_folder_loads_when_the_first_run_of_all_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def killed(table: pa.Table, path: Path, images: object) -> None:
        if "crops" in path.parts:
            raise KeyboardInterrupt
        write_parquet(table, path)

    monkeypatch.setattr(dataset, "write_parquet", killed)
    with pytest.raises(KeyboardInterrupt):
        LocalRelease(folder=str(tmp_path / "r")).publish("shard_00", page_tables(0))
    assert load(tmp_path / "r", "pages").num_rows == 3
    assert load(tmp_path / "r", "regions").num_rows == 4


def test_the_folder_loads_when_a_run_is_killed_before_the_card(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    release.publish("shard_00", without_queries(page_tables(0)))
    assert load(tmp_path / "r", "pages").num_rows == 3
    release.publish("shard_01", page_tables(1))
    for config, rows in (("pages", 6), ("crops", 4), ("queries", 1), ("text_embeddings", 4)):
        assert load(tmp_path / "r", config).num_rows == rows
    release.finish(about("shard_00", "shard_01", "shard_02"))
    assert "2 of 3 shards" in (tmp_path / "r" / "README.md").read_text("utf-8")
    release.publish("shard_02", page_tables(2))
    assert load(tmp_path / "r", "pages").num_rows == 9


def test_loading_again_finds_a_republished_shard(tmp_path: Path):
    release = release_of(tmp_path / "r", page_tables(0))
    assert load(tmp_path / "r", "text_embeddings").with_format("numpy")[0]["vector"][0] == 1
    made = page_tables(0)
    turned = changed(made.corpus_text_embeddings, vector=[unit(3), unit(4), None])
    release.publish("shard_00", replace(made, corpus_text_embeddings=turned))
    assert load(tmp_path / "r", "text_embeddings").with_format("numpy")[0]["vector"][0] == 0


def test_sums_are_right_also_after_a_run_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    release = release_of(tmp_path / "r", page_tables(0), page_tables(1))

    def killed(table: pa.Table, path: Path, images: object) -> None:
        if "text_embeddings" in path.parts:
            raise KeyboardInterrupt
        write_parquet(table, path)

    with monkeypatch.context() as patch:
        patch.setattr(dataset, "write_parquet", killed)
        with pytest.raises(KeyboardInterrupt):
            release.publish("shard_01", page_tables(1, pages=4))
    release.finish(about("shard_00", "shard_01"))
    found = {path: hashlib.sha256(data).hexdigest() for path, data in contents(tmp_path / "r").items()}
    del found["SHA256SUMS"]
    lines = (tmp_path / "r" / "SHA256SUMS").read_text().splitlines()
    assert {path: sha256 for sha256, path in (line.split("  ") for line in lines)} == found


def test_a_file_that_cannot_be_written_leaves_the_old_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    release = release_of(tmp_path / "r", page_tables(0))
    before = contents(tmp_path / "r")

    def full(table: pa.Table, path: Path, images: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dataset, "write_parquet", full)
    with pytest.raises(StoreError, match="the disk is full"):
        release.publish("shard_00", page_tables(0, pages=2))
    after = contents(tmp_path / "r")
    assert after.keys() == before.keys()
    assert {path for path in after if after[path] != before[path]} == {"SHA256SUMS"}


def test_shards_that_left_the_corpus_are_removed_and_strangers_stay(tmp_path: Path):
    release = release_of(tmp_path / "r", page_tables(0), page_tables(1))
    stranger = tmp_path / "r" / "data" / "pages" / "notes.txt"
    stranger.write_text("mine")
    release.finish(about("shard_00"))
    assert set(load(tmp_path / "r", "pages")["doc_id"]) == {"doc0"}
    assert not list((tmp_path / "r").rglob("shard_01.parquet"))
    assert stranger.read_text() == "mine"


def without_pictures(made: ReleaseInput) -> ReleaseInput:
    none = [[] for _ in range(made.ocr_results.num_rows)]
    return replace(made, ocr_results=changed(made.ocr_results, image_crops=none, crop_images=none))


def test_a_config_without_rows_is_there_with_its_features(tmp_path: Path):
    release = release_of(tmp_path / "r", *(without_queries(without_pictures(page_tables(at))) for at in (0, 1)))
    for config in ("queries", "qrels", "crops"):
        opened = datasets.load_dataset(str(tmp_path / "r"), config, split="train", streaming=True)
        assert list(opened) == []
        listed = datasets.load_dataset_builder(str(tmp_path / "r"), config).info.features
        assert listed == opened.features == listed_features(tmp_path / "r", config)
        assert f"| {config} | 0 | 2 |" in (tmp_path / "r" / "README.md").read_text("utf-8")
    assert list(verify(tmp_path / "r")) == []
    release.publish("shard_01", page_tables(1))
    assert load(tmp_path / "r", "queries").num_rows == 1


def test_shards_of_another_vector_width_wait_until_they_are_the_more(tmp_path: Path):
    release = release_of(tmp_path / "r", page_tables(0), page_tables(1), page_tables(2, pages=5))
    release.publish("shard_00", page_tables(0, dim=16))
    assert load(tmp_path / "r", "text_embeddings")["page_id"][:2] == ["doc1_1", "doc1_2"]
    release.finish(about("shard_00", "shard_01", "shard_02"))
    card = (tmp_path / "r" / "README.md").read_text("utf-8")
    for config, loaded, rows in (("text\\_embeddings", 6, 8), ("image\\_embeddings", 6, 8), ("queries", 2, 3)):
        assert f"- {config} loads {loaded} of {rows} rows: shard\\_00 has other columns" in card
    release.publish("shard_01", page_tables(1, dim=16))
    release.publish("shard_02", page_tables(2, pages=5, dim=16))
    vectors = load(tmp_path / "r", "text_embeddings")
    assert vectors.num_rows == 8
    assert vectors.features["vector"].length == 16


def test_tables_of_different_pages_are_not_published(tmp_path: Path):
    made = page_tables(0)
    with pytest.raises(StoreError, match="corpus_text_embeddings does not hold the pages"):
        LocalRelease(folder=str(tmp_path / "r")).publish(
            "shard_00", replace(made, corpus_text_embeddings=made.corpus_text_embeddings.slice(1))
        )
    assert not (tmp_path / "r").exists()


def test_hostile_text_is_data_in_the_tables_and_plain_in_the_card(tmp_path: Path):
    made = page_tables(0, license=HOSTILE)
    made = replace(
        made,
        parsed_texts=changed(made.parsed_texts, text=[HOSTILE, "가" * 1_000_000, None]),
        raw_pages=changed(made.raw_pages, reason=[None, None, HOSTILE], doc_id=[HOSTILE] * 3, source=[HOSTILE] * 3),
    )
    release = LocalRelease(folder=str(tmp_path / "r"))
    release.publish("shard_00", made)
    release.finish(about("shard_00", title=HOSTILE, source=HOSTILE))
    pages = load(tmp_path / "r", "pages")
    assert pages[0]["text"] == HOSTILE
    assert len(pages[1]["text"]) == 1_000_000
    card = (tmp_path / "r" / "README.md").read_text("utf-8")
    attribution = (tmp_path / "r" / "ATTRIBUTION.md").read_text("utf-8")
    for shown in (card.split("---\n", 2)[2], f"\n{attribution}"):
        assert "<script>" not in shown
        assert "![i]" not in shown
        assert "http://e" not in shown
        assert "\x00" not in shown
        assert "\x1b" not in shown
        assert shown.count("\n# ") == 1
        assert "&lt;script&gt;alert(1)&lt;/script&gt; \\|" in shown
    assert list(verify(tmp_path / "r")) == []


def test_the_card_tells_licences_engines_limits_and_languages(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    engine = {"engine": "x.Layout", "version": 1, "parameters": {"dpi": 300}, "weights": {"tesseract": "5.5.4"}}
    made = {"layout_regions": {"made_with": json.dumps({"version": 1, "engines": [engine]})}}
    release.publish("shard_00", replace(page_tables(0), made=made))
    release.publish("shard_01", replace(page_tables(1, license=None), made=made))
    release.finish(about("shard_00", "shard_01", limits=["Vectors are lexical."], license="MIT"))
    matter = front_matter(tmp_path / "r")
    assert matter["license"] == ["cc-by-sa-4.0", "mit"]
    assert matter["language"] == ["ko", "en"]
    assert matter["size_categories"] == ["n<1K"]
    body = (tmp_path / "r" / "README.md").read_text("utf-8")
    assert "| CC-BY-SA-4.0 | 3 |" in body
    assert "| layout\\_regions | x.Layout |  |  | 6 | dpi 300, tesseract 5.5.4 |" in body
    assert "- Vectors are lexical." in body


def test_every_document_is_attributed_once_with_its_file_and_licence(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    made = page_tables(1, license=None)
    release.publish("shard_00", page_tables(0))
    release.publish("shard_01", replace(made, raw_pages=changed(made.raw_pages, doc_id=["doc0", "doc0", None])))
    release.finish(about("shard_00", "shard_01", license="MIT"))
    table = (tmp_path / "r" / "ATTRIBUTION.md").read_text("utf-8").split("|---|---|---|--:|\n")[1]
    assert table.splitlines() == [
        "| doc0 | a.arrow | CC-BY-SA-4.0 | 3 |",
        "| doc0 | a.arrow | MIT | 2 |",
        "| not stated | a.arrow | MIT | 1 |",
    ]


def test_the_card_tells_every_engine_that_made_rows_and_what_its_pages_score(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    for shard, revision in (("shard_00", "r1"), ("shard_01", "r2")):
        engine = {
            "engine": "x.Reader",
            "version": 1,
            "parameters": {"prompt": "read"},
            "weights": {"org/ocr": revision},
        }
        made_with = {"made_with": json.dumps({"version": 1, "engines": [engine]}), "recipe": "r"}
        release.publish(shard, replace(page_tables(int(shard[-1])), made={"ocr_results": made_with}))
    known = {"convention": "any", "queries": 2, "dropped": False}
    scores = [
        {
            **known,
            "retriever": "text",
            "query_type": kind,
            "metric": "recall@10",
            "value": 0.5,
            "low": 0.25,
            "high": 0.75,
        }
        for kind in ("all", "visual")
    ]
    table = pa.Table.from_pylist(scores, RETRIEVAL_SCORES)
    release.finish(about("shard_00", "shard_01", scores=table))
    body = (tmp_path / "r" / "README.md").read_text("utf-8")
    assert "| ocr\\_results | x.Reader | org/ocr | r1 | 3 | org/ocr r1, prompt read |" in body
    assert "| ocr\\_results | x.Reader | org/ocr | r2 | 3 | org/ocr r2, prompt read |" in body
    assert body.count("| text | any | recall@10 | 2 | 0.500 | 0.250 to 0.750 |") == 1


def test_a_file_without_its_summary_is_not_counted_as_nothing(tmp_path: Path):
    release = release_of(tmp_path / "r", page_tables(0), page_tables(1))
    path = tmp_path / "r/data/pages/shard_01.parquet"
    table = pq.read_table(path)
    features = {b"huggingface": table.schema.metadata[b"huggingface"]}
    pq.write_table(table.replace_schema_metadata(features), path)
    with pytest.raises(
        StoreError, match=r"shard_01\.parquet is no file of a release: delete it and materialize hf_release"
    ):
        release.finish(about("shard_00", "shard_01"))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (["GPL-2 (installation-guide)", "GPL-2+ (x)"], ["gpl-2.0"]),
        (["GFDL-1.2+ (gimp)", "GFDL"], ["gfdl"]),
        (["LPPL-1.3c (ko.TeX)", "MPL-2.0", "CC-BY-SA-3.0 (gnome)"], ["cc-by-sa-3.0", "lppl-1.3c", "mpl-2.0"]),
        ([None, "SPI copyleft (debian-faq-ko)"], ["other"]),
    ],
)
def test_licences_get_the_names_of_the_hub(stated: list[str | None], expected: list[str]):
    assert hub_licences(stated) == expected


@dataclass
class Tables:
    """A reader over tables in memory."""

    shards: dict[str, ReleaseInput]

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        table: pa.Table = getattr(self.shards[shard], asset)
        return table if columns is None else table.select(list(columns))

    def metadata(self, asset: str, shard: str) -> dict[str, str]:
        return dict(self.shards[shard].made.get(asset, {}))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def test_release_input_reads_every_table_of_a_shard():
    made = page_tables(3)
    assert ReleaseInput.read(Tables({"shard_03": made}), "shard_03").tables == made.tables


def test_export_numbers_pages_over_the_corpus_and_names_the_rows_of_arrays(tmp_path: Path):
    reader = Tables({"shard_00": page_tables(0), "shard_01": page_tables(1)})
    exported = export(reader, ["shard_00", "shard_01"], tmp_path / "out")
    assert (exported.pages, exported.crops) == (6, 4)
    results, texts = lines(tmp_path / "out" / "ocr_results.jsonl"), lines(tmp_path / "out" / "parsed_texts.jsonl")
    assert [page["page_idx"] for page in results] == [text["page_idx"] for text in texts] == list(range(6))
    assert results[3]["regions"] == [
        {"index": 0, "label": "image", "kind": "image", "bbox_2d": [10, 20, 305, 400], "content": None},
        {"index": 1, "label": "text", "kind": "text", "bbox_2d": [10, 20, 305, 400], "content": "본문 doc1_1"},
    ]
    assert results[2] == {
        "page_id": "doc0_3", "page_idx": 2, "regions": [], "markdown": "", "image_crops": [],
        "state": "quarantined", "reason": "the image is damaged",
    }  # fmt: skip
    crop = results[0]["image_crops"][0]
    assert (tmp_path / "out" / crop["path"]).read_bytes() == jpeg(0)
    assert texts[4]["text"] == "본문 doc1_2"
    for name in ("corpus_images", "corpus_ocr_text"):
        vectors = np.load(tmp_path / "out" / "embeddings" / f"{name}.npy")
        ids = json.loads((tmp_path / "out" / "embeddings" / f"{name}_ids.json").read_text("utf-8"))
        assert ids == ["doc0_1", "doc0_2", "doc1_1", "doc1_2"]
        assert vectors.dtype == np.float16
        assert vectors.tolist() == np.eye(DIM)[[0, 1, 0, 1]].tolist()
    assert np.load(tmp_path / "out" / "embeddings" / "queries.npy").shape == (2, DIM)


def test_an_exported_region_has_the_label_of_the_layout_and_the_kind_of_what_was_read(tmp_path: Path):
    made = page_tables(0)
    regions = made.layout_regions["regions"].to_pylist()
    regions[0][1] |= {"label": "doc_title"}
    export(Tables({"s": replace(made, layout_regions=changed(made.layout_regions, regions=regions))}), ["s"], tmp_path)
    picture, title = lines(tmp_path / "ocr_results.jsonl")[0]["regions"]
    assert (picture["label"], picture["kind"], picture["content"]) == ("image", "image", None)
    assert (title["label"], title["kind"], title["content"]) == ("doc_title", "text", "본문 doc0_1")


def test_an_export_has_the_pictures_of_whole_pages_when_they_are_asked_for(tmp_path: Path):
    @contextmanager
    def opened(shard: str):  # type: ignore[no-untyped-def]
        yield lambda page_id: None if page_id == "doc0_3" else jpeg(7)

    reader = Tables({"s": page_tables(0)})
    export(reader, ["s"], tmp_path, images=opened)
    named = [page["page_image"] for page in lines(tmp_path / "ocr_results.jsonl")]
    assert named == ["pages/doc0_1.jpg", "pages/doc0_2.jpg", None]
    assert (tmp_path / "pages" / "doc0_2.jpg").read_bytes() == jpeg(7)
    export(reader, ["s"], tmp_path)
    assert not (tmp_path / "pages").exists()
    assert "page_image" not in lines(tmp_path / "ocr_results.jsonl")[0]


def told(made: ReleaseInput) -> ReleaseInput:
    """Return a shard's tables with local paths and with links that are not web pages."""
    regions, reasons = made.ocr_results["regions"].to_pylist(), made.ocr_results["reason"].to_pylist()
    why = "Command '['/opt/me/bin/tesseract', '/tmp/kopub-x1/page 1.png']' timed out"
    regions[0][1] |= {"content": "", "state": "failed", "reason": why}
    reasons[0], states = f"1 of 2 regions: {why}", ["partial", "ok", "quarantined"]
    markdown = "[click](javascript:alert(1)) ![p](file:///home/me/a.png) [site](https://example.com)"
    layer = changed(made.parsed_texts, text_layer_reason=["no font in /home/me/fonts/a.ttf", None, None])
    parameters = {"folder": "/home/me/weights", "prompt": "a/b"}
    engine = {"engine": "recognition.own", "version": 1, "parameters": parameters}
    return replace(
        made,
        raw_pages=changed(made.raw_pages, reason=[None, None, "cannot identify image file '/tmp/kopub-x1/page.png'"]),
        ocr_results=changed(
            made.ocr_results, regions=regions, reason=reasons, state=states, markdown=[markdown, markdown, None]
        ),
        parsed_texts=layer,
        made={"ocr_results": {"made_with": json.dumps({"version": 1, "engines": [engine]})}},
    )


def test_no_folder_of_the_machine_and_no_live_link_leaves_with_a_release_or_an_export(tmp_path: Path):
    made = told(page_tables(0))
    release = LocalRelease(folder=str(tmp_path / "r"))
    release.publish("shard_00", made)
    release.finish(about("shard_00", limits=["weights lie in /home/me/weights"]))
    pages, regions, lineage = (load(tmp_path / "r", config) for config in ("pages", "regions", "lineage"))
    timed_out = "Command '['…', 'page 1.png']' timed out"
    assert pages["reason"][:] == [
        f"ocr_results: 1 of 2 regions: {timed_out}", None, "raw_pages: cannot identify image file 'page.png'",
    ]  # fmt: skip
    assert pages[0]["text_layer_reason"] == "no font in a.ttf"
    assert regions[1]["reason"] == timed_out
    assert "/weights" not in json.dumps(lineage.to_list())
    assert '"prompt":"a/b"' in json.dumps(lineage.to_list()).replace("\\", "").replace(" ", "")
    export(Tables({"shard_00": made}), ["shard_00"], tmp_path / "out")
    exported = lines(tmp_path / "out" / "ocr_results.jsonl")
    assert exported[0]["reason"] == f"1 of 2 regions: {timed_out}"
    for markdown in (pages[0]["markdown"], exported[0]["markdown"]):
        shown = MarkdownIt("commonmark").render(markdown)
        assert re.findall(r'(?:href|src)="([^"]*)"', shown) == ["https://example.com"]
        assert "javascript:alert(1)" in shown, "what is printed stays"
    for path, content in (contents(tmp_path / "r") | contents(tmp_path / "out")).items():
        if not path.endswith((".parquet", ".npy")):
            assert not re.search(rb"/home/me/|/tmp/kopub|/opt/me", content.replace(b"file:///home/me/a.png", b"")), path


def test_export_without_queries_has_an_empty_array(tmp_path: Path):
    export(Tables({"shard_00": without_queries(page_tables(0))}), ["shard_00"], tmp_path / "out")
    assert np.load(tmp_path / "out" / "embeddings" / "queries.npy").shape == (0, DIM)


def test_export_replaces_an_earlier_one_and_nothing_else(tmp_path: Path):
    out = tmp_path / "out"
    export(Tables({"shard_00": page_tables(0, pages=5)}), ["shard_00"], out)
    export(Tables({"shard_00": page_tables(0)}), ["shard_00"], out)
    assert len(lines(out / "ocr_results.jsonl")) == 3
    assert len(list((out / "crops").iterdir())) == 2
    assert sorted(path.name for path in out.iterdir()) == [
        "crops", "embeddings", "export.json", "ocr_results.jsonl", "parsed_texts.jsonl",
    ]  # fmt: skip
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="no export wrote"):
        export(Tables({"shard_00": page_tables(0)}), ["shard_00"], other)
    assert contents(other) == {"thesis.txt": b"years of work"}


def test_an_export_that_stops_keeps_the_earlier_one_and_can_be_repeated(tmp_path: Path):
    out = tmp_path / "out"
    export(Tables({"shard_00": page_tables(0)}), ["shard_00"], out)
    before = contents(out)
    with pytest.raises(KeyError, match="shard_01"):
        export(Tables({"shard_00": page_tables(0, pages=5)}), ["shard_00", "shard_01"], out)
    assert contents(out) == before
    assert export(Tables({"shard_00": page_tables(0)}), ["shard_00"], out).pages == 3


def test_a_first_export_that_stops_leaves_a_folder_for_any_export(tmp_path: Path):
    out = tmp_path / "out"
    with pytest.raises(KeyError, match="shard_00"):
        export(Tables({}), ["shard_00"], out)
    assert list(out.iterdir()) == []
    (out / ".0a1b2c3d.partial" / "crops").mkdir(parents=True)  # as a killed one leaves it
    assert export(Tables({"shard_00": page_tables(0)}), ["shard_00"], out).pages == 3
    assert not list(out.glob(".*"))


def test_an_export_without_room_for_its_first_file_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reader, out = Tables({"shard_00": page_tables(0)}), tmp_path / "out"
    with monkeypatch.context() as full:
        full.setattr(os, "replace", no_room)
        with pytest.raises(StoreError, match=r"^the disk is full: .* free some space and run again$"):
            export(reader, ["shard_00"], out)
    assert export(reader, ["shard_00"], out).pages == 3


@pytest.mark.parametrize("path", ["crops/../../evil.jpg", "/etc/evil.jpg", "crops/a/b.jpg", "evil.jpg", "crops/.."])
def test_export_writes_nowhere_else(tmp_path: Path, path: str):
    made = page_tables(0)
    crop = {"path": path, "bbox": [0.0, 0.0, 1.0, 1.0], "label": "image"}
    evil = changed(made.ocr_results, image_crops=[[crop], *made.ocr_results["image_crops"].to_pylist()[1:]])
    out = tmp_path / "a" / "out"
    with pytest.raises(StoreError, match=r"is no file of crops/"):
        export(Tables({"shard_00": replace(made, ocr_results=evil)}), ["shard_00"], out)
    assert not contents(tmp_path)


def test_an_export_joins_by_page_and_never_a_reading_to_another_layout(tmp_path: Path):
    made = page_tables(0)
    turned = replace(made, parsed_texts=made.parsed_texts.take([2, 0, 1]))
    for name, tables in (("a", made), ("b", turned)):
        export(Tables({"shard_00": tables}), ["shard_00"], tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    layouts = changed(made.layout_regions, regions=[[], *made.layout_regions["regions"].to_pylist()[1:]])
    with pytest.raises(StoreError, match="ocr_results of doc0_1 read another region 0"):
        export(Tables({"shard_00": replace(made, layout_regions=layouts)}), ["shard_00"], tmp_path / "c")


def test_vectors_of_two_widths_are_not_exported(tmp_path: Path):
    reader = Tables({"shard_00": page_tables(0), "shard_01": page_tables(1, dim=16)})
    with pytest.raises(StoreError, match="8 and 16 dimensions"):
        export(reader, ["shard_00", "shard_01"], tmp_path / "out")
