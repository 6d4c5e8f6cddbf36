"""The JSON API answers as the package does, and its errors are problem details."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

import kopub
import kopub.web.api
import kopub.web.gate
import kopub.web.room
from kopub.cli.options import corpus_check
from kopub.pages.indexing import index
from kopub.web.app import reading_room
from kopub.web.room import Room
from tests.search.test_search import TEXTS, made, searcher
from tests.support.harness import Platform
from tests.support.sources.corpora import page_image
from tests.web.test_room import HOSTILE, browser

TOKEN = "a secret of many letters, 비밀"
PATHS = ("corpus", "documents", "document", "pages", "page", "regions", "search", "lineage", "scores")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return made(tmp_path_factory.mktemp("api"), b_1=HOSTILE)


@pytest.fixture(scope="module")
def corpus(platform: Platform) -> kopub.Corpus:
    return kopub.open(platform.home)


@pytest.fixture
def api(platform: Platform) -> Iterator[TestClient]:
    with browser(platform) as client:
        client.base_url = "http://127.0.0.1/api/v1/"
        yield client


def guarded(platform: Platform) -> TestClient:
    settings = platform.settings
    room = Room(settings, searcher(platform), corpus_check(settings.corpus.manifest, settings.store))
    return TestClient(reading_room(room, ["*"], TOKEN), base_url="http://any.example")


def problem(answer: Any, status: int) -> str:
    """Assert that an answer is a problem, and return its detail."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    said = answer.json()
    assert said.keys() == {"type", "title", "status", "detail"}
    assert said["status"] == status
    return said["detail"]


def every(api: TestClient, path: str, **values: Any) -> list[dict[str, Any]]:
    found, cursor = [], ""
    while cursor is not None:
        part = api.get(path, params={**values, "cursor": cursor}).raise_for_status().json()
        found += part["items"]
        cursor = part["next"]
    return found


def test_the_answers_equal_those_of_the_package(api: TestClient, corpus: kopub.Corpus):
    told = api.get("corpus").json()
    assert (told["documents"], told["pages"]) == (len(corpus.documents), len(corpus.pages))
    assert told["states"] == corpus.pages.states
    assert [each["id"] for each in every(api, "documents", limit=1)] == corpus.documents.ids
    assert [each["id"] for each in every(api, "pages", limit=1)] == corpus.pages.ids
    assert [each["id"] for each in every(api, "pages", doubtful=True)] == corpus.pages.doubtful.ids
    assert [each["id"] for each in every(api, "pages", state="blank")] == corpus.pages.where("blank").ids
    for document in corpus.documents:
        assert [each["id"] for each in every(api, "pages", document=document.id)] == document.pages.ids
        assert api.get("markdown", params={"document": document.id}).text == document.markdown
    for page in corpus.pages:
        values = {"page": page.id}
        shown = api.get("page", params={"id": page.id}).json()
        for name in ("number", "shard", "state", "doubt", "width", "height", "sha256", "reason", "states", "text"):
            assert shown[name] == getattr(page, name)
        assert shown["next"] == (page.next and page.next.id)
        assert shown["origin"]["file"] == (page.origin and page.origin.file)
        assert shown["origin_problem"] is None
        assert api.get("markdown", params=values).text == page.markdown
        regions = api.get("regions", params=values).json()
        told = [(region.index, region.label, list(region.box), region.content, region.text) for region in page.regions]
        assert [(each["index"], each["label"], each["box"], each["content"], each["text"]) for each in regions] == told
        steps = api.get("lineage", params=values).json()
        assert [(each["asset"], each["fingerprint"]) for each in steps] == [
            (step.asset, step.fingerprint) for step in page.lineage
        ]
        assert [each["parameters"] for each in steps] == [
            json.loads(json.dumps(step.parameters)) for step in page.lineage
        ]


@pytest.mark.parametrize("mode", ["bm25", "text"])
def test_a_search_finds_what_the_package_finds(api: TestClient, corpus: kopub.Corpus, mode: str):
    found, known = (
        api.get("search", params={"query": "화면 밝기", "mode": mode}).json(),
        corpus.search("화면 밝기", mode=mode),
    )
    assert [(hit["page"]["id"], hit["score"], hit["passage"]) for hit in found["hits"]] == [
        (hit.page.id, hit.score, hit.passage) for hit in known
    ]
    assert [[each["index"] for each in hit["regions"]] for hit in found["hits"]] == [
        [region.index for region in hit.regions] for hit in known
    ]
    assert (found["searched"], found["matches_well"]) == (known.searched, known.matches_well)
    for scripts in (["HANGUL"], ["LATIN"], ["HANGUL", "LATIN"]):
        told = api.get(
            "search", params={"query": "화면 밝기", "mode": mode, "scripts": ",".join(scripts).lower()}
        ).json()
        chosen = corpus.search("화면 밝기", mode=mode, scripts=scripts)
        assert [hit["page"]["id"] for hit in told["hits"]] == [hit.page.id for hit in chosen]
    assert "script is 'THAI'" in problem(api.get("search", params={"query": "화면", "scripts": "thai"}), 400)


