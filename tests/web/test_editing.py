"""Corrections in the reading room: what a form saves, and who may send one."""

import html
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from kopub import Page
from kopub import open as open_corpus
from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.log import Action, CorrectionLog
from kopub.search.searcher import Searcher
from kopub.store.table_source import CorpusCheck
from kopub.web.app import reading_room
from kopub.web.editing import cells
from kopub.web.own_pages import Editor
from kopub.web.room import Room
from tests.corrections.test_corrections import TABLES, computed, corrected, files, prepared  # noqa: F401 - a fixture
from tests.doubles.engines import SlowReader
from tests.support.harness import Platform, Prepared
from tests.support.sources.corpora import pages
from tests.support.visits import ENGLISH, Visit, browsed
from tests.web.test_room import Scribe, ThreeBoxes
from tests.web.test_room import browser as reading

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ORIGIN = {"origin": "http://127.0.0.1"}
TABLE = '<table><tr><th colspan="2">가 &amp; 나</th></tr><tr><td>1</td><td><b>2</b></td></tr></table>'


@pytest.fixture
def platform(prepared: Prepared) -> Platform:  # noqa: F811
    return prepared.renewed()


def client(platform: Platform, editor: Editor | None) -> TestClient:
    settings, store = platform.settings, platform.store
    keys = settings.corpus.manifest.keys
    searcher = Searcher(CorrectedTables(store), keys, settings.embedding, "cpu", platform.home / "search")
    room = Room(settings, searcher, CorpusCheck(store, lambda asset, shard: None), editor)
    room._check.look = lambda *known: lambda asset, shard: True  # type: ignore[method-assign]
    return TestClient(reading_room(room), base_url="http://127.0.0.1", follow_redirects=False)


def fields(room: TestClient, page_id: str = "a_1") -> dict[str, str]:
    """Return the hidden fields of the first region's form, with an author."""
    shown = room.get("/page", params={"id": page_id, "view": "edit"}).text
    sent = dict(re.findall(r'<input type="hidden" name="(id|seen|form)" value="([^"]*)">', shown))
    return {**sent, "box": re.findall(r'name="box" value="([^"]*)"', shown)[0], "author": "Kim"}


def test_a_form_saves_a_text_and_the_page_shows_it(platform: Platform):
    room = client(platform, Editor("Kim"))
    answer = room.post("/correct", data={**fields(room), "do": "text", "text": "고친\r\n제목"}, headers=ORIGIN)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/page?id=a_1&view=edit#view"
    shown = room.get(answer.headers["location"]).text
    assert "고친\n제목" in shown
    (made,) = CorrectionLog(platform.store).page("a_1").every
    assert (made.author, made.before, made.after, made.shard) == ("Kim", "read a_1", "고친\n제목", "shard_00")
    assert "고친" in room.get("/markdown", params={"id": "a_1"}).text
    undone = room.post("/correct", data={**fields(room), "do": "undo", "of": made.id}, headers=ORIGIN)
    assert undone.status_code == 303
    assert "고친" not in room.get("/markdown", params={"id": "a_1"}).text


def test_labels_order_strikes_additions_and_checks(platform: Platform):
    room = client(platform, Editor("Kim"))
    for sent in (
        {"do": "label", "label": "footnote"},
        {
            "do": "add",
            "label": "text",
            "left": "0",
            "top": "900",
            "right": "900",
            "bottom": "1000",
            "text": "<b>끝</b>",
        },
        {"do": "order", "follows": ""},
        {"do": "strike"},
        {"do": "checked"},
    ):
        assert room.post("/correct", data={**fields(room), **sent}, headers=ORIGIN).status_code == 303, sent
    done = CorrectionLog(platform.store).page("a_1")
    assert [each.action for each in done.every] == ["label", "add", "order", "strike", "checked"]
    shown = room.get("/page", params={"id": "a_1", "view": "edit"}).text
    assert "Kim has checked this page." in shown
    assert "<b>끝</b>" not in shown


