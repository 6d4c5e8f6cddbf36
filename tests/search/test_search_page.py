"""The page to search with: what it shows, what it refuses, and that nothing a page says is more than text."""

import io
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from PIL import Image
from starlette.testclient import TestClient

from resources.pages.corpus import Corpus
from resources.search.web import search_app
from tests.cli.test_cli import BIN, run
from tests.search.test_search import TwoWayEmbedder, made, searcher
from tests.support.harness import Platform

HOSTILE = "화면 <script>alert(1)</script> \"><img src=x onerror=alert(2)> {{ 7 * 7 }} & '"


def browser(platform: Platform) -> TestClient:
    app = search_app(searcher(platform), Corpus(home=str(platform.home)))
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=True)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return made(tmp_path_factory.mktemp("page"), b_1=HOSTILE)


@pytest.fixture
def page(platform: Platform) -> TestClient:
    return browser(platform)


def address(html: str, start: str) -> str:
    """The first address on a page that begins so."""
    found = re.search(rf'"({re.escape(start)}[^"]*)"', html)
    assert found, html
    return found[1].replace("&amp;", "&")


def test_the_first_visit_asks(page: TestClient):
    shown = page.get("/")
    assert shown.status_code == 200
    assert 'role="search"' in shown.text
    assert "autofocus" in shown.text
    assert "<script" not in shown.text


def test_a_question_shows_pages_words_and_boxes(page: TestClient):
    shown = page.get("/", params={"q": "화면 밝기"})
    assert shown.status_code == 200
    assert '<input id="q" name="q" type="search" lang="ko" value="화면 밝기"' in shown.text
    assert "<mark>화면</mark> <mark>밝기</mark>" in shown.text
    assert re.search(r'<rect x="-4" y="-3" width="1008" height="1006" class="held"/>', shown.text)
    picture = page.get(address(shown.text, "/picture?"))
    assert picture.headers["content-type"] == "image/jpeg"
    assert "immutable" in picture.headers["cache-control"]
    of_another = re.sub("of=[0-9a-f]*", "of=0123456789abcdef", address(shown.text, "/picture?"))
    assert "cache-control" not in page.get(of_another).headers, "the browser would keep it under the wrong name"
    assert Image.open(io.BytesIO(picture.content)).size == (160, 220)


def test_a_page_shows_its_regions_with_the_words(page: TestClient):
    hit = page.get("/", params={"q": "밝기"}).text
    shown = page.get(address(hit, "/page?"))
    assert shown.status_code == 200
    assert "<h1>a, page 1</h1>" in shown.text
    assert 'id="text-0"' in shown.text
    assert 'href="#text-0"' in shown.text
    assert "<mark>밝기</mark>" in shown.text
    assert "size=large" in address(shown.text, "/picture?")


def test_nothing_that_a_page_or_a_query_says_is_markup(page: TestClient):
    asked = page.get("/", params={"q": HOSTILE})
    whole = page.get("/page", params={"shard": "shard_01", "id": "b_1", "q": "<b>화면</b>"})
    unknown = page.get("/page", params={"shard": "<script>", "id": "<script>x"})
    mode = page.get("/", params={"q": "화면", "mode": "<script>"})
    for shown in (asked, whole, unknown, mode):
        assert not re.search(r"<(script|b|img src=x)\b", shown.text)
    assert "&lt;" in asked.text
    assert "49" not in re.sub(r"<[^>]*>", "", whole.text)


def test_every_answer_forbids_scripts_and_foreign_things(page: TestClient):
    for path in ("/", "/?q=화면", "/?q=%3F", "/page?shard=x&id=y", "/style.css", "/picture?shard=x&id=y"):
        headers = page.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; img-src 'self'; style-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
    style = page.get("/style.css").text
    assert "http" not in style
    assert "url(" not in style
    assert not re.search(r'(src|href)="(https?:)?//', page.get("/?q=화면").text)


