"""The reading room: what it shows and refuses, and that texts never become markup."""

import io
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import ClassVar, cast
from urllib.parse import quote, unquote

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pypdfium2 import PdfDocument
from starlette.testclient import TestClient

import kopub
import kopub.web.answers
import kopub.web.room
import kopub.web.views.document
from kopub.cli.options import corpus_check
from kopub.config.choices import ReadingRoom
from kopub.embedding.hashed import HashedEmbedder
from kopub.evaluation.benchmark import Benchmark, PageText, Sample
from kopub.evaluation.home import KnownAnswers, write_gold
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.indexing import index
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import Crop, PageReading, RegionText, page_reading
from kopub.search import words
from kopub.search.options import Mode
from kopub.search.words import tokenise
from kopub.states import State
from kopub.web.app import reading_room
from kopub.web.downloads import DOWNLOADS
from kopub.web.room import Room
from tests.search.test_search import TEXTS, TwoWayEmbedder, Typist, made, searcher
from tests.support.harness import Platform
from tests.support.sources.corpora import page_image, pages, query, table, write_arrow

HOSTILE = "화면 <script>alert(1)</script> \"><img src=x onerror=alert(2)> {{ 7 * 7 }} & '"
HOSTILE_TABLE = (
    '<table onclick="alert(1)"><caption>표</caption><tr><td colspan="2" rowspan="9999999" style="color:red">칸'
    "<script>alert(3)</script><img src=x onerror=alert(4)><a href='http://evil.example'>밖</a></td><td>둘</td></tr></table>"
)
MADE = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_text_embeddings")
KOREAN = {"accept-language": "ko-KR,ko;q=0.9,en;q=0.8"}
BOXES = {"table": (10.0, 10.0, 150.0, 60.0), "image": (10.0, 70.0, 80.0, 120.0), "text": (10.0, 130.0, 150.0, 210.0)}


class ThreeBoxes(LayoutDetector):
    """Finds a table, an image and a text on every page; the page `lost` fails."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.three_boxes", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"lost"})
    lost: str = ""

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        tasks = {"table": Task.TABLE, "image": Task.SKIP, "text": Task.TEXT}
        regions = tuple(Region(at, name, tasks[name], 0.9, box) for at, (name, box) in enumerate(BOXES.items()))
        for page in pages:
            if page.page_id == self.lost:
                yield Layout(page.page_id, State.FAILED, "asked to fail")
            else:
                yield Layout(page.page_id, State.OK, None, regions)


class Scribe(Recognizer):
    """Reads the same table and text on every page; the text of `partly` fails."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.scribe", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"partly"})
    text: str
    table: str = HOSTILE_TABLE
    partly: str = ""

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for page, regions in pages:
            said = {"table": self.table, "text": self.text}
            texts = [RegionText(r.index, r.label, said.get(r.label, "")) for r in regions]
            if page.page_id == self.partly:
                texts[-1] = RegionText(2, "text", "", State.FAILED, "the answer was cut off")
            cut = Crop(f"crops/{page.page_id}_1.jpg", BOXES["image"], "image", page_image(1, format="JPEG"))
            yield page_reading(page.page_id, texts, [cut])


def browser(platform: Platform, embedding: HashedEmbedder | None = None) -> TestClient:
    settings = platform.settings
    room = Room(settings, searcher(platform, embedding), corpus_check(settings.corpus.manifest, settings.store))
    return TestClient(reading_room(room), base_url="http://127.0.0.1", raise_server_exceptions=True)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return made(tmp_path_factory.mktemp("room"), b_1=HOSTILE)


@pytest.fixture(scope="module")
def room(platform: Platform) -> TestClient:
    return browser(platform)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    """Return a platform with doubtful, partial, failed and quarantined pages, tables, images and a question."""
    home = tmp_path_factory.mktemp("troubled")
    shards = [
        pages("a_1", "a_2", "a_3"),
        [*pages("b_1"), ("b_2", b"no picture"), ("b_3", page_image(9, format="TIFF"))],
    ]
    platform = Platform.of(home, shards, [query("q1", "무엇을 <b>찾나요?</b>", "a_1")])
    garbled = "좋은 글 " + "�" * 40 + " 나쁜 글"
    platform.engines = {
        "layout": ThreeBoxes(lost="a_3"),
        "recognition": Scribe(text=garbled, partly="a_2"),
        "embedding": HashedEmbedder(),
    }
    platform.make(*MADE)
    return platform


def address(html: str, start: str) -> str:
    """Return the first address on a page that begins with `start`."""
    found = re.search(rf'"({re.escape(start)}[^"]*)"', html)
    assert found, html
    return found[1].replace("&amp;", "&")


