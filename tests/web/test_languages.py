"""Which language a browser gets, and that both say the same things."""

import re
from string import Formatter

import pytest

from kopub_web.languages import LANGUAGES, language_of, texts
from resources.layout.regions import LABELS
from resources.states import State


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


def test_every_state_and_label_has_a_word():
    for language in LANGUAGES:
        forms = texts(language).forms
        assert {f"state.{state}" for state in State} <= set(forms)
        assert {f"label.{label}" for label in LABELS} <= set(forms)


def _values(text: object) -> set[str]:
    forms = text.values() if isinstance(text, dict) else (text,)
    return {name for form in forms for _, name, _, _ in Formatter().parse(str(form)) if name}


def test_a_reason_is_told_without_the_table_that_says_so():
    said = "raw_pages: a.pdf: the PDF wants a password: save it without one"
    assert texts("en").reason(said) == ("a.pdf: the PDF wants a password: save it without one", "en")
    told, language = texts("ko").reason(said)
    assert (told.startswith("a.pdf: 암호"), language) == (True, "ko")
    assert texts("ko").reason("out of memory") == ("out of memory", "en")
    assert texts("ko").reason("") == texts("ko").reason("parsed_texts") == ("", "en")
