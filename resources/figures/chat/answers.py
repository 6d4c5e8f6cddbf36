"""Answers of a chat model about a figure: JSON that may be fenced, cut, refused or in another language. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from resources.figures.chat.prompts import MOST_CELLS, MOST_KEYWORDS, MOST_ROWS, Language
from resources.figures.judged import Judged, Problem, script_shares, smiles_of, unfinished
from resources.figures.notes import KINDS
from resources.recognition.vlm.chat_requests import Answer

_LONGEST = 2000
"""Characters of a description: more than three sentences have, and no more than a person reads."""
_LONGEST_WORD, _LONGEST_CELL = 60, 200
_OWN_SCRIPT: Mapping[Language, tuple[str, float]] = {"ko": ("HANGUL", 0.3), "en": ("LATIN", 0.7)}
"""The script of a language, and its share of the letters at least: names in Korean texts are often Latin."""
_LANGUAGES = {"ko": "Korean", "en": "English"}
_REFUSED = re.compile(
    r"\b(?:i'?m sorry|i am sorry|i apologi[sz]e|as an ai|(?:i )?(?:cannot|can'?t|am unable to|'m unable to) "
    r"(?:help|assist|describe|provide|view|see|analy[sz]e|process))"
    r"|죄송(?:하지만|합니다)|(?:도와\s*드릴|설명할|답변할|제공할|볼) 수 없",
    re.IGNORECASE,
)
_NOTHING = frozenset({"", "-", "n/a", "na", "none", "null", "없음", "해당 없음", "해당없음"})
_DECODER = json.JSONDecoder()


def judge(answer: Answer, language: Language) -> Judged:
    """The note in an answer, or what is wrong with it."""
    if (problem := unfinished(answer)) is not None:
        return problem
    if not answer.text.strip():
        return Judged(Problem.EMPTY, "the answer is empty")
    found = _object(answer.text)
    if found is None:
        if _REFUSED.search(answer.text):
            return Judged(Problem.REFUSAL, "the model declined to describe it")
        return Judged(Problem.FORM, "the answer is no JSON object of the form that was asked for")
    return _checked(found, language)


def _checked(found: Mapping[str, Any], language: Language) -> Judged:
    """The note in a JSON object, or what is wrong with its description."""
    description = _line(found.get("description"), _LONGEST)
    if description is None or description.lower() in _NOTHING:
        return Judged(Problem.EMPTY, "the answer describes nothing")
    if _REFUSED.search(description):
        return Judged(Problem.REFUSAL, "the model declined to describe it")
    script, least = _OWN_SCRIPT[language]
    if script_shares(description).get(script, 0.0) < least:
        return Judged(Problem.LANGUAGE, f"the description is not in {_LANGUAGES[language]}")
    kind = found.get("kind")
    return Judged(
        kind=kind if kind in KINDS else "other",
        description=description,
        keywords=_keywords(found.get("keywords")),
        data_html=_table(found.get("data")),
        smiles=smiles_of(found.get("smiles")),
    )


def _object(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text, whatever stands around it, as fences do; None where there is none."""
    start = text.find("{")
    while start >= 0:
        try:
            found, _ = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and "description" in found:
            return found
        start = text.find("{", start + 1)
    return None


def _keywords(found: Any) -> tuple[str, ...]:
    words = found if isinstance(found, list) else []
    shown = (_line(word, _LONGEST_WORD) for word in words)
    return tuple(dict.fromkeys(word for word in shown if word and word.lower() not in _NOTHING))[:MOST_KEYWORDS]


def _table(found: Any) -> str | None:
    """Rows of cells as `<table>` HTML; None where there are not two cells."""
    rows = [row for row in found[:MOST_ROWS] if isinstance(row, list)] if isinstance(found, list) else []
    cells = [[_line(cell, _LONGEST_CELL) or "" for cell in row[:MOST_CELLS]] for row in rows]
    cells = [row for row in cells if any(row)]
    if sum(len(row) for row in cells) < 2:
        return None
    return f"<table>{''.join(map(_row, cells))}</table>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell, quote=False)}</td>' for cell in cells)}</tr>"


def _line(value: Any, most: int) -> str | None:
    """A text or number in one line of at most `most` characters; None for another value."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    shown = "".join(char if char.isprintable() else " " for char in str(value))
    return " ".join(shown.split())[:most]