def test_of_two_regions_with_one_box_the_one_whose_form_was_sent_is_corrected(platform: Platform):
    room, (first, *others) = client(platform, Editor("Kim")), [region.label for region in open_page(platform).regions]
    box = open_page(platform).regions[0].box_2d
    edges = dict(zip(("left", "top", "right", "bottom"), map(str, box), strict=True))
    added = {"do": "add", "label": "table", "text": "<table><tr><td>가</td></tr></table>", **edges}
    assert room.post("/correct", data={**fields(room), **added}, headers=ORIGIN).status_code == 303
    assert [region.label for region in open_page(platform).regions] == ["table", first, *others]
    shown = room.get("/page", params={"id": "a_1", "view": "edit"}).text
    sent = {**fields(room), "box": re.findall(r'name="box" value="([^"]*)"', shown)[1], "do": "strike"}
    assert room.post("/correct", data=sent, headers=ORIGIN).status_code == 303
    assert [region.label for region in open_page(platform).regions] == ["table", *others]


def open_page(platform: Platform) -> Page:
    return open_corpus(platform.home).page("a_1")


def test_why_nothing_was_saved_is_said_in_both_languages(platform: Platform):
    room = client(platform, Editor("Kim"))
    edges = {"left": "500", "top": "0", "right": "500", "bottom": "10"}
    sent = {**fields(room), "do": "add", "label": "text", "text": "글", **edges}
    for language, says in (("en", "the box has no width"), ("ko", "상자에 너비가 없거나")):
        refused = room.post("/correct", data=sent, headers={**ORIGIN, "Accept-Language": language})
        assert (refused.status_code, says in refused.text) == (422, True)


@pytest.mark.parametrize("seen", [{}, {"seen": "of a log that was deleted since"}])
def test_a_form_that_saw_other_corrections_of_a_page_without_any_is_refused(platform: Platform, seen: dict[str, str]):
    room = client(platform, Editor("Kim"))
    sent = {name: value for name, value in fields(room).items() if name != "seen"}
    for language, says in (("en", "a_1 has no corrections any more"), ("ko", "a_1 쪽에는 이제 고친 내용이 없습니다")):
        headers = {**ORIGIN, "Accept-Language": language}
        refused = room.post("/correct", data={**sent, **seen, "do": "text", "text": "글"}, headers=headers)
        assert (refused.status_code, says in refused.text) == (422, True)
    assert not CorrectionLog(platform.store).page("a_1").every


def test_the_cells_of_a_table_are_mended_and_keep_their_markup(platform: Platform):
    reader = platform.engines["recognition"]
    platform.engines["recognition"] = SlowReader(diary=reader.diary, prompt="now", says={"a_2": TABLE})
    platform.make(*TABLES)
    room = client(platform, Editor("Kim"))
    boxes = re.findall(r'name="box" value="([^"]*)"', room.get("/page?id=a_2&view=edit").text)
    sent = {**fields(room, "a_2"), "box": boxes[2], "do": "text", "cell-0": "가 & 나", "cell-1": "<3", "cell-2": "2"}
    assert room.post("/correct", data=sent, headers=ORIGIN).status_code == 303
    assert CorrectionLog(platform.store).page("a_2").every[0].after == TABLE.replace("<td>1</td>", "<td>&lt;3</td>")
    assert cells(TABLE) == [[(0, "가 & 나")], [(1, "1"), (2, "2")]]


def test_a_table_with_a_cell_that_was_left_open_is_edited_as_html(platform: Platform):
    room = client(platform, Editor("Kim"))
    written = "<table><tr><td>가<tr><td>나</td></tr></table>"
    sent = {**fields(room), "do": "text", "text": written}
    assert room.post("/correct", data=sent, headers=ORIGIN).status_code == 303
    shown = room.get("/page?id=a_1&view=edit").text
    assert 'name="cell-0"' not in shown
    assert html.escape(written) in shown