@pytest.mark.parametrize(
    ("path", "status", "line"),
    [
        ("/?q=", 400, "the query is empty"),
        ("/?q=%20", 400, "the query is empty"),
        ("/?q=%3F%21", 400, "the query has no vector"),
        (f"/?q={'x' * 20_000}", 400, "the query has 20,000 characters; shorten it to 2,000"),
        ("/?q=화면&mode=image", 400, "cannot search by image"),
        ("/?q=화면&mode=smell", 400, "is no way to search"),
        ("/page?shard=shard_00&id=nothing", 404, "there is no page"),
        ("/page?shard=..%2F..%2Fx&id=a_1", 404, "there is no page"),
        ("/page", 404, "there is no page"),
        ("/picture?shard=..%2F..%2Fx&id=a_1", 404, "there is no page"),
        ("/nowhere", 404, "Not Found"),
    ],
)
def test_what_cannot_be_shown_is_said(page: TestClient, platform: Platform, path: str, status: int, line: str):
    shown = page.get(path)
    assert (shown.status_code, line in shown.text) == (status, True), shown.text
    assert not list(platform.home.rglob("x")), "an address names no file"


def test_who_does_not_choose_searches_what_has_been_made(tmp_path: Path):
    platform, embedder = (
        made(tmp_path, select="raw_pages,layout_regions,ocr_results,parsed_texts"),
        TwoWayEmbedder(says={}),
    )
    platform.engines["embedding"] = embedder
    platform.make("corpus_text_embeddings")
    app = search_app(searcher(platform, embedder), Corpus(home=str(tmp_path)))
    visitor = TestClient(app, base_url="http://127.0.0.1")
    choices = re.findall(r'<option(?: value="([^"]*)")?>([^<]*)</option>', visitor.get("/").text)
    assert [name for _, name in choices[1:]] == ["fusion", "bm25", "vectors", "text", "image"]
    first = choices[0][0]
    assert "<mark>" in visitor.get("/", params={"q": "화면", "mode": first}).text
    assert "no image vectors yet" in visitor.get("/", params={"q": "화면", "mode": "vectors"}).text


def test_odd_numbers_of_pages_are_bounded(page: TestClient):
    for top, hits in (("1", 1), ("0", 1), ("-5", 3), ("9" * 30, 3), ("9" * 5000, 3), ("two", 3)):
        assert page.get("/", params={"q": "화면", "top": top}).text.count("<h2>") == hits


def test_only_reading_and_only_from_this_machine(page: TestClient):
    for method in ("post", "put", "delete", "patch"):
        assert getattr(page, method)("/").status_code == 405
    assert page.get("/", headers={"host": "evil.example"}).status_code == 400


def test_no_vectors_is_said(tmp_path: Path):
    shown = browser(made(tmp_path, select="raw_pages")).get("/?q=화면")
    assert (shown.status_code, "no text vectors yet: materialize" in shown.text) == (400, True)


@pytest.mark.parametrize(
    ("change", "says"),
    [("gone", "cannot be opened"), ("other", "does not hold the bytes that raw_pages saw of"), ("cut", "cut off")],
)
def test_a_page_whose_source_changed_is_shown_without_its_picture(tmp_path: Path, change: str, says: str):
    platform = made(tmp_path)
    source = next(path for path in tmp_path.rglob("data-0.arrow"))
    if change == "gone":
        source.unlink()
    elif change == "cut":
        source.write_bytes(source.read_bytes()[:400])
    else:
        content = source.read_bytes()
        at = content.index(b"IHDR")
        source.write_bytes(content[: at + 20] + b"\xff" + content[at + 21 :])
    page = browser(platform)
    shown = page.get("/", params={"q": "화면 밝기", "top": 1})
    assert shown.status_code == 200
    assert "<mark>밝기</mark>" in shown.text
    assert says in shown.text
    assert "<img" not in shown.text
    refused = page.get("/picture", params={"shard": "shard_00", "id": "a_1"})
    assert (refused.status_code, says in refused.text) == (404, True)


@pytest.mark.services
def test_a_port_that_is_taken_is_one_line(platform: Platform):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run(platform.home, "kopub", "search-page", "--port", str(port))
    assert refused.returncode == 1
    assert f"port {port} cannot be used" in refused.stderr
    assert "choose another with --port" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.services
def test_the_command_serves_on_this_machine_alone(platform: Platform):
    environment = {"PATH": "/usr/bin:/bin", "KOPUB_HOME": str(platform.home), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(BIN / "kopub"), "search-page", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = server.stdout.readline().split()[0]
        assert url.startswith("http://127.0.0.1:")
        body = ""
        for _ in range(100):
            try:
                body = urlopen(f"{url}/?q=%EB%B0%9D%EA%B8%B0", timeout=20).read().decode()
                break
            except OSError:
                time.sleep(0.1)
        server.terminate()
    assert "<mark>밝기</mark>" in body
