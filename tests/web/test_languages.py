"""The browser or a person chooses language and colours, and both languages are complete."""

import pickle
import re
from pathlib import Path
from string import Formatter

import pytest
from markupsafe import Markup
from starlette.testclient import TestClient

from kopub.errors import UndecodableImage
from kopub.evaluation.metrics import METRICS
from kopub.language import LANGUAGES, language_of, texts
from kopub.layout.regions import LABELS
from kopub.search.options import Mode
from kopub.states import Reason, State, joined
from kopub.texts.markup import printable_value
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
    locked = Reason("{file}: {reason}", file="a.pdf", reason="the PDF wants a password: save it without one")
    said = Reason("{asset}: {reason}", asset="raw_pages", reason=locked)
    assert said == "raw_pages: a.pdf: the PDF wants a password: save it without one"
    assert texts("en").reason(said) == ("a.pdf: the PDF wants a password: save it without one", "en")
    told, language = texts("ko").reason(said)
    assert (told.startswith("a.pdf: 암호"), language) == (True, "ko")
    assert texts("ko").reason(Reason("{file}: {reason}", file="a.pdf", reason="odd"))[1] == "en"
    assert texts("ko").reason("out of memory") == ("out of memory", "en")
    assert texts("ko").reason("") == texts("ko").reason(Reason("{asset}", asset="parsed_texts")) == ("", "en")


def test_every_reason_that_the_code_gives_is_known_in_korean():
    said_of_pages = {**reasons(), **doubts()}
    assert len(doubts()) > 10
    assert {form: where for form, where in said_of_pages.items() if form not in texts("ko").sentences} == {}


def test_a_korean_sentence_has_values_of_its_english_form_only():
    strange = {form for form, korean in texts("ko").sentences.items() if not _values(korean) <= _values(form)}
    assert strange == set()


def test_a_reason_keeps_its_form_and_values_wherever_it_is_sent():
    cut = Reason("the answer was cut off after {count} characters", count=512)
    part = Reason("part {number} of {count}: {reason}", number=2, count=3, reason=cut)
    error = pickle.loads(pickle.dumps(UndecodableImage("row {row}: {reason}", row=7, reason=part)))
    told = str(error)
    assert isinstance(told, Reason)
    for said in (told, Reason.unpacked(told.packed())):
        assert said == "row 7: part 2 of 3: the answer was cut off after 512 characters"
        assert texts("ko").reason(said) == ("7행: 3조각 가운데 2번째: 답이 512자에서 끊겼습니다", "ko")
    of_file = Reason("{path} cannot be read: {error}", path=Path("a.pdf"), error=OSError("odd"))
    assert texts("ko").reason(Reason.unpacked(of_file.packed())) == ("a.pdf: 읽을 수 없습니다(odd)", "ko")


def test_a_reason_on_a_page_of_the_room_has_no_signs_that_turn_its_text():
    said = Reason("{file}: {reason}", file="a\u202efdp.exe", reason="odd")
    assert printable_value(said) == "afdp.exe: odd"
    assert printable_value(Markup("<b>\u202e</b>")) == "<b>\u202e</b>"


@pytest.mark.parametrize("values", [{}, {"pixels": "many"}, {"pixels": [1]}, {"0": 1}])
def test_a_stored_reason_whose_values_do_not_fit_is_told_in_english(values: dict[str, object]):
    form = "the page has more than {pixels:,} pixels; scale it down"
    assert texts("ko").reason(Reason(form, "as it was", **values)) == ("as it was", "en")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            Reason(
                "{asset}: {reason}",
                asset="ocr_results",
                reason=Reason(
                    "{failed} of {count} regions failed; region {region} ({label}): {reason}",
                    failed=2,
                    count=12,
                    region=7,
                    label="table",
                    reason=Reason("the answer was cut off after {count} characters", count=512),
                ),
            ),
            "영역 12개 가운데 2개를 읽지 못했습니다. 7번 영역(표): 답이 512자에서 끊겼습니다",
        ),
        (
            joined(
                [
                    Reason("{unit} repeats without end; what follows its first time is left out", unit="'ab'"),
                    Reason("{share:.0%} of the page's ink is outside of all regions", share=0.251),
                    "no ink",
                ]
            ),
            "'ab'만 끝없이 되풀이됩니다. 처음 나온 뒤의 것은 버렸습니다; "
            "쪽에 인쇄된 것의 25%가 어느 영역에도 들지 않습니다; 인쇄된 것이 없습니다",
        ),
        (
            Reason("{reason} (after {count} attempts)", reason="HTTP 503: busy; wait", count=5),
            "HTTP 503: busy; wait (5번 시도)",
        ),
        (
            Reason("{missing} of {count} shards have no {by} vectors yet", missing=2, count=35, by=Mode.FIGURE),
            "샤드 35개 가운데 2개는 아직 그림과 차트 벡터가 없어 찾지 않았습니다",
        ),
        (
            Reason("the page cannot be drawn: {error}", error="{0} {x}"),
            "PDF에서 이 쪽을 그릴 수 없습니다: {0} {x}",
        ),
    ],
)
def test_a_reason_in_korean(said: Reason, told: str):
    assert texts("ko").reason(said) == (told, "ko")


def test_every_metric_is_explained_in_korean():
    assert not [metric.name for metric in METRICS.values() if texts("ko").sentence(metric.says)[1] != "ko"]


def test_what_is_called_good_is_of_a_metric_that_is_explained():
    for language in LANGUAGES:
        forms = texts(language).forms
        good = {key.removeprefix("good.") for key in forms if key.startswith("good.")}
        assert {"cer", "teds", "nDCG@10"} <= good <= {*METRICS, "nDCG@10"}
        assert "metric.nDCG@10" in forms
