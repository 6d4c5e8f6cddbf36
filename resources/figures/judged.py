"""An answer about a figure as a note, or what is wrong with it. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from resources.figures.notes import FigureNote
from resources.recognition.characters import script_of
from resources.recognition.vlm.answers import loop_start
from resources.recognition.vlm.chat_requests import Answer
from resources.states import State

_LOOP_REPEATS = 6
"""Repeats up to its end from which an answer is a loop."""
_WINDOW = 8192
_SCRIPTS = {"HANGUL": "ko", "LATIN": "en", "CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja"}
"""The language that a script stands for; English for every other language in Latin letters."""


class Problem(StrEnum):
    """What makes an answer useless."""

    CUT = "cut off"
    LOOP = "loop"
    FORM = "form"
    EMPTY = "empty"
    REFUSAL = "refusal"
    LANGUAGE = "language"


@dataclass(frozen=True, slots=True)
class Judged:
    """The fields of a note that an answer gives, or its problem and the reason for a person."""

    problem: Problem | None = None
    reason: str = ""
    kind: str | None = None
    description: str = ""
    keywords: tuple[str, ...] = ()
    data_html: str | None = None
    smiles: str | None = None

    def note(self, figure: str, attempts: int, seconds: float) -> FigureNote:
        """The note on the figure of an id."""
        return FigureNote(
            *(figure, State.OK, None, self.kind, self.description, self.keywords, self.data_html, self.smiles),
            language=language_of(self.description),
            attempts=attempts,
            seconds=seconds,
        )


def unfinished(answer: Answer) -> Judged | None:
    """The problem of an answer that did not come to its end; None for one that did."""
    start, unit = loop_start(answer.text[-_WINDOW:], _LOOP_REPEATS)
    if unit and answer.finish_reason == "length":
        shown = " ".join(unit.split())[:40]
        return Judged(Problem.LOOP, f"the answer repeats {shown!r} without end")
    if answer.finish_reason == "length":
        return Judged(Problem.CUT, f"the answer was cut off after {len(answer.text)} characters")
    if unit and start == 0:
        return Judged(Problem.LOOP, "the answer says the same over and over")
    return None


def language_of(text: str) -> str | None:
    """The language of most letters, as far as their script tells; None where there is no letter."""
    shares = script_shares(text)
    return _SCRIPTS.get(max(shares, key=lambda script: shares[script])) if shares else None


def script_shares(text: str) -> dict[str, float]:
    """The share of the letters of a text by script, named as by `script_of`."""
    scripts = [script_of(char) for char in text if char.isalpha()]
    return {script: scripts.count(script) / len(scripts) for script in dict.fromkeys(scripts)}


_SMILES = re.compile(r"[A-Za-z0-9@+\-\[\]()=#$:./\\%*~]{2,1000}")
_ATOM = re.compile(r"\[[A-Za-z]|[BCNOPSFIbcnops]")
_BOUND = re.compile(r"[0-9()=#\[\]]|[A-Z].*[A-Z]")
"""A ring, branch or bond, or two atoms: a word of prose in small letters has none of them."""


def smiles_of(value: Any) -> str | None:
    """A value where it can be the SMILES of a molecule; None for everything else."""
    text = value.strip() if isinstance(value, str) else ""
    if not _SMILES.fullmatch(text) or not _ATOM.search(text) or not _BOUND.search(text):
        return None
    return text if text.count("(") == text.count(")") and text.count("[") == text.count("]") else None
