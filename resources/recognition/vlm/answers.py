"""Whether a model's answer can be what is printed: cut off, in a loop, empty, in another script. Pure."""

import re
import unicodedata
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from resources.layout.regions import Task
from resources.recognition.vlm.tables_html import clean_tables


class Problem(StrEnum):
    """What is wrong with an answer; the first two are the server's word, the others are found here."""

    TOO_LARGE = "too large"
    REFUSED = "refused"
    CUT = "cut off"
    LOOP = "loop"
    EMPTY = "empty"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A problem, its description for a person, and how much of the answer is to be believed (in characters)."""

    problem: Problem
    reason: str
    sound: int


_WINDOW = 8192
"""Characters at the end of an answer in which a loop is sought: many turns of even a long paragraph."""
_LOOP_LENGTH = 100
_LOOP_TURNS = {True: 4, False: 10}
"""Turns from which repetition is a loop, by whether the room was used up: printed lists repeat a line a few times."""
_TABLE_TURNS = 30
"""The same for a table that ended by itself: rows of equal cells are printed."""
_DENSE = 10.0
"""Compression from which text repeats itself with small changes: prose reaches 3, listings 6."""
_DENSE_LENGTH = 600
_FOREIGN_LETTERS = 6
_TAG = re.compile(r"<[^<>]*>")
_TORN = re.compile(r"^[^<>]*>|<[^<>]*$")
"""What is left of a tag where a repeated unit is taken out of the middle of one."""
_CLOSING = re.compile(r"(?:</\w+>|\s)+$")
_DELIMITERS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))
_FILLER = re.compile(r"([^\w\s])(?:\s*\1){3,}")


def examine(text: str, finish_reason: str, task: Task, scripts: Collection[str]) -> Doubt | None:
    """The worst problem of an answer, None when it can stand. `scripts` are Unicode script names that are expected."""
    used_up = finish_reason == "length"
    if not text.strip():
        return Doubt(Problem.EMPTY, "nothing was read although there is ink", 0)
    loop = _loop(text, task, used_up)
    if loop is not None:
        return loop
    if used_up:
        return Doubt(Problem.CUT, f"the answer was cut off after {len(text)} characters", len(text))
    if task is not Task.FORMULA:
        return _foreign(text, scripts)
    return None


def tidy(text: str, task: Task) -> str:
    """An answer as a region's content: tables valid, formulas without delimiters, nothing at the edges."""
    text = text.strip()
    if task is Task.TABLE:
        return clean_tables(text)
    if task is Task.FORMULA:
        for start, end in _DELIMITERS:
            if text.startswith(start) and text.endswith(end) and len(text) > len(start) + len(end):
                return text[len(start) : -len(end)].strip()
    return text


def _loop(text: str, task: Task, used_up: bool) -> Doubt | None:
    body = _CLOSING.sub("", text)
    turns = _TABLE_TURNS if task is Task.TABLE and not used_up else _LOOP_TURNS[used_up]
    start, unit = loop_start(body[-_WINDOW:], turns)
    if unit and (used_up or any(char.isalnum() for char in _TAG.sub("", _TORN.sub("", unit)))):
        sound = len(body) - len(body[-_WINDOW:]) + start + len(unit)
        reason = f"{_shown(unit)} repeats without end; what follows its first time is left out"
        return Doubt(Problem.LOOP, reason, sound)
    plain = _FILLER.sub(r"\1", body).encode()
    if (used_up or task is Task.TEXT) and len(plain) >= _DENSE_LENGTH:
        density = len(plain) / len(zlib.compress(plain))
        if density > (_DENSE if task is Task.TEXT else 2 * _DENSE):
            return Doubt(Problem.LOOP, f"the answer says the same {density:.0f} times over", len(text))
    return None


def loop_start(text: str, turns: int) -> tuple[int, str]:
    """Where the text begins to repeat itself up to its end, and the repeated unit; (len(text), "") when it does not.

    The shortest period of every suffix, in linear time: the prefix function of Knuth, Morris and
    Pratt (1977) over the reversed text.
    """
    backwards = text[::-1]
    fits = [0] * len(backwards)
    best, period = 0, 0
    for end in range(1, len(backwards)):
        length = fits[end - 1]
        while length and backwards[end] != backwards[length]:
            length = fits[length - 1]
        fits[end] = length + (backwards[end] == backwards[length])
        covered, step = end + 1, end + 1 - fits[end]
        if covered >= max(_LOOP_LENGTH, turns * step):
            best, period = covered, step
    start = len(text) - best
    return (start, text[start : start + period]) if best else (len(text), "")


def _foreign(text: str, scripts: Collection[str]) -> Doubt | None:
    letters = [char for char in _TAG.sub("", text) if char.isalpha()]
    names = [_script(char) for char in letters]
    foreign = [name for name in names if name not in scripts]
    if len(foreign) < _FOREIGN_LETTERS or 2 * len(foreign) <= len(letters):
        return None
    name = max(set(foreign), key=foreign.count)
    return Doubt(Problem.SCRIPT, f"{len(foreign)} of {len(letters)} letters are {name}", len(text))


@lru_cache(maxsize=65536)
def _script(char: str) -> str:
    """First word of the character's Unicode name: HANGUL, LATIN, CJK, HIRAGANA, GREEK …"""
    return unicodedata.name(unicodedata.normalize("NFKC", char)[0], "UNKNOWN").partition(" ")[0]


def _shown(unit: str) -> str:
    line = " ".join(unit.split())
    return repr(line if len(line) <= 40 else f"{line[:40]}…")


def as_written(text: str, task: Task) -> str:
    """An answer whose model says nothing about it beside the text itself."""
    return text