def plain(html: str) -> str:
    """Return the visible text of a page."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_the_first_page_counts_and_asks(troubled: Platform):
    shown = browser(troubled).get("/").text
    assert 'role="search"' in shown
    for count, what in (
        ("2", "documents"),
        ("6", "pages"),
        ("1", "Partly read"),
        ("1", "Failed"),
        ("1", "Quarantined"),
    ):
        assert f"<b>{count}</b><span>{what}</span>" in shown
    assert "무엇을 &lt;b&gt;찾나요?&lt;/b&gt;" in shown
    assert re.search(r"<code>ocr_results</code></th><td>2/2</td>", shown)


def test_a_home_without_tables_says_what_to_do(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1")], [])
    platform.engines = {"embedding": HashedEmbedder()}
    assert "Nothing of this corpus has been read yet" in browser(platform).get("/").text


def test_a_document_of_a_very_long_name_is_found(tmp_path: Path):
    name = "가나다라마" * 1000
    columns = {"file_name": [name, name, "short"], "page_number": [1, 2, 1]}
    write_arrow(tmp_path / "source" / "a.arrow", table(pages("a_1", "a_2", "b_1"), columns))
    index(str(tmp_path / "source"), tmp_path / "home")
    platform = Platform(tmp_path / "home")
    platform.engines = {"embedding": HashedEmbedder()}
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    page = browser(platform)
    for listed in ("/documents", "/page?id=a_2"):
        shown = page.get(address(page.get(listed).text, "/document?"))
        assert shown.status_code == 200
        assert re.findall(r"<strong>(.*?)</strong>", shown.text) == ["Page 1", "Page 2"]
    assert page.get("/document?of=nothing").status_code == 404


def test_a_document_leads_to_its_pages_and_their_neighbours(room: TestClient):
    listed = room.get("/documents").text
    shown = room.get(address(listed, "/document?")).text
    assert re.findall(r"<strong>(.*?)</strong>", shown) == ["Page 1", "Page 2"]
    first = room.get(address(shown, "/page?")).text
    assert "<h1>a, page 1</h1>" in first
    assert 'rel="next" href="/page?id=a_2" data-key="ArrowRight"' in first
    assert 'rel="prev" href="/page?id=a_1"' in room.get("/page?id=a_2").text


def test_a_page_and_a_document_lead_to_the_documents_beside_theirs(room: TestClient):
    first, last = room.get("/page?id=a_2&view=markdown").text, room.get("/page?id=b_1").text
    assert 'href="/page?id=b_1&amp;view=markdown" data-key="]"' in first
    assert 'data-key="["' not in first
    assert 'href="/page?id=a_1" data-key="["' in last
    assert 'data-key="]"' not in last
    assert 'href="/document?id=b" data-key="]"' in room.get("/document?id=a").text
    assert 'href="/document?id=a" data-key="["' in room.get("/document?id=b").text


@pytest.mark.parametrize(
    ("asked", "names"), [("name=B", ["b"]), ("shard=shard_00", ["a"]), ("shard=nowhere", ["a", "b"]), ("name=ㅎ", [])]
)
def test_documents_are_found_by_name_and_shard(room: TestClient, asked: str, names: list[str]):
    assert re.findall(r"<strong>(.*?)</strong>", room.get(f"/documents?{asked}").text) == names


def test_a_question_shows_pages_words_and_boxes(room: TestClient):
    shown = room.get("/search", params={"q": "화면 밝기"})
    assert shown.status_code == 200
    assert 'value="화면 밝기"' in shown.text
    assert "<mark>화면</mark> <mark>밝기</mark>" in shown.text
    assert re.search(r'<rect x="0" y="0" width="1000" height="1000" class="hue-text held"/>', shown.text)
    picture = room.get(address(shown.text, "/picture?"))
    assert picture.headers["content-type"] == "image/jpeg"
    assert "immutable" in picture.headers["cache-control"]
    of_another = re.sub("of=[0-9a-f]*", "of=0123456789abcdef", address(shown.text, "/picture?"))
    assert "immutable" not in room.get(of_another).headers["cache-control"], "it would be kept under the wrong name"
    assert Image.open(io.BytesIO(picture.content)).size == (160, 220)


def test_a_hit_shows_the_words_on_the_page_and_leads_back(room: TestClient):
    hits = room.get("/search", params={"q": "밝기"}).text
    shown = room.get(address(hits, "/page?")).text
    assert "<h1>a, page 1</h1>" in shown
    assert "<mark>밝기</mark>" in shown
    assert re.search(r'class="hue-text held"', shown)
    back = address(shown, "/search?q")
    assert back.endswith("#a_1")
    assert 'id="a_1"' in room.get(back).text


def test_a_hit_leads_to_its_passage_and_a_weak_one_looks_weak(room: TestClient):
    queries = ({"q": query, "mode": "fusion"} for query in ("화면 밝기", "김치찌개"))
    good, bad = (room.get("/search", params=query).text for query in queries)
    assert address(good, "/page?").endswith("#text-0")
    assert ('class="weak"' in good, "weak match" in good) == (False, False)
    assert bad.count('class="weak"') == bad.count("weak match") == bad.count("<li id=") > 0


def test_pages_are_found_inside_a_document_and_by_the_day_of_their_index(room: TestClient):
    form = room.get("/document", params={"id": "b"}).text
    assert '<input type="hidden" name="doc" value="b">' in form
    found = room.get("/search", params={"q": "화면", "doc": "b", "since": "2020-01-31"}).text
    assert re.findall('<li id="(.)', found) == ["b"]
    for since, line in (("2999-01-31", "nothing was indexed since 2999-01-31"), ("soon", "is no date")):
        refused = room.get("/search", params={"q": "화면", "since": since})
        assert (refused.status_code, line in refused.text) == (400, True)


def test_printed_lines_are_shown_as_paragraphs_and_found_over_their_breaks(tmp_path: Path):
    printed = (
        "화면 밝기를 조절하려면 시스템 메뉴를 누르고 밝\n기 막대를 움직여 알맞은 밝기를 찾습니다.\n"
        "```python\nprint(1)\nprint(2)\n```\n• 첫째 항목은 이렇습니다.\n• 둘째 항목은 저렇습니다."
    )
    platform = Platform.of(tmp_path, [pages("a_1")])
    platform.engines = {"layout": ThreeBoxes(), "recognition": Scribe(text=printed), "embedding": HashedEmbedder()}
    platform.make(*MADE[:4])
    shown = browser(platform).get("/page", params={"id": "a_1", "q": "밝기 막대"}).text
    said = [plain(each) for each in re.findall(r'<p class="said.*?</p>', shown, re.DOTALL)]
    assert said[0] == "화면 밝기 를 조절하려면 시스템 메뉴를 누르고 밝기 막대 를 움직여 알맞은 밝기 를 찾습니다."
    assert said[1:] == ["print(1) print(2)", "• 첫째 항목은 이렇습니다.", "• 둘째 항목은 저렇습니다."]
    assert '<p class="said code" lang="ko">print(1)\nprint(2)</p>' in shown


def test_regions_and_texts_are_tied_to_each_other(troubled: Platform):
    shown = browser(troubled).get("/page?id=a_1").text
    for at in range(3):
        assert f'id="box-{at}"' in shown
        assert f'href="#text-{at}"' in shown
        assert f'id="text-{at}" data-region="{at}"' in shown
        assert f'href="#box-{at}"' in shown


def test_a_table_is_rendered_without_what_is_no_table(troubled: Platform):
    page = browser(troubled)
    for view in ("text", "markdown"):
        shown = page.get("/page", params={"id": "a_1", "view": view}).text
        rendered = shown[shown.index("<table>") : shown.index("</table>")]
        assert '<td colspan="2">칸' in rendered
        assert "밖" in rendered
        assert not re.search(r"<(?:script|img|a)\b|<[^>]*(?:onclick|onerror|style|href|src|rowspan)", rendered)


def test_the_markdown_of_a_page_shows_its_own_pictures_alone(troubled: Platform):
    shown = browser(troubled).get("/page?id=a_1&view=markdown").text
    rendered = re.sub(r"<pre.*?</pre>", "", shown, flags=re.S)
    assert not re.search("<[^>]*http://evil.example", rendered)
    assert re.findall(r'<img src="(/figure[^"]*)"', rendered) == ["/figure?id=a_1&amp;region=1"]


def test_a_link_that_was_read_is_no_link_in_the_room(tmp_path: Path):
    links = "[click](javascript:alert(1)) ![p](file:///etc/passwd) [b]: data:text/html,x\n\n[a](java&#115;cript:x) [b]"
    room = browser(made(tmp_path, a_1=links))
    for view in ("text", "markdown"):
        shown = room.get(f"/page?id=a_1&view={view}").text
        assert "click" in shown
        assert not re.search(r"""(?:href|src)=["'](?:javascript|java&|file|data)""", shown)
    assert kopub.open(tmp_path).page("a_1").markdown.startswith("[click\\](javascript:alert(1)) \\![p\\](file:")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_picture_that_was_read_is_no_picture_in_the_text_of_a_document(tmp_path: Path):
    room = browser(made(tmp_path, a_1=f"![p](99-1) ![q](0-0) ![r]({'9' * 5000}-1)"))
    shown = room.get("/document?id=a&view=text").text
    assert "![q](0-0)" in shown
    assert not re.search("<img[^>]* src=", shown)


