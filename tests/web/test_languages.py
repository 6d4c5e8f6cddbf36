"""The browser or a person chooses language and colours, and both languages are complete."""

import re
from string import Formatter

import pytest
from starlette.testclient import TestClient

from kopub.evaluation.metrics import METRICS
from kopub.layout.regions import LABELS
from kopub.search.options import Mode
from kopub.states import State
from kopub.web.requests import LANGUAGES, language_of, texts
from tests.search.test_search import made
from tests.support.reasons import doubts, reasons
from tests.web.test_room import browser


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", "en"),
        ("ko", "ko"),
        ("ko-KR,ko;q=0.9,en-US;q=0.8,en;q=0.7", "ko"),
        ("en-GB,en;q=0.9,ko;q=0.8", "en"),
        ("ja,fr;q=0.9", "en"),
        ("ja,ko;q=0.3", "ko"),
        ("en;q=0.1, KO;q=1.0", "ko"),
        ("ko;q=0", "en"),
        ("ko;q=abc,;;,=", "en"),
        ("x" * 10_000, "en"),
    ],
)
def test_the_browser_chooses_the_language(accepted: str, language: str):
    assert language_of(accepted) == language


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return browser(made(tmp_path_factory.mktemp("chosen"), select="raw_pages"))


def test_a_person_chooses_the_language_and_comes_back(room: TestClient):
    room.cookies.clear()
    here = "/page?id=a_1&view=history"
    shown = room.get(here, headers={"accept-language": "en"})
    assert '<input type="hidden" name="back" value="/page?id=a_1&amp;view=history">' in shown.text
    assert re.search(r'name="language" value="en" lang="en" aria-pressed="true"', shown.text)
    chosen = room.get("/display", params={"back": here, "language": "ko"}, follow_redirects=False)
    assert (chosen.status_code, chosen.headers["location"]) == (303, here)
    cookie = chosen.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("kopub_language=ko", "httponly", "samesite=lax", "path=/", "max-age="))
    again = room.get(here, headers={"accept-language": "en"})
    assert '<html lang="ko">' in again.text
    assert again.headers["content-language"] == "ko"
    assert again.headers["vary"] == "Accept-Language, Cookie"


@pytest.mark.parametrize(
    ("theme", "scheme", "linked"),
    [("system", "light dark", ' media="(prefers-color-scheme: dark)"'), ("light", "light", None), ("dark", "dark", "")],
)
def test_a_person_chooses_the_colours(room: TestClient, theme: str, scheme: str, linked: str | None):
    room.cookies.clear()
    room.get("/display", params={"theme": theme})
    shown = room.get("/").text
    assert f'<meta name="color-scheme" content="{scheme}">' in shown
    found = re.search(r'<link rel="stylesheet" href="(/static/dark.css[^"]*)"([^>]*)>', shown)
    assert (found and found[2]) == linked
    assert found is None or room.get(found[1]).headers["content-type"].startswith("text/css")
    assert re.findall(r'name="theme" value="(\w+)" aria-pressed="true"', shown) == [theme]


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil.example", "/\t/evil.example", "", "x"]
)
def test_a_choice_leads_to_no_other_site(room: TestClient, back: str):
    chosen = room.get("/display", params={"back": back, "theme": "dark"}, follow_redirects=False)
    assert chosen.headers["location"] == "/"


