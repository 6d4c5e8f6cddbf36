"""Pages with byte-identical pictures are one hit naming all places, in every interface."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import kopub
from kopub.cli.options import corpus_check
from kopub.embedding.hashed import HashedEmbedder
from kopub.search.options import Mode, Where
from kopub.web.app import reading_room
from kopub.web.mcp import CorpusTools
from kopub.web.room import Room
from tests.cli.test_cli import run
from tests.search.test_search import SEARCHED, Typist, searcher
from tests.support.harness import Platform
from tests.support.sources.corpora import pages

BRIGHT = "화면 밝기를 조절하려면 시스템 메뉴를 누릅니다."
TEXTS = {"a_1": BRIGHT, "a_2": "화면 보호기를 켭니다.", "b_1": BRIGHT, "b_2": "화면 보호기를 켭니다."}
ALIKE = {"a_1": ["b_1"], "a_2": ["b_2"]}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    """Return a platform with two documents whose pages have the same pictures."""
    platform = Platform.of(tmp_path_factory.mktemp("equal"), [pages("a_1", "a_2"), pages("b_1", "b_2")], [])
    platform.engines = {"embedding": HashedEmbedder(), "recognition": Typist(texts=TEXTS)}
    platform.make(*SEARCHED.split(","))
    return platform


@pytest.fixture(scope="module")
def room(platform: Platform) -> Room:
    settings = platform.settings
    return Room(settings, searcher(platform), corpus_check(settings.corpus.manifest, settings.store))


@pytest.mark.parametrize("mode", [Mode.BM25, Mode.TEXT, Mode.FUSION])
def test_equal_pages_are_one_hit_at_the_place_and_score_of_the_best(platform: Platform, mode: Mode):
    search = searcher(platform)
    answer = search.search("화면 밝기", mode=mode)
    assert {hit.page.page_id: [page.page_id for page in hit.also] for hit in answer.hits} == ALIKE
    assert [hit.rank for hit in answer.hits] == [1, 2]
    alone = search.search("화면 밝기", mode=mode, where=Where(frozenset(["a"])))
    assert [hit.page.page_id for hit in alone.hits] == [hit.page.page_id for hit in answer.hits] == ["a_1", "a_2"]
    assert not any(hit.also for hit in alone.hits), "a page that the filter leaves out is no place"
    if mode is Mode.TEXT:
        assert [hit.score for hit in alone.hits] == [hit.score for hit in answer.hits]


def test_as_many_different_pages_are_found_as_are_asked_for(platform: Platform):
    assert [hit.page.page_id for hit in searcher(platform).search("화면 밝기", top=2).hits] == ["a_1", "a_2"]


def test_the_package_names_all_places(platform: Platform):
    answer = kopub.open(platform.home).search("화면 밝기")
    assert {hit.page.id: [page.id for page in hit.also] for hit in answer} == ALIKE
    assert answer[0].also[0].document.id == "b"


@pytest.mark.services
def test_the_command_names_all_places(platform: Platform):
    shown = run(platform.home, "kopub", "search", "화면 밝기", "--top", "1").stdout.splitlines()
    assert shown[2].strip() == "the same page: b_1 b, page 1"
    (hit,) = json.loads(run(platform.home, "kopub", "search", "화면 밝기", "--top", "1", "--json").stdout)["hits"]
    (also,) = hit["also"]
    assert (also["page_id"], also["doc_id"], also["page_no"], also["shard"]) == ("b_1", "b", 1, "shard_01")
    assert also["source"] == hit["source"]


def test_the_room_and_the_api_name_all_places(room: Room):
    client = TestClient(reading_room(room), base_url="http://127.0.0.1")
    shown = client.get("/search", params={"q": "화면 밝기"}).text
    assert shown.count("<li id=") == 2
    assert 'The same page: <a href="/page?id=b_1&amp;q=' in shown
    hits = client.get("/api/v1/search", params={"q": "화면 밝기"}).json()["hits"]
    assert {hit["page"]["id"]: [page["id"] for page in hit["also"]] for hit in hits} == ALIKE
    assert hits[0]["also"][0]["document"] == "b"


def test_an_agent_is_told_all_places(room: Room):
    hits = CorpusTools(room, "http://127.0.0.1:3030/").search("화면 밝기").hits
    assert {hit.page: [cited.page for cited in hit.also] for hit in hits} == ALIKE
    assert hits[0].also[0].link == "http://127.0.0.1:3030/page?id=b_1"


def test_pages_without_a_known_picture_are_hits_of_their_own(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1"), pages("b_1")], [])
    platform.engines = {"embedding": HashedEmbedder(), "recognition": Typist(texts=TEXTS)}
    platform.make(*SEARCHED.split(","))
    for shard in ("shard_00", "shard_01"):
        (tmp_path / "store" / "raw_pages" / f"{shard}.parquet").unlink()
    assert len(searcher(platform).search("화면 밝기").hits) == 2