def test_a_region_is_cut_out_of_its_page(troubled: Platform):
    page = browser(troubled)
    cut = page.get("/figure?id=a_1&region=1")
    assert Image.open(io.BytesIO(cut.content)).size == (70, 50)
    assert page.get("/figure?id=a_1&region=99").status_code == 404
    listed = page.get("/figures").text
    assert "4 figures" in listed
    assert page.get(address(listed, "/figure?")).content == cut.content
    assert page.get(address(listed, "/page?").partition("#")[0]).status_code == 200


@pytest.mark.parametrize(
    ("kind", "page_id", "why"),
    [
        ("doubtful", "a_1", "of the characters are broken"),
        ("partial", "a_2", "the answer was cut off"),
        ("failed", "a_3", "asked to fail"),
        ("quarantined", "b_2", "not a PNG, JPEG, WEBP, TIFF image"),
    ],
)
def test_pages_to_look_at_are_listed_with_the_reason(troubled: Platform, kind: str, page_id: str, why: str):
    listed = browser(troubled).get(f"/pages?kind={kind}").text
    assert why in listed
    assert f'href="/page?id={page_id}&amp;walk={kind}"' in listed


def test_reasons_are_told_in_korean_wherever_they_stand(troubled: Platform):
    page = browser(troubled)
    cut, picture = "답이 도중에 끊겼습니다", "PNG, JPEG, WEBP, TIFF 그림이 아닙니다"
    for address, why in (
        ("/pages?kind=partial", f"2번 영역(글): {cut}"),
        ("/page?id=a_2", cut),
        ("/page?id=a_2&view=history", f"2번 영역(글): {cut}"),
        ("/pages?kind=quarantined", picture),
        ("/page?id=b_2", picture),
    ):
        shown = plain(page.get(address, headers={"Accept-Language": "ko"}).text)
        assert why in shown
        assert "cut off" not in shown
        assert "not a PNG" not in shown