def test_another_site_chooses_nothing_and_what_cannot_be_chosen_is_left(room: TestClient):
    room.cookies.clear()
    asked = {"theme": "dark", "language": "ko"}
    assert room.get("/display", params=asked, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    room.get("/display", params={"theme": "<b>", "language": "fr"})
    assert not room.cookies
    room.cookies.update({"kopub_theme": '"><script>', "kopub_language": "xx"})
    shown = room.get("/").text
    assert '<html lang="en">' in shown
    assert "<script>" not in shown
    room.cookies.clear()


def test_both_languages_have_every_text_with_the_same_values():
    forms = [texts(language).forms for language in LANGUAGES]
    assert set(forms[0]) == set(forms[1])
    for key in forms[0]:
        said = [_values(of[key]) for of in forms]
        assert said[0] == said[1], key


def test_korean_texts_are_korean():
    for key, text in texts("ko").forms.items():
        for form in text.values() if isinstance(text, dict) else (text,):
            assert re.search("[가-힣]", form) or key.startswith(("pager.", "history.row")), key


def test_every_state_label_and_way_of_searching_has_a_word():
    for language in LANGUAGES:
        forms = texts(language).forms
        assert {f"state.{state}" for state in State} <= set(forms)
        assert {f"label.{label}" for label in LABELS} <= set(forms)
        assert {f"by.{mode}" for mode in Mode if mode is not Mode.AUTO} <= set(forms)


def _values(text: object) -> set[str]:
    forms = text.values() if isinstance(text, dict) else (text,)
    return {name for form in forms for _, name, _, _ in Formatter().parse(str(form)) if name}


def test_a_reason_is_told_without_the_table_that_says_so():
    said = "raw_pages: a.pdf: the PDF wants a password: save it without one"
    assert texts("en").reason(said) == ("a.pdf: the PDF wants a password: save it without one", "en")
    told, language = texts("ko").reason(said)
    assert (told.startswith("a.pdf: 암호"), language) == (True, "ko")
    assert texts("ko").reason("out of memory") == ("out of memory", "en")
    assert texts("en").reason("the answer was cut off; 7% of it: no") == ("the answer was cut off; 7% of it: no", "en")
    assert texts("ko").reason("") == texts("ko").reason("parsed_texts") == ("", "en")


def test_every_reason_that_the_code_gives_is_known_in_korean():
    said_of_pages = {**reasons(), **doubts()}
    assert len(doubts()) > 10
    unknown = {said: where for said, where in said_of_pages.items() if texts("ko").reason(said)[1] != "ko"}
    assert unknown == {}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "ocr_results: 2 of 1,240 regions failed; region 7 (table): the answer was cut off after 512 characters",
            "영역 1,240개 가운데 2개를 읽지 못했습니다. 7번 영역(표): 답이 512자에서 끊겼습니다",
        ),
        (
            "layout_regions: 'ab' repeats without end; what follows its first time is left out; "
            "25% of the page's ink is outside of all regions; "
            "it was not read in halves, which 10% of the pages of a shard may be",
            "'ab'만 끝없이 되풀이됩니다; 처음 나온 뒤의 것은 버렸습니다; "
            "쪽에 인쇄된 것의 25%가 어느 영역에도 들지 않습니다; "
            "반으로 나누어 다시 읽지 않았습니다. 샤드마다 쪽의 10%까지만 다시 읽습니다",
        ),
        ("no region was found on a page with ink (0.42%)", "쪽에 인쇄된 것이 있으나(0.42%) 영역을 찾지 못했습니다"),
        ("HTTP 503: busy; wait (after 5 attempts)", "HTTP 503: busy; wait (5번 시도)"),
        (
            "2 of 35 shards have no figure vectors yet",
            "샤드 35개 가운데 2개는 아직 그림과 차트 벡터가 없어 찾지 않았습니다",
        ),
        ("the page cannot be drawn: {0} {x}", "PDF에서 이 쪽을 그릴 수 없습니다: {0} {x}"),
    ],
)
def test_a_reason_in_korean(said: str, told: str):
    assert texts("ko").reason(said) == (told, "ko")


def test_every_metric_is_explained_in_korean():
    assert not [metric.name for metric in METRICS.values() if texts("ko").sentence(metric.says)[1] != "ko"]


def test_what_is_called_good_is_of_a_metric_that_is_explained():
    for language in LANGUAGES:
        forms = texts(language).forms
        good = {key.removeprefix("good.") for key in forms if key.startswith("good.")}
        assert {"cer", "teds", "nDCG@10"} <= good <= {*METRICS, "nDCG@10"}
        assert "metric.nDCG@10" in forms