def test_a_page_that_was_made_a_moment_ago_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kopub.web.room, "_LOOK_AGAIN", 3600.0)
    platform = made(tmp_path / "home")
    later = {path: path.read_bytes() for path in (tmp_path / "home" / "store").glob("[a-z]*/shard_01.parquet")}
    for path in later:
        path.unlink()
    api = browser(platform)
    for path, content in later.items():
        path.write_bytes(content)
    found = api.get("/api/v1/search", params={"q": TEXTS["b_1"], "limit": 1})
    assert found.status_code == 200, found.text
    assert [hit["page"]["id"] for hit in found.json()["hits"]] == ["b_1"]


def test_a_page_is_told_without_its_origin_where_that_is_gone(tmp_path: Path):
    platform = Platform(tmp_path / "home")
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "one.png").write_bytes(page_image(1))
    index(str(tmp_path / "scans"), platform.home)
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    (rendered,) = (platform.home / "rendered").glob("*.parquet")
    rendered.unlink()
    shown = browser(platform).get("/api/v1/page?id=one_1").raise_for_status().json()
    assert (shown["document"], shown["state"], shown["origin"]) == ("one.png", "ok", None)
    assert shown["origin_problem"] == f"{rendered} cannot be opened: No such file or directory; run `kopub index` again"


def test_pictures_come_by_size(api: TestClient):
    small, full = (api.get("picture", params={"page": "a_1", "size": size}) for size in ("thumb", "full"))
    assert small.headers["content-type"] == "image/jpeg"
    assert full.content.startswith(b"\x89PNG")
    assert small.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("page?id=../../etc/passwd", 404),
        ("page?id=%00%FF%ED%A0%80", 404),
        ("page", 400),
        (f"page?id={'x' * 5000}", 400),
        ("regions?page=<script>", 404),
        ("document?id=nobody", 404),
        ("pages?limit=0", 400),
        ("pages?limit=1000000000000000000000000000000", 400),
        ("pages?state=lost", 400),
        ("pages?shard=nowhere", 404),
        ("pages?cursor=x", 400),
        ("pages?cursor=WzEsICJhXzIiXQ==", 400),
        ("pages?cursor=Wy0xLCAiYV8xIl0=", 400),
        ("pages?cursor=W3RydWUsICJhXzEiXQ==", 400),
        (f"documents?cursor={'W1tb' * 500}", 400),
        ("documents?cursor=%FF%00", 400),
        ("picture?page=a_1&size=1000000", 400),
        ("markdown", 400),
        ("markdown?page=a_1&document=a", 400),
        ("markdown?document=a&first=-1", 400),
        ("markdown?document=a&first=2&last=1", 400),
        ("markdown?document=a&first=3", 400),
        ("search?query=", 400),
        ("search?query=%20", 400),
        ("search", 400),
        (f"search?query={'x' * 3000}", 400),
        ("search?query=x&mode=magic", 400),
        ("search?query=x&shard=nowhere", 404),
        ("search?query=x&document=nobody", 404),
        ("nowhere", 404),
        ("../v1/%2e%2e/page", 404),
    ],
)
def test_what_is_hostile_gets_a_problem(api: TestClient, path: str, status: int):
    assert problem(api.get(path), status)


def test_a_method_that_changes_is_not_allowed(api: TestClient):
    for refused in (api.post("pages", json={}), api.delete("page?id=a_1"), api.options("corpus")):
        assert problem(refused, 405) == "the API is read-only: ask with GET"
        assert refused.headers["allow"] == "GET"


def test_a_request_for_the_headers_alone_is_answered_as_get_is(api: TestClient):
    for path in ("corpus", "page?id=a_1", "picture?page=a_1", "openapi.json", "page?id=nobody", "nowhere"):
        asked, whole = api.head(path), api.get(path)
        assert (asked.status_code, asked.headers, asked.content) == (whole.status_code, whole.headers, b"")


def test_what_is_mistyped_says_what_there_is(api: TestClient):
    assert "/api/v1/openapi.json" in problem(api.get("/api/v1"), 404)
    assert "did you mean shard_00" in problem(api.get("pages?shard=shard_0"), 404)
    assert "there is no parameter 'shards'; did you mean shard?" in problem(api.get("pages?shards=shard_00"), 400)
    assert "has 2 pages, counted from 1, and first is 3" in problem(api.get("markdown?document=a&first=3"), 400)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "127.0.0.1@evil.example"}, 421),
        ({"host": ""}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ([(b"host", b"127.0.0.1"), (b"host", b"evil.example")], 421),
    ],
)
def test_another_site_is_refused(api: TestClient, headers: dict[str, str] | list[tuple[bytes, bytes]], status: int):
    problem(api.get("corpus", headers=headers), status)