def test_a_list_is_walked_through_page_by_page(troubled: Platform):
    page = browser(troubled)
    shown = listed = page.get("/pages?kind=doubtful").text
    seen, at = [], address(listed, "/page?")
    while at:
        shown = page.get(at).text
        seen.append(re.findall(r"<h1>(.*?)</h1>", shown)[0])
        found = re.search(r'rel="next" href="([^"]*)" data-key="ArrowRight"', shown)
        at = found[1].replace("&amp;", "&") if found else ""
    assert seen == re.findall(r"<strong>(.*?)</strong>", listed)
    assert len(seen) == 4
    assert "4 of 4" in plain(shown)
    assert 'href="/pages?kind=doubtful"' in shown


def test_a_page_shows_its_doubts_its_states_and_how_it_was_made(troubled: Platform):
    page = browser(troubled)
    doubted = page.get("/page?id=a_1").text
    assert "<strong>This text looks wrong</strong>" in doubted
    assert '<span class="state doubtful">' in doubted
    assert '<span class="state ok">' not in doubted, "a page that is known to be misread looks all right"
    made = plain(page.get("/page?id=a_2&view=history").text)
    for part in ("raw_pages", "ocr_results", "partly read", "shard_00", "SHA-256", "corpus_text_embeddings"):
        assert part in made


def test_a_run_leads_to_dagster_where_its_address_is_known(platform: Platform):
    shown = browser(platform).get("/page?id=a_1&view=history").text
    assert re.search(r'<a href="http://127\.0\.0\.1:3000/runs/[0-9a-f-]{36}" rel="noopener">', shown)
    settings = replace(platform.settings, reading_room=ReadingRoom(dagster_url=None))
    room = Room(settings, searcher(platform), corpus_check(settings.corpus.manifest, settings.store))
    unlinked = TestClient(reading_room(room), base_url="http://127.0.0.1").get("/page?id=a_1&view=history").text
    assert "/runs/" not in unlinked


def test_a_page_is_reached_by_its_number(room: TestClient):
    shown = room.get("/page?id=a_1&view=markdown").text
    assert '<input type="hidden" name="id" value="a_1"><input type="hidden" name="view" value="markdown">' in shown
    assert "<h1>a, page 2</h1>" in room.get("/page?id=a_1&view=markdown&number=2").text
    for number in ("9", "x", "9" * 5000, "-1"):
        assert "<h1>a, page 1</h1>" in room.get("/page", params={"id": "a_1", "number": number}).text


def test_a_page_and_a_document_are_files(room: TestClient, platform: Platform):
    corpus = kopub.open(platform.home)
    page, document = room.get("/page?id=a_1").text, room.get("/document?id=a").text
    got = room.get(address(page, "/markdown?"))
    assert got.text == TEXTS["a_1"]
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''a_1.md"
    assert got.headers["content-type"] == "text/markdown; charset=utf-8"
    got = room.get(address(page, "/json?"))
    assert got.json() == json.loads(json.dumps(corpus.page("a_1").to_dict()))
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''a_1.json"
    whole = room.get(address(document, "/json?"))
    assert whole.json() == json.loads(json.dumps(corpus.documents["a"].to_dict()))
    assert whole.headers["content-disposition"] == "attachment; filename*=UTF-8''a.json"
    assert room.get(address(document, "/markdown?")).text == corpus.documents["a"].to_markdown()
    pdf = room.get(address(document, "/pdf?"))
    assert pdf.headers["content-disposition"] == "attachment; filename*=UTF-8''a.pdf"
    read = [page.get_textpage().get_text_bounded().split() for page in PdfDocument(pdf.content)]
    assert read == [TEXTS[each].split() for each in ("a_1", "a_2")]
    assert len(PdfDocument(room.get(address(page, "/pdf?")).content)) == 1
    for wrong in ("/markdown?id=nobody", "/json?of=nobody", "/json"):
        assert room.get(wrong).status_code == 404


def test_the_name_of_a_file_is_safe_in_korean_too(tmp_path: Path):
    ids = ["가 나#?%_1", "보고서_1"]
    platform = Platform.of(tmp_path, [pages(*ids)], [])
    platform.engines = {"embedding": HashedEmbedder()}
    platform.make("raw_pages")
    page = browser(platform)
    names = [page.get(f"/json?id={quote(each)}").headers["content-disposition"] for each in ids]
    assert all(re.fullmatch(r"attachment; filename\*=UTF-8''[\w.%-]+", name) for name in names)
    assert unquote(names[1]).endswith("''보고서_1.json")
    assert unquote(names[0]).endswith("''가_나__1.json")


