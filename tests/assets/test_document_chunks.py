"""Document chunks are the same in export, package, table and release, and follow changed pages."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

import kopub
from kopub.config.choices import Documents
from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.documents.export import write_documents
from kopub.release.local import LocalRelease
from kopub.release.verify import verify
from kopub.store import ledger
from kopub.store.table_source import FooterCache
from kopub.tables.plan import AssetPlan, survey
from kopub.tables.staleness import Standing
from tests.doubles.printed import Print, PrintedLayout, PrintedReader
from tests.support.harness import Platform, Prepared
from tests.support.sources.corpora import page_image, pages

HALF = "데비안 설치 프로그램은 임베디드 장치와 노트북 컴퓨터와 데스크톱 컴퓨터 등 여러가지"
REST = "장치를 지원한다."
HEAD, FOOT, BELOW = (100, 60, 900, 300), (100, 800, 900, 880), (100, 890, 900, 960)
PRINTS: dict[str, list[Print]] = {
    # A paragraph that continues on the next page and into the next shard.
    "a_1": [("paragraph_title", "제1장 개요", HEAD), ("text", HALF, FOOT)],
    "a_2": [("text", REST, HEAD), ("text", HALF, FOOT)],
    "a_3": [("text", REST, HEAD)],
    # A picture separates the two halves.
    "b_1": [("text", HALF, FOOT), ("image", "", BELOW)],
    "b_2": [("text", REST, HEAD)],
    # Pages of no document, so no paragraph continues from one to the other.
    "one": [("text", HALF, FOOT)],
    "two": [("text", REST, HEAD)],
    # A page that is lost, between two that are read.
    "c_1": [("text", HALF, FOOT)],
    "c_2": [("text", "잃는다.", HEAD)],
    "c_3": [("text", REST, HEAD)],
}


SHARDS = pages("a_1", "b_1", "b_2", "one", "a_2"), pages("a_3", "c_1", "c_2", "c_3", "two", first=5)
ASSET = "document_chunks"
BEFORE = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    home = tmp_path_factory.mktemp("chunks")
    platform = Platform.of(home, SHARDS, [])
    platform.engines = {
        "layout": PrintedLayout(prints=json.dumps(PRINTS)),
        "recognition": PrintedReader(prints=json.dumps(PRINTS), lose=["c_2"]),
        "release": LocalRelease(folder=str(home / "release")),
        "documents": Documents(chunks=True),
    }
    assert platform.run("*", "shard_00", "shard_01").success
    return Prepared(platform)


@pytest.fixture
def made(built: Prepared) -> Platform:
    return built.renewed()


def texts_of(platform: Platform) -> dict[str, list[str]]:
    """Return the chunk texts in the tables by document."""
    rows = [row for shard in ("shard_00", "shard_01") for row in platform.rows(ASSET, shard).values()]
    return {row["doc_id"]: [chunk["text"] for chunk in row["chunks"] or ()] for row in rows}


def plan(platform: Platform) -> AssetPlan:
    """Return what a run would recompute for the asset."""
    plans = survey(platform.resources(), FooterCache(platform.store), platform.graph).plans()
    return next(each for each in plans if each.asset == ASSET)


def correct(platform: Platform, page_id: str, shard: str, after: str) -> None:
    """Correct the text of the first region of a page."""
    (layout,) = platform.rows("layout_regions", shard)[page_id]["regions"]
    boxes = {"bbox": tuple(layout["bbox"]), "bbox_2d": tuple(layout["bbox_2d"])}
    said = {"label": layout["label"], "kind": "text", "before": PRINTS[page_id][0][1], "after": after}
    CorrectionLog(platform.store).add(Correction(page_id, shard, Action.TEXT, "Kim", **boxes, **said))


@pytest.mark.parametrize("where", ["", "release"])
def test_the_package_cuts_documents_as_an_export_does(made: Platform, where: str, tmp_path: Path):
    write_documents(CorrectedTables(made.store), ["shard_00", "shard_01"], tmp_path, ["chunks"])
    lines = [line for file in tmp_path.glob("*.jsonl") for line in file.read_text("utf-8").splitlines()]
    corpus = kopub.open(made.home / where)
    cut = [chunk for document in corpus.documents for chunk in document.chunks()]

    def said(doc_id: str, index: int, text: str, pages: list[str]) -> tuple[str, int, str, tuple[str, ...]]:
        return doc_id, index, text, tuple(pages)

    exported = sorted(
        said(row["doc_id"], row["index"], row["text"], [place["page_id"] for place in row["places"]])
        for row in map(json.loads, lines)
    )
    assert exported == sorted(
        said(chunk.doc_id, chunk.index, chunk.text, [place.page_id for place in chunk.places]) for chunk in cut
    )
    texts = {doc_id: text for doc_id, _, text, _ in exported}
    assert texts["a"] == f"제1장 개요\n\n{HALF} {REST}\n\n{HALF} {REST}"
    assert texts["b"] == f"{HALF}\n\n{REST}"
    assert texts["c"] == f"{HALF}\n\n{REST}"
    assert (texts["one"], texts["two"]) == (HALF, REST)


def test_a_row_has_the_document_that_begins_in_its_shard_with_its_pages_elsewhere(made: Platform):
    assert list(made.rows(ASSET)) == ["a_1", "b_1", "one"]
    assert list(made.rows(ASSET, "shard_01")) == ["c_1", "two"]
    row = made.rows(ASSET)["a_1"]
    assert (row["doc_id"], row["n_pages"], row["state"]) == ("a", 3, "ok")
    (chunk,) = row["chunks"]
    assert chunk["text"].count(f"{HALF} {REST}") == 2, "over pages, and over shards"
    assert [place["page_id"] for place in chunk["places"]] == ["a_1", "a_1", "a_2", "a_2", "a_3"]
    lost = made.rows(ASSET, "shard_01")["c_1"]
    assert (lost["state"], lost["reason"]) == ("partial", "1 of 3 pages are lost or read in part, first c_2")


def test_a_document_without_chunks_that_lost_a_page_is_not_blank(tmp_path: Path):
    prints = json.dumps({"d_1": [("image", "", BELOW)], "d_2": [("text", "잃는다.", HEAD)], "e_1": PRINTS["one"]})
    platform = Platform.of(tmp_path, [pages("d_1", "d_2", "e_1")], [])
    platform.engines = {
        "layout": PrintedLayout(prints=prints),
        "recognition": PrintedReader(prints=prints, lose=["d_2"]),
        "documents": Documents(chunks=True),
    }
    assert platform.run(",".join((*BEFORE, ASSET))).success
    row = platform.rows(ASSET)["d_1"]
    assert (row["chunks"], row["state"]) == ([], "partial")
    assert row["reason"] == "1 of 2 pages are lost or read in part, first d_2"


def test_a_release_has_the_chunks_as_a_config(made: Platform):
    folder = made.home / "release"
    assert list(verify(folder)) == []
    rows = load_dataset(str(folder), "chunks", split="train").to_list()
    assert [row["id"] for row in rows] == ["a_1-0", "b_1-0", "one-0", "c_1-0", "two-0"]
    assert {row["doc_id"]: [row["text"]] for row in rows} == texts_of(made)
    card = (folder / "README.md").read_text("utf-8")
    assert "`chunks` has 5 documents in 5 pieces" in card
    assert "Of these documents, 1 lack pages" in card
    lineage = pq.read_table(folder / "data/lineage/shard_00.parquet").to_pylist()
    (made_by,) = {row["parameters"] for row in lineage if row["asset"] == ASSET}
    assert json.loads(made_by) == {"documents.chunk_tokens": 512}
    damaged = pq.read_table(path := folder / "data/chunks/shard_00.parquet")
    pq.write_table(pa.concat_tables([damaged, damaged]), path)
    assert any("chunks" in line for line in verify(folder))


def test_a_page_that_changed_makes_its_document_again_and_no_other(made: Platform):
    assert (plan(made).shards[Standing.STALE], plan(made).pages) == ([], 0)
    before = texts_of(made)
    correct(made, "a_3", "shard_01", "장치를 모두 지원한다.")
    stale = plan(made)
    assert (stale.shards[Standing.STALE], stale.pages) == (["shard_00", "shard_01"], 1)
    assert stale.why["pages in other shards changed"] == 1
    made.make(ASSET)
    assert texts_of(made) == {**before, "a": [before["a"][0].removesuffix(REST) + "장치를 모두 지원한다."]}
    assert ledger.read(made.store, ASSET, "shard_00").num_rows == len(made.rows(ASSET)) + 1
    assert ledger.read(made.store, ASSET, "shard_01").num_rows == len(made.rows(ASSET, "shard_01"))
    assert plan(made).pages == 0
    correct(made, "b_2", "shard_00", "장치를 모두 지원한다.")
    assert plan(made).pages == 1, "a document that lies in one shard alone"


def test_a_document_may_change_with_the_picture_of_its_page_in_another_shard(made: Platform):
    first, (_, *others) = SHARDS
    made.reindex([first, [("a_3", page_image(99)), *others]], [])
    assert plan(made).shards[Standing.MAYBE_STALE] == ["shard_00", "shard_01"]


@pytest.mark.slow
def test_a_document_whose_other_pages_are_not_read_yet_waits_for_them(tmp_path: Path):
    platform = Platform.of(tmp_path / "home", [pages("a_1", "b_2"), pages("a_2", first=2)], [])
    prints = json.dumps({"a_1": PRINTS["a_1"], "a_2": PRINTS["a_3"], "b_2": PRINTS["b_2"]})
    platform.engines = {
        "layout": PrintedLayout(prints=prints),
        "recognition": PrintedReader(prints=prints),
        "documents": Documents(chunks=True),
    }
    names = ",".join((*BEFORE, ASSET))
    assert platform.run("raw_pages", "shard_00", "shard_01").success
    assert platform.run(names, "shard_00").success
    rows = platform.rows(ASSET)
    assert (rows["a_1"]["state"], rows["a_1"]["reason"]) == ("failed", "its pages in shard_01 are not read yet")
    assert rows["b_2"]["state"] == "ok"
    assert plan(platform).shards[Standing.CURRENT] == ["shard_00"], "nothing more can be made of it now"
    assert platform.run(names, "shard_01").success
    assert plan(platform).shards[Standing.STALE] == ["shard_00"]
    assert platform.run(ASSET, "shard_00").success
    assert texts_of(platform)["a"] == [f"제1장 개요\n\n{HALF} {REST}"]
    assert plan(platform).shards[Standing.CURRENT] == ["shard_00", "shard_01"]


@pytest.mark.slow
def test_the_pages_that_a_file_keeps_do_not_count_as_its_documents(tmp_path: Path):
    platform = Platform.of(tmp_path / "home", [pages("a_1", "a_2", "a_3")], [])
    prints = json.dumps(PRINTS)
    platform.engines = {
        "layout": PrintedLayout(prints=prints),
        "recognition": PrintedReader(prints=prints),
        "documents": Documents(chunks=True),
    }
    names = ",".join((*BEFORE, ASSET))
    assert platform.run(names).success
    platform.reindex([pages("a_1", "a_2", "a_3", "one")])
    assert plan(platform).pages_at_most == 1
    assert platform.run(names).success
    assert ledger.read(platform.store, ASSET, "shard_00").num_rows == 2


def test_who_wants_no_chunks_has_no_table_of_them(made: Platform):
    made.engines["documents"] = Documents()
    declared = survey(made.resources(), FooterCache(made.store), made.graph)
    assert declared.off[ASSET] == "documents.chunks is false"
    made.run("hf_release", "shard_00", "shard_01")
    assert not list((made.home / "release").glob("data/chunks/*"))
    assert list(verify(made.home / "release")) == []
