"""Chunks of a corpus' documents: in the package as in an export."""

import json
from pathlib import Path

import pytest

import kopub
from resources.corrections.corrected import CorrectedTables
from resources.documents.export import write_documents
from resources.release.local import LocalRelease
from tests.doubles.printed import Print, PrintedLayout, PrintedReader
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

HALF = "데비안 설치 프로그램은 임베디드 장치와 노트북 컴퓨터와 데스크톱 컴퓨터 등 여러가지"
REST = "장치를 지원한다."
HEAD, FOOT, BELOW = (100, 60, 900, 300), (100, 800, 900, 880), (100, 890, 900, 960)
PRINTS: dict[str, list[Print]] = {
    # A paragraph that goes on over the page and into the next shard.
    "a_1": [("paragraph_title", "제1장 개요", HEAD), ("text", HALF, FOOT)],
    "a_2": [("text", REST, HEAD), ("text", HALF, FOOT)],
    "a_3": [("text", REST, HEAD)],
    # A picture stands between the two.
    "b_1": [("text", HALF, FOOT), ("image", "", BELOW)],
    "b_2": [("text", REST, HEAD)],
    # Pages of no document, which do not go on.
    "one": [("text", HALF, FOOT)],
    "two": [("text", REST, HEAD)],
    # A page that is lost, between two that are read.
    "c_1": [("text", HALF, FOOT)],
    "c_2": [("text", "잃는다.", HEAD)],
    "c_3": [("text", REST, HEAD)],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    home = tmp_path_factory.mktemp("chunks")
    shards = [pages("a_1", "b_1", "b_2", "one", "a_2"), pages("a_3", "c_1", "c_2", "c_3", "two", first=5)]
    platform = Platform.of(home, shards, [])
    platform.engines = {
        "layout": PrintedLayout(prints=json.dumps(PRINTS)),
        "recognition": PrintedReader(prints=json.dumps(PRINTS), lose=["c_2"]),
        "release": LocalRelease(folder=str(home / "release")),
    }
    assert platform.run("*", "shard_00", "shard_01").success
    return platform


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