def test_a_document_that_is_too_long_for_a_file_is_left_to_export(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(cast(dict, DOWNLOADS), "markdown", replace(DOWNLOADS["markdown"], most=1))
    page = browser(platform)
    refused = page.get("/markdown?of=a_1")
    assert (refused.status_code, "run `kopub export`" in refused.text) == (404, True)
    assert page.get("/markdown?id=a_1").status_code == 200
    # A browser shows why there is no file only behind a link that does not say that it is one.
    (link,) = re.findall(r'<a href="/markdown[^>]*>', page.get("/document?id=a").text)
    assert link.endswith('.md">')


def test_a_document_is_one_text_whose_pages_lead_to_theirs(troubled: Platform, monkeypatch: pytest.MonkeyPatch):
    page = browser(troubled)
    shown = page.get(address(page.get("/document?id=a").text, "/document?id=a&amp;view")).text
    leaves = re.findall(r'<a class="leaf" id="([^"]*)" href="/page\?id=(a_\d)">(.*?)</a>', shown)
    assert [(name, plain(said)) for _, name, said in leaves] == [
        ("a_1", "Page 1 doubtful"),
        ("a_2", "Page 2 partly read doubtful"),
        ("a_3", "Page 3 failed"),
    ]
    text = shown.partition('class="panel rendered')[2].partition("</div>")[0]
    assert text.count("<table>") == 2
    assert re.findall(r'<img src="([^"]*)"', text) == [f"/figure?id=a_{n}&amp;region=1" for n in (1, 2)]
    assert "Page 3 could not be read (failed): asked to fail" in text
    korean = plain(page.get("/document?id=a&view=text", headers=KOREAN).text)
    assert "2쪽의 2번 영역(글)을 읽지 못했습니다: 답이 도중에 끊겼습니다" in korean
    assert "3쪽을 읽지 못했습니다: asked to fail" in korean
    assert not re.search(r"<!--|script|onclick|onerror|evil.example", re.sub(r"&lt;.*?&gt;", "", text))
    assert 'href="/document?id=b&amp;view=text" data-key="]"' in shown

    monkeypatch.setattr(kopub.web.views.document, "TEXT_PAGES", 2)
    parts = [page.get(f"/document?id=a&view=text&part={at}").text for at in (1, 2)]
    assert [re.findall(r'class="leaf" [^>]*id=(a_\d)', each) for each in parts] == [["a_1", "a_2"], ["a_3"]]
    where = address(page.get("/page?id=a_3").text, "/document?id=a&amp;view=text")
    assert where == f"/document?id=a&view=text&part=2#{leaves[2][0]}"


def test_a_document_that_is_named_like_a_page_has_its_marks_at_its_pages(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("page 3_1", "page 3_2")], [])
    platform.engines = {"recognition": Typist(texts={"page 3_1": "처음 글.", "page 3_2": "다음 글."})}
    platform.make(*MADE[:4])
    shown = browser(platform).get("/document?id=page 3&view=text").text
    assert re.findall('class="leaf" id="page-shard_00-[01]"|처음 글|다음 글', shown.partition("<details")[0]) == [
        'class="leaf" id="page-shard_00-0"', "처음 글", 'class="leaf" id="page-shard_00-1"', "다음 글",
    ]  # fmt: skip


