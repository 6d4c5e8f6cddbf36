"""Defects of a model's answer: cut off, in a loop, empty, in an unexpected script. Pure."""

import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from rapidfuzz import fuzz

from resources.layout.regions import Task
from resources.recognition.characters import script_of, without_fillers
from resources.recognition.latex import without_delimiters
from resources.recognition.vlm.runaways import described, runaway
from resources.recognition.vlm.tables_html import clean_tables


class Problem(StrEnum):
    """What is wrong with an answer; the server reports the first two, `find_defect` finds the others."""

    TOO_LARGE = "too large"
    REFUSED = "refused"
    CUT = "cut off"
    LOOP = "loop"
    EMPTY = "empty"
    RUNAWAY = "runaway"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True)
class Defect:
    """A problem, its description for a person, and how many characters of the answer are sound."""

    problem: Problem
    reason: str
    sound: int


_WINDOW = 8192
"""Characters at the end of an answer that are searched for a loop: many repeats of even a long paragraph."""
_LOOP_CHARACTERS = 100
_LOOP_REPEATS = {True: 4, False: 10}
"""Repeats from which an answer is a loop, by whether it used up its room: printed lists repeat a line a few times."""
_TABLE_REPEATS = 30
"""The same for a table that ended by itself: rows of equal cells are printed."""
_DENSE = 10.0
"""Compression from which text repeats itself with small changes: prose reaches 3, listings 6."""
_DENSE_LENGTH = 600
_FOREIGN_LETTERS = 6
_TAG = re.compile(r"<[^<>]*>")
_TORN = re.compile(r"^[^<>]*>|<[^<>]*$")
"""What is left of a tag where a repeated unit is taken out of the middle of one."""
_CLOSING = re.compile(r"(?:</\w+>|\s)+$")
_SAME_TEXT = 90.0
"""Similarity in percent (rapidfuzz `ratio`, white space left out) from which two answers read the same print.

Two sizes of one print differ in a few characters of a hundred; two inventions have little in common.
"""


def find_defect(text: str, finish_reason: str, task: Task, scripts: Collection[str]) -> Defect | None:
    """The worst defect of an answer, None for a good one. `scripts` are the expected ones, named as by `script_of`."""
    used_up = finish_reason == "length"
    without_end = _loop(text, task, used_up) if text.strip() else _nothing(used_up)
    if without_end is not None:
        return without_end
    if used_up:
        return Defect(Problem.CUT, f"the answer was cut off after {len(text)} characters", len(text))
    run = runaway(text, task)
    if run is not None:
        return Defect(Problem.RUNAWAY, described(run), len(text))
    return None if task is Task.FORMULA else _foreign(text, scripts)


def confirmed(problem: Problem, answer: str, other: str, task: Task) -> bool:
    """Whether two answers to different requests of a region, both with `problem`, show what is printed.

    Two empty answers do, two with nearly the same text, of which a strip is empty or in an unexpected script, and two
    with the same run of digits or empty cells.
    """
    if problem is Problem.RUNAWAY:
        return runaway(answer, task) == runaway(other, task)
    if problem in (Problem.EMPTY, Problem.SCRIPT):
        return fuzz.ratio("".join(answer.split()), "".join(other.split())) >= _SAME_TEXT
    return False


def tidy(text: str, task: Task) -> str:
    """An answer as a region's content: valid tables, formulas without delimiters, no white space at the ends."""
    text = text.strip()
    if task is Task.TABLE:
        return clean_tables(text)
    return without_delimiters(text) if task is Task.FORMULA else text


def _nothing(used_up: bool) -> Defect:
    if used_up:
        return Defect(Problem.LOOP, "the answer is white space without end", 0)
    return Defect(Problem.EMPTY, "nothing was read although there is ink", 0)


def _loop(text: str, task: Task, used_up: bool) -> Defect | None:
    body = _CLOSING.sub("", text)
    repeats = _TABLE_REPEATS if task is Task.TABLE and not used_up else _LOOP_REPEATS[used_up]
    start, unit = loop_start(body[-_WINDOW:], repeats)
    if unit and (used_up or any(char.isalnum() for char in _TAG.sub("", _TORN.sub("", unit)))):
        sound = len(body) - len(body[-_WINDOW:]) + start + len(unit)
        reason = f"{_shown(unit)} repeats without end; what follows its first time is left out"
        return Defect(Problem.LOOP, reason, sound)
    plain = without_fillers(body).encode()
    if (used_up or task is Task.TEXT) and len(plain) >= _DENSE_LENGTH:
        density = len(plain) / len(zlib.compress(plain))
        if density > (_DENSE if task is Task.TEXT else 2 * _DENSE):
            return Defect(Problem.LOOP, f"the answer says the same {density:.0f} times over", len(text))
    return None


def loop_start(text: str, repeats: int) -> tuple[int, str]:
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
        if covered >= max(_LOOP_CHARACTERS, repeats * step):
            best, period = covered, step
    start = len(text) - best
    return (start, text[start : start + period]) if best else (len(text), "")


def _foreign(text: str, scripts: Collection[str]) -> Defect | None:
    letters = [char for char in _TAG.sub("", text) if char.isalpha()]
    names = [script_of(char) for char in letters]
    foreign = [name for name in names if name not in scripts]
    if len(foreign) < _FOREIGN_LETTERS or 2 * len(foreign) <= len(letters):
        return None
    name = max(set(foreign), key=foreign.count)
    reason = f"{len(foreign)} of {len(letters)} letters are {name}, which `scripts` does not expect"
    return Defect(Problem.SCRIPT, reason, len(text))


def _shown(unit: str) -> str:
    line = " ".join(unit.split())
    return repr(line if len(line) <= 40 else f"{line[:40]}…")


def as_written(text: str, task: Task) -> str:
    """An answer whose model says nothing about it beside the text itself."""
    return text