def test_lines_of_a_cell_are_words_apart_and_stay_where_another_cell_is_mended(platform: Platform):
    lines = "<table><tr><td>서울<br>부산</td><td>하나\n둘</td><td>3</td></tr></table>"
    reader = platform.engines["recognition"]
    platform.engines["recognition"] = SlowReader(diary=reader.diary, prompt="now", says={"a_2": lines})
    platform.make(*TABLES)
    room = client(platform, Editor("Kim"))
    shown = room.get("/page?id=a_2&view=edit").text
    fields_of = re.findall(r'name="(cell-\d)" value="([^"]*)"', shown)[:3]
    assert fields_of == [("cell-0", "서울 부산"), ("cell-1", "하나 둘"), ("cell-2", "3")]
    box = re.findall(r'name="box" value="([^"]*)"', shown)[2]
    sent = {**fields(room, "a_2"), "box": box, "do": "text", **dict(fields_of), "cell-2": "4"}
    assert room.post("/correct", data=sent, headers=ORIGIN).status_code == 303
    assert CorrectionLog(platform.store).page("a_2").every[0].after == lines.replace("3", "4")
    second = room.post("/correct", data={**sent, "cell-2": "다섯"}, headers=ORIGIN)
    assert (second.status_code, "서울 부산\n하나 둘\n다섯</textarea>" in second.text) == (409, True)