def test_printed_lines_are_paragraphs_in_the_text_of_a_document(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")])
    lines = "화면 밝기를 조절하려면 시스템 메뉴를 누르고 밝\n기 막대를 움직여 알맞은 밝기를 찾은 다음 저장\n" * 4
    platform.engines = {"layout": ThreeBoxes(), "recognition": Scribe(text=lines), "embedding": HashedEmbedder()}
    platform.make(*MADE[:4])
    shown = browser(platform).get("/document?id=a&view=text").text
    assert shown.count("시스템 메뉴를 누르고 밝기 막대를") == 2 * 8, "in the text and its source"


def test_a_reason_in_english_is_introduced_in_korean(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")])
    platform.engines["layout"] = ThreeBoxes(lost="a_1")
    platform.make("raw_pages", "layout_regions")
    page = browser(platform)
    told = '<span lang="en">asked to fail</span>'
    korean = page.get("/page?id=a_1", headers={"Accept-Language": "ko"}).text
    assert f'<span class="quiet">이유(영어):</span> {told}' in korean
    english = page.get("/page?id=a_1").text
    assert told in english
    assert "Reason:" not in english


def test_tabs_lead_to_the_top_of_their_page(room: TestClient):
    tabs = re.findall(r'<a href="(/page[^"]*)"', room.get("/page?id=a_1").text.partition('id="view"')[2])
    assert len(tabs) >= 3
    assert not any("#" in tab for tab in tabs[:3])


def test_a_page_that_cannot_be_decoded_has_no_picture_and_a_tiff_has_one(troubled: Platform):
    page = browser(troubled)
    listed = page.get("/document?id=b").text
    assert re.findall(r"/picture\?id=b_(\d)", listed) == ["1", "3"]
    assert "<img" not in page.get("/page?id=b_2").text
    for size in ("thumb", "full"):
        assert Image.open(io.BytesIO(page.get(f"/picture?id=b_3&size={size}").content)).format == "JPEG"
    assert Image.open(io.BytesIO(page.get("/picture?id=a_1&size=full").content)).format == "PNG", "as it lies there"


def test_each_language_is_whole_and_alone(troubled: Platform):
    page = browser(troubled)
    for path in ("/", "/documents", "/pages?kind=partial", "/page?id=a_1", "/search?q=글", "/evaluation", "/nowhere"):
        korean, english = page.get(path, headers=KOREAN), page.get(path, headers={"accept-language": "en"})
        assert '<html lang="ko">' in korean.text
        assert '<html lang="en">' in english.text
        assert korean.headers["content-language"] == "ko"
        assert korean.headers["vary"] == "Accept-Language, Cookie"
        for word in ("Documents", "Search", "Figures"):
            assert word in english.text
            assert word not in korean.text
    doubt = page.get("/page?id=a_1", headers=KOREAN).text
    assert "글자의 " in doubt
    assert "of the characters" not in doubt


def test_nothing_that_a_page_or_a_query_says_is_markup(room: TestClient):
    asked = room.get("/search", params={"q": HOSTILE})
    whole = room.get("/page", params={"id": "b_1", "q": "<b>화면</b>"})
    markdown = room.get("/page", params={"id": "b_1", "view": "markdown"})
    unknown = room.get("/page", params={"id": "<script>x"})
    document = room.get("/document", params={"id": "<script>x"})
    name = room.get("/documents", params={"name": '"><script>x', "shard": "<script>"})
    for shown in (asked, whole, markdown, unknown, document, name):
        assert not re.search(r"<(script(?! src=\"/static/room.js)|b|img src=x)\b", shown.text)
    assert "&lt;" in asked.text
    assert "49" not in plain(whole.text)


def test_hostile_ids_are_shown_and_lead_to_their_pages(tmp_path: Path):
    ids = ['"><img src=x onerror=alert(1)>_1', "{{ 7*7 }}&id=b_2", "가 나#?%_3", "javascript:alert(1)"]
    platform = Platform.of(tmp_path, [pages(*ids)], [])
    platform.engines = {"embedding": HashedEmbedder()}
    platform.make("raw_pages")
    page = browser(platform)
    listed = page.get("/documents").text
    assert not re.search(r"<img src=x", listed)
    for start in set(re.findall(r'href="(/document\?[^"]*)"', listed)):
        for inner in re.findall(r'href="(/page\?[^"]*)"', page.get(start.replace("&amp;", "&")).text):
            shown = page.get(inner.replace("&amp;", "&"))
            assert shown.status_code == 200
            assert not re.search(r"<img src=x|href=\"javascript", shown.text)
            assert page.get(address(shown.text, "/picture?")).status_code == 200


def test_every_answer_forbids_inline_scripts_and_foreign_things(room: TestClient):
    for path in ("/", "/search?q=화면", "/search?q=%3F", "/page?id=y", "/static/room.css", "/picture?id=y", "/nowhere"):
        headers = room.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; form-action")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    for name in ("room.css", "room.js"):
        content = room.get(f"/static/{name}").text
        assert not re.search(r"https?:|url\(|fetch\(|XMLHttp|localStorage|innerHTML", content)
    for path in ("/", "/page?id=a_1", "/search?q=화면"):
        html = room.get(path).text
        assert not re.search(r'(src|href|action)="(https?:)?//', html)
        assert not re.search(r"<[^>]*\s(style|on[a-z]+)=", html)


@pytest.mark.parametrize(
    ("path", "status", "line"),
    [
        ("/search?q=", 400, "The question is empty"),
        ("/search?q=%20", 400, "The question is empty"),
        ("/search?q=%3F%21&mode=text", 400, "cannot be answered"),
        ("/search?q=화면&mode=image", 400, "cannot search by image"),
        ("/search?q=화면&doc=nowhere", 400, "nowhere"),
        (f"/search?q={'x' * 20_000}", 400, "too long: shorten it to 2,000"),
        ("/page?id=nothing", 404, "There is no page nothing."),
        ("/page?id=..%2F..%2Fx", 404, "There is no page"),
        ("/page", 404, "There is no page"),
        ("/document?id=..%2Fx", 404, "There is no document"),
        ("/picture?id=..%2F..%2Fx", 404, "There is no page"),
        ("/static/..%2Fapp.py", 404, ""),
        ("/static/app.py", 404, ""),
        ("/nowhere", 404, "There is nothing at this address"),
    ],
)
def test_what_cannot_be_shown_is_said(room: TestClient, platform: Platform, path: str, status: int, line: str):
    shown = room.get(path)
    assert (shown.status_code, line in shown.text) == (status, True), shown.text
    assert not list(platform.home.rglob("x")), "an address names no file"


def test_odd_numbers_are_bounded(room: TestClient):
    for top, hits in (("1", 1), ("0", 1), ("-5", 3), ("9" * 30, 3), ("9" * 5000, 3), ("two", 3)):
        assert room.get("/search", params={"q": "화면", "top": top}).text.count("<h2>") == hits
    for part in ("0", "-1", "9" * 5000, "x", "²"):
        assert room.get("/documents", params={"part": part}).text.count("<strong>") == 2


def test_only_reading_and_only_from_this_machine(room: TestClient):
    for method in ("post", "put", "delete", "patch"):
        assert getattr(room, method)("/").status_code == 405
    assert room.get("/", headers={"host": "evil.example"}).status_code == 400


def test_a_room_that_is_opened_to_others_answers_to_any_name(tmp_path: Path):
    platform = made(tmp_path, select="raw_pages")
    settings = platform.settings
    room = Room(settings, searcher(platform, None), corpus_check(settings.corpus.manifest, settings.store))
    opened = TestClient(reading_room(room, ["*"]), "http://rooms.example")
    assert opened.get("/").status_code == 200


def test_no_vectors_is_said(tmp_path: Path):
    shown = browser(made(tmp_path, select="raw_pages")).get("/search?q=화면&mode=text")
    assert (shown.status_code, "no text vectors yet: run `kopub run`" in shown.text) == (400, True)


@pytest.mark.parametrize(
    ("change", "says"),
    [("gone", "cannot be opened"), ("other", "changed since it was indexed"), ("cut", "changed since it was indexed")],
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
    shown = page.get("/page", params={"id": "a_1", "q": "밝기"})
    assert shown.status_code == 200
    assert "<mark>밝기</mark>" in shown.text
    assert says in shown.text
    assert "<img" not in shown.text
    refused = page.get("/picture", params={"id": "a_1"})
    assert (refused.status_code, says in refused.text) == (404, True)


def test_a_page_whose_drawn_file_is_gone_says_so_in_its_history(tmp_path: Path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.png").write_bytes(page_image(1))
    home = tmp_path / "home"
    index(str(tmp_path / "source"), home)
    platform = Platform(home)
    platform.make("raw_pages")
    (drawn,) = (home / "rendered").glob("pages-*")
    drawn.unlink()
    shown = browser(platform).get("/page", params={"id": "a_1", "view": "history"})
    says = f"File {drawn} cannot be opened: No such file or directory; run `kopub index` again"
    assert (shown.status_code, says in plain(shown.text)) == (200, True)


def test_a_damaged_table_is_said_and_the_rest_is_shown(tmp_path: Path):
    platform = made(tmp_path)
    page = browser(platform)
    (tmp_path / "store" / "ocr_results" / "shard_00.parquet").write_bytes(b"PAR1 nothing")
    shown = page.get("/page?id=a_1")
    assert (shown.status_code, "cannot be read" in shown.text) == (500, True)
    assert page.get("/documents").status_code == 200


def test_a_damaged_index_leaves_what_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kopub.web.room, "_LOOK_AGAIN", 0.0)
    page = browser(made(tmp_path))
    (tmp_path / "shards.json").write_text("{")
    for address in ("/documents", "/page?id=a_1", "/api/v1/page?id=a_1"):
        assert page.get(address).status_code == 200, address


def test_a_table_of_another_release_is_said_in_one_line(tmp_path: Path):
    platform = made(tmp_path)
    path = tmp_path / "store" / "ocr_results" / "shard_00.parquet"
    table = pq.read_table(path)
    regions = [[{k: v for k, v in r.items() if k != "origin"} for r in row] for row in table["regions"].to_pylist()]
    table = table.set_column(table.schema.get_field_index("regions"), "regions", pa.array(regions))
    pq.write_table(table, path)
    page = browser(platform)
    for address in ("/page?id=a_1", "/search?q=화면&mode=bm25"):
        said = page.get(address).text
        assert "ocr_results of shard_00 has no regions.origin, as another release made it: delete " in said
        assert "kopub run" in said


def test_a_search_that_has_to_find_all_words_first_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    go = Event()

    def slowly(texts: pa.Table) -> pa.Table:
        go.wait(30)
        return tokenise(texts)

    monkeypatch.setattr(words, "tokenise", slowly)
    monkeypatch.setattr(words, "_MANY", 2)
    monkeypatch.setattr(kopub.web.answers, "_PATIENCE", 0.05)
    page = browser(made(tmp_path))
    asked = "/search?q=화면&mode=bm25"
    waiting = page.get(asked).text
    assert "0 of 2 shards so far" in waiting
    assert '<meta http-equiv="refresh" content="3">' in waiting
    assert page.get("/page?id=a_1").status_code == 200
    go.set()
    monkeypatch.setattr(kopub.web.answers, "_PATIENCE", 30.0)
    answered = page.get(asked).text
    assert 'http-equiv="refresh"' not in answered
    assert 'id="a_1"' in answered


def test_a_room_that_is_closed_finds_no_more_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    def ended(texts: pa.Table) -> pa.Table:
        asked.append(texts.num_rows)
        room.searcher.end()
        return tokenise(texts)

    monkeypatch.setattr(words, "tokenise", ended)
    monkeypatch.setattr(words, "_AT_ONCE", 1)
    platform = made(tmp_path)
    settings = platform.settings
    room = Room(settings, searcher(platform), corpus_check(settings.corpus.manifest, settings.store))
    assert room.words.waits(Mode.BM25) is None
    room.words.end()
    assert asked == [1]


def test_tables_that_are_made_later_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kopub.web.room, "_LOOK_AGAIN", 0.0)
    platform = made(tmp_path, select="raw_pages")
    page = browser(platform)
    assert "No region was found" in page.get("/page?id=a_1").text
    platform.make(*MADE)
    assert "밝기를 조절" in page.get("/page?id=a_1").text


def test_what_an_upgrade_changed_is_shown_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kopub.web.room, "_LOOK_AGAIN", 0.0)
    platform = made(tmp_path)
    page = browser(platform)
    assert "No table has been replaced yet" in page.get("/versions").text
    texts = {page_id: row["text"] for page_id, row in platform.rows("parsed_texts").items()}
    again = made(tmp_path, a_1="화면 어둡기를 조절하려면 <b>메뉴</b>를 누릅니다.")
    assert texts["a_1"] != again.rows("parsed_texts")["a_1"]["text"]
    listed = page.get("/versions").text
    assert "1 of 2 pages differs" in listed
    shown = page.get(address(listed, "/page?id=a_1&amp;view=versions")).text
    assert "<del>" in shown
    assert "<ins>" in shown
    assert "<b>메뉴</b>" not in shown


def test_a_shard_that_was_of_another_corpus_has_no_version_before(tmp_path: Path):
    made(tmp_path)
    other = Platform.of(tmp_path, [pages("z_1")])
    other.make("raw_pages", "layout_regions")
    page = browser(other)
    assert other.store.versions("layout_regions", "shard_00")
    assert "No table has been replaced yet" in page.get("/versions").text
    assert "previous version" not in page.get("/").text


def test_the_pages_with_known_answers_are_shown_worst_first_beside_their_answer(tmp_path: Path):
    platform = made(tmp_path)
    samples = [
        Sample(f"a_{n}", "a", None, {}, PageText(TEXTS[f"a_{n}"].replace("덮개", "<b>뚜껑</b>"))) for n in (1, 2)
    ]
    write_gold(tmp_path / "gold.parquet", [KnownAnswers(Benchmark("texts", "1", "", "", samples), 2)])
    assert platform.run("ocr_scores", first=None).success
    page = browser(platform)
    listed = page.get("/evaluation").text
    assert re.findall(r"<strong>(.*?)</strong>", listed) == ["a, page 2", "a, page 1"]
    shown = page.get(address(listed, "/page?")).text
    assert "Known answer" in shown
    assert re.search(r"<del>[^/]*뚜껑", shown)
    assert "<b>뚜껑" not in shown
    # A badly read page is not shown as ok, and shows its score.
    bad, good = page.get("/page?id=a_2").text, page.get("/page?id=a_1").text
    assert '<span class="state ok">' not in bad
    assert re.search(
        r'class="state score doubtful" href="/page\?id=a_2&amp;view=answer"[^>]*>texts cer 0\.\d{3}</a>', bad
    )
    assert '<span class="state ok">' in good
    assert re.search(r'class="state score" href="[^"]*"[^>]*>texts cer 0\.000</a>', good)
    says = (
        "Character error rate without blanks, mean over pages. Up to 0.02, two wrong characters in a hundred, is good."
    )
    told = "공백을 뺀 글자 오류율의 쪽 평균. 0.02(백 글자에 두 글자) 이하면 좋고"
    for address_of, shows in (
        ("/evaluation", "{}"),
        ("/", "<dt>cer</dt><dd>{}"),
        ("/page?id=a_1", 'title="{}'),
        ("/page?id=a_1&view=answer", "<dt>cer</dt><dd>{}"),
    ):
        assert shows.format(says) in page.get(address_of).text
        assert shows.format(told) in page.get(address_of, headers=KOREAN).text


def test_benchmarks_of_their_own_homes_are_named_with_the_command(troubled: Platform):
    store = troubled.home / "evaluations" / "texts" / "my pages-0123" / "profiles" / "cpu" / "store"
    store.mkdir(parents=True)
    shown = browser(troubled).get("/evaluation").text
    assert "texts, cpu" in shown
    assert "profiles/cpu/store&#39; kopub browse" in shown


def test_a_picture_of_many_pages_is_kept_within_bounds(room: TestClient, monkeypatch: pytest.MonkeyPatch):
    from kopub.web import pictures

    monkeypatch.setattr(pictures, "_KEPT", 3000)
    kept = pictures.PictureCache()
    for seed in range(20):
        kept.page(f"page {seed}", lambda seed=seed: page_image(seed), "thumb")
    assert kept._kept.currsize <= 3000


@pytest.mark.slow
def test_five_hundred_at_once_are_all_answered(room: TestClient):
    from concurrent.futures import ThreadPoolExecutor

    paths = ["/", "/page?id=a_1", "/picture?id=a_2&size=thumb", "/search?q=화면", "/documents"] * 100
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda path: room.get(path).status_code, paths))
    assert answers == [200] * 500