def test_the_room_and_programs_of_this_machine_may_ask(api: TestClient):
    for headers in ({}, {"origin": "http://127.0.0.1"}, {"host": "localhost:3030"}, {"host": "[::1]:3030"}):
        assert api.get("corpus", headers=headers).status_code == 200


def test_others_need_the_token(platform: Platform):
    client = guarded(platform)
    for sent in ([], [(b"authorization", b"Bearer wrong")], [(b"authorization", f"Basic {TOKEN}".encode())]):
        refused = client.get("/api/v1/openapi.json", headers=sent)
        problem(refused, 401)
        assert refused.headers["www-authenticate"] == "Bearer"
    for scheme in ("Bearer", "bearer"):
        sent = [(b"authorization", f"{scheme} {TOKEN}".encode())]
        assert client.get("/api/v1/corpus", headers=sent).status_code == 200
    assert client.get("/").status_code == 200


def test_an_answer_that_takes_too_long_is_given_up(api: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kopub.web.gate, "_SECONDS", 0.1)
    monkeypatch.setattr(kopub.Page, "regions", property(lambda page: sleep(0.5) or ()))
    answer = api.get("regions?page=a_1")
    assert "took more than" in problem(answer, 503)
    assert answer.headers["retry-after"]


def test_the_cause_of_an_inner_error_stays_in_the_log(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    def failing(page: kopub.Page) -> str:
        raise RuntimeError("/home/someone/secret")

    monkeypatch.setattr(kopub.Page, "markdown", property(failing))
    client = TestClient(guarded(platform).app, "http://any.example", raise_server_exceptions=False)
    answer = client.get("/api/v1/markdown?page=a_1", headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    assert problem(answer, 500) == "the server failed: see its log"


def test_more_pages_than_an_answer_may_have_are_refused(api: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kopub.web.api, "_MOST_PAGES", 1)
    assert "name the first and the last" in problem(api.get("markdown?document=a"), 400)
    assert api.get("markdown?document=a&first=2&last=2").status_code == 200


@pytest.mark.slow
def test_500_requests_at_once_are_answered(api: TestClient):
    paths = ["corpus", "pages", "page?id=a_1", "regions?page=a_2", "picture?page=b_1", "search?query=밝기", "page?id=x"]
    with ThreadPoolExecutor(500) as asking:
        answers = list(asking.map(lambda at: api.get(paths[at % len(paths)]).status_code, range(500)))
    assert answers == [404 if paths[at % len(paths)] == "page?id=x" else 200 for at in range(500)]


def test_the_description_is_openapi(api: TestClient):
    described = api.get("openapi.json").json()
    validate(described)
    assert {f"/api/v1/{path}" for path in (*PATHS, "markdown", "picture")} == described["paths"].keys()
    assert all(path.keys() == {"get"} for path in described["paths"].values())


def test_a_generated_client_works(api: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "openapi.json").write_text(json.dumps(api.get("openapi.json").json()))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none"]
    command += ["--output-path", "corpus_client"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # The generator cannot parse image responses, whose bytes `sync_detailed` returns anyway.
    said = done.stdout + done.stderr
    assert re.findall(r"parsing (\S+ \S+)", said) == ["GET /api/v1/picture"]
    monkeypatch.syspath_prepend(tmp_path)
    client = importlib.import_module("corpus_client").Client(base_url="http://127.0.0.1").set_httpx_client(api)
    asking = {path: importlib.import_module(f"corpus_client.api.default.{path}").sync for path in PATHS}
    api.base_url = "http://127.0.0.1"
    assert asking["corpus"](client=client).pages == 4
    first = asking["pages"](client=client, limit=1)
    assert first.items[0].id == "a_1"
    assert asking["pages"](client=client, limit=1, cursor=first.next_).items[0].id == "a_2"
    assert asking["search"](client=client, query="밝기").hits[0].page.id == "a_1"
    assert asking["regions"](client=client, page="a_1")[0].label == "text"


def test_prometheus_reads_pages_by_state_scores_and_requests(platform: Platform, corpus: kopub.Corpus):
    with browser(platform) as client:
        client.get("/documents")
        client.get("/api/v1/nothing")
        answer = client.get("/metrics")
        client.get("/metrics", headers={"host": "evil.example"})
        again = client.get("/metrics").text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    figures = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert figures["kopub_corpus_pages",] == len(corpus.pages)
    for state, count in corpus.pages.states.items():
        if state.value in ("failed", "quarantined"):
            assert figures["kopub_listed_pages", state.value] == count
    made = [value for name, value in figures.items() if name[0] == "kopub_table_rows" and "raw_pages" in name]
    assert sum(made) == len(corpus.pages)
    assert figures["kopub_requests_total", "room", "200"] == 1
    assert figures["kopub_requests_total", "api", "404"] == 1
    assert 'kopub_requests_total{door="room",status="400"} 1.0' in again