def test_a_figure_is_at_its_place_after_a_region_before_it_is_struck_out(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1")], [])
    platform.engines = {"layout": ThreeBoxes(), "recognition": Scribe(text="글")}
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    before = reading(platform).get("/figure?id=a_1&region=1").content
    corrected(platform, "a_1", 0, "", Action.STRIKE)
    room = reading(platform)
    listed = room.get("/figures").text
    assert re.findall(r'"(/figure\?[^"]*|[^"]*#text-\d)"', listed) == [
        "/page?id=a_1#text-0",
        "/figure?id=a_1&amp;region=0",
    ]
    assert room.get("/figure?id=a_1&region=0").content == before


def test_the_second_of_two_is_shown_the_first_and_overwrites_nothing(platform: Platform):
    room = client(platform, Editor("Kim"))
    seen = fields(room)
    assert room.post("/correct", data={**seen, "do": "text", "text": "하나"}, headers=ORIGIN).status_code == 303
    second = room.post("/correct", data={**seen, "author": "Lee", "do": "text", "text": "둘"}, headers=ORIGIN)
    assert second.status_code == 409
    assert "Kim corrected this page in the meantime" in second.text
    assert "<ins>하나</ins>" in second.text
    assert ">둘</textarea>" in second.text
    assert [each.after for each in CorrectionLog(platform.store).page("a_1").every] == ["하나"]


@pytest.mark.parametrize(
    ("headers", "wrong"),
    [
        ({}, {}),
        ({"origin": "http://evil.example"}, {}),
        ({"origin": "null"}, {}),
        ({**ORIGIN, "sec-fetch-site": "cross-site"}, {}),
        (ORIGIN, {"form": "guessed"}),
        (ORIGIN, {"token": "guessed"}),
        ({**ORIGIN, "content-type": "text/plain"}, {}),
        (ORIGIN, {"text": "가" * 2_000_000}),
    ],
)
def test_what_no_form_of_the_room_sent_is_refused(platform: Platform, headers: dict[str, str], wrong: dict[str, str]):
    room = client(platform, Editor("Kim", "secret"))
    sent = {**fields(room), "do": "text", "text": "x", "token": "secret", **wrong}
    assert room.post("/correct", data=sent, headers=headers).status_code == 403
    assert not CorrectionLog(platform.store).by_page()


@pytest.mark.parametrize(
    "sent",
    [
        {"do": "burn"},
        {"do": "text", "box": "1,2,3,4"},
        {"do": "label", "label": "<script>"},
        {"do": "add", "left": "-1", "top": "0", "right": "x", "bottom": "9"},
        {"do": "add", "left": "0", "top": "0", "right": f"1{'0' * 400}", "bottom": "9", "label": "text"},
        {"do": "undo", "of": "../../etc"},
        {"do": "text", "author": " "},
        {"do": "text", "seen": "a correction of a store that is gone"},
    ],
)
def test_what_cannot_be_saved_is_said_and_the_page_is_shown(platform: Platform, sent: dict[str, str]):
    room = client(platform, Editor("Kim"))
    answer = room.post("/correct", data={**fields(room), "text": "mine", **sent}, headers=ORIGIN)
    assert answer.status_code == 422
    assert "Nothing was saved" in answer.text
    assert "<script>" not in answer.text.partition("<body>")[2]
    assert not CorrectionLog(platform.store).by_page()


def test_a_room_without_edit_is_for_reading_alone(platform: Platform):
    room = client(platform, None)
    shown = room.get("/page", params={"id": "a_1", "view": "edit"})
    assert "/correct" not in shown.text
    assert 'method="post"' not in shown.text
    assert room.post("/correct", data={"id": "a_1"}, headers=ORIGIN).status_code == 404
    assert shown.headers["referrer-policy"] == "no-referrer"


@pytest.mark.browser
@pytest.mark.slow
def test_a_page_is_corrected_by_keyboard_alone_and_what_a_person_wrote_lasts_until_they_take_it_back(
    browser: "Browser", platform: Platform, tmp_path: Path
):
    said, before = "자전거 수리 안내", files(platform)
    counts = {asset: computed(platform, asset) for asset in TABLES}
    environment = {"PATH": os.environ["PATH"], "KOPUB_HOME": str(platform.home)}
    with browsed(environment, "--edit", "--author", "Kim") as url:
        visit = Visit(browser, url, tmp_path, locale=ENGLISH)
        page, keys = visit.page, visit.page.keyboard
        visit.open("/page?id=a_1")
        visit.follow("Correct")
        visit.tab_to("Correct region 1")
        keys.press("Enter")
        visit.tab_to("Text")
        keys.press("Control+A")
        # There is no input method here, so the text is inserted as one would commit it.
        keys.insert_text(said)
        visit.follow("Save text")
        assert said in visit.text("#text-1 summary")
        visit.picture("saved")

        platform.make(*TABLES)
        made = {asset: computed(platform, asset) - count for asset, count in counts.items()}
        assert {asset: count for asset, count in made.items() if count} == {
            "parsed_texts": 1,
            "corpus_text_embeddings": 1,
        }
        visit.open("/")
        visit.tab_to("Question")
        keys.insert_text("자전거")
        with page.expect_navigation():
            keys.press("Enter")
        page.wait_for_selector(".hits mark")
        assert visit.text(".hits h2") == "a, page 1"
        visit.picture("found")
        assert platform.run("hf_release", last="shard_01").success
        released = open_corpus(platform.home / "release").page("a_1").regions
        assert [(r.content, r.origin) for r in released][1] == (said, "person")

        reader = platform.engines["recognition"]
        platform.engines["recognition"] = SlowReader(diary=reader.diary, prompt="look")
        platform.make(*TABLES)
        assert platform.rows("parsed_texts")["a_1"]["text"] == f"look a_1\n\n{said}\n\nlook a_1"
        platform.engines["recognition"] = reader

        visit.open("/page?id=a_1&view=edit")
        assert said in visit.text("#text-1 summary")
        visit.tab_to("Take it back")
        keys.press("Enter")
        visit.follow("Undo")
        assert said not in visit.text("#text-1 summary")
        visit.close(url)
    platform.make(*TABLES)
    after = files(platform)
    assert {name: after[name] for name in before} == before