def test_who_does_not_choose_searches_what_has_been_made(tmp_path: Path):
    platform, embedder = (
        made(tmp_path, select="raw_pages,layout_regions,ocr_results,parsed_texts"),
        TwoWayEmbedder(says={}),
    )
    platform.engines["embedding"] = embedder
    platform.make("corpus_text_embeddings")
    visitor = browser(platform, embedder)
    choices = re.findall(r'<option(?: value="([^"]*)")?>([^<]*)</option>', visitor.get("/search?q=화면").text)
    assert [value for value, _ in choices[:6]] == ["", "fusion", "bm25", "vectors", "text", "image"]
    assert "<mark>" in visitor.get("/search", params={"q": "화면"}).text
    assert "no image vectors yet" in visitor.get("/search", params={"q": "화면", "mode": "vectors"}).text


def test_the_tables_of_a_page_and_of_a_document_are_downloaded(troubled: Platform):
    room = browser(troubled)
    book = openpyxl.load_workbook(io.BytesIO(room.get("/xlsx?id=a_1").content))
    assert [cell.value for cell in book.worksheets[0][1]][-1] == "둘"
    with zipfile.ZipFile(io.BytesIO(room.get("/csv?of=a_1").content)) as archive:
        assert archive.read("1.csv").startswith(b"\xef\xbb\xbf")
    none = room.get("/xlsx?id=a_3")
    assert (none.status_code, none.text) == (404, "There are no tables in it.")
