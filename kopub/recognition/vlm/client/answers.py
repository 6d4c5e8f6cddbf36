"""A model's answers: their defects, the retry plan, and the outcome of the attempts."""

import math
import re
import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from rapidfuzz import fuzz

from kopub.layout.regions import Region, Task
from kopub.recognition.content import script_of, strip_delimiters, strip_fillers
from kopub.recognition.regions import RegionText
from kopub.recognition.tables import clean_tables, join_tables
from kopub.recognition.vlm.client.chat_requests import ChatAnswer
from kopub.states import Reason, State


class Problem(StrEnum):
    """A kind of defect; the server reports the first two, and `find_defect` finds the others."""

    TOO_LARGE = "too large"
    REFUSED = "refused"
    CUT = "cut off"
    LOOP = "loop"
    EMPTY = "empty"
    RUNAWAY = "runaway"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True)
class Defect:
    """A problem, its description, and the number of sound characters in the answer."""

    problem: Problem
    reason: str
    sound: int


_WINDOW = 8192
"""Characters at the end of an answer that are searched for a loop: room for many repeats of even a long paragraph."""
_LOOP_CHARACTERS = 100
_LOOP_REPEATS = {True: 4, False: 10}
"""Repeats that make an answer a loop, by whether it used up its room; printed lists repeat a line a few times."""
_TABLE_REPEATS = 30
"""Repeats that make a loop of a table that ended by itself, because rows of equal cells may be printed."""
_DENSE = 10.0
"""Compression ratio above which a text repeats itself with small changes: prose reaches 3, listings 6."""
_DENSE_LENGTH = 600
_FOREIGN_LETTERS = 6
_TAG = re.compile(r"<[^<>]*>")
_TORN = re.compile(r"^[^<>]*>|<[^<>]*$")
"""The remains of a tag, if a repeated unit begins or ends in the middle of one."""
_TORN_TAG = re.compile(r"</?(?:[A-Za-z]+(?:\s[^<>]*)?)?\Z")
"""A tag that was cut off, or in which a loop begins anew."""
_CLOSING = re.compile(r"(?<!\s)(?:</\w+>|\s)++$")
"""Closing tags and blanks at the end; a run of blanks elsewhere is passed once, not once from each of its blanks."""
_SAME_TEXT = 90.0
"""Similarity in percent (rapidfuzz `ratio`, without white space) from which two answers read the same print.

Readings of one print at two sizes differ in a few characters per hundred; two inventions have little in common.
"""


def find_defect(text: str, finish_reason: str, task: Task, scripts: Collection[str]) -> Defect | None:
    """Return the worst defect of an answer, or None for a good one.

    `scripts` are the expected scripts, as `script_of` names them.
    """
    used_up = finish_reason == "length"
    loop = _loop(text, task, used_up)
    if loop is not None:
        return loop
    if used_up:
        reason = Reason("the answer was cut off after {count} characters", count=len(text))
        return Defect(Problem.CUT, reason, len(text))
    if not tidy(text, task):
        return Defect(Problem.EMPTY, "nothing was read although there is ink", 0)
    run = find_runaway(text, task)
    if run is not None:
        reason = Reason("the digits {digits} multiply", digits=f"{run[:12]}…")
        if empty := run.count("></t"):
            reason = Reason("{count} empty cells one after the other", count=empty)
        return Defect(Problem.RUNAWAY, reason, len(text))
    # A formula has letters of any script.
    checked = "" if task is Task.FORMULA else _TAG.sub("", text)
    letters = Counter(map(script_of, filter(str.isalpha, checked)))
    foreign = Counter({script: count for script, count in letters.items() if script not in scripts})
    if foreign.total() >= _FOREIGN_LETTERS and 2 * foreign.total() > letters.total():
        script = foreign.most_common(1)[0][0]
        form = "{foreign} of {count} letters are {script}, which `scripts` does not expect"
        reason = Reason(form, foreign=foreign.total(), count=letters.total(), script=script)
        return Defect(Problem.SCRIPT, reason, len(text))
    return None


def answers_agree(problem: Problem, answer: str, other: str, task: Task) -> bool:
    """Return whether two answers with the same `problem` confirm what is printed.

    They do if both are empty, if both have nearly the same text in an unexpected script or with an empty strip, or if
    both have the same run of digits or empty cells.
    """
    if problem is Problem.RUNAWAY:
        return find_runaway(answer, task) == find_runaway(other, task)
    if problem in (Problem.EMPTY, Problem.SCRIPT):
        letters, others = ("".join(tidy(text, task).split()) for text in (answer, other))
        return fuzz.ratio(letters, others) >= _SAME_TEXT
    return False


def tidy(text: str, task: Task) -> str:
    """Return an answer as a region's content: valid tables, bare formulas, trimmed."""
    text = text.strip()
    if task is Task.TABLE:
        return clean_tables(text)
    return strip_delimiters(text) if task is Task.FORMULA else text


def _loop(text: str, task: Task, used_up: bool) -> Defect | None:
    if used_up and not text.strip():
        return Defect(Problem.LOOP, "the answer is white space without end", 0)
    body = _CLOSING.sub("", text)
    repeats = _TABLE_REPEATS if task is Task.TABLE and not used_up else _LOOP_REPEATS[used_up]
    start, unit = loop_start(body[-_WINDOW:], repeats)
    if unit and (used_up or any(char.isalnum() for char in _TAG.sub("", _TORN.sub("", unit)))):
        sound = len(body) - len(body[-_WINDOW:]) + start + len(unit)
        line = " ".join(unit.split())
        form = "{unit} repeats without end; what follows its first time is left out"
        reason = Reason(form, unit=repr(line if len(line) <= 40 else f"{line[:40]}…"))
        return Defect(Problem.LOOP, reason, sound)
    plain = strip_fillers(body).encode()
    if (used_up or task is Task.TEXT) and len(plain) >= _DENSE_LENGTH:
        density = len(plain) / len(zlib.compress(plain))
        if density > (_DENSE if task is Task.TEXT else 2 * _DENSE):
            reason = Reason("the answer says the same {times:.0f} times over", times=density)
            return Defect(Problem.LOOP, reason, len(text))
    return None


def loop_start(text: str, repeats: int) -> tuple[int, str]:
    """Return where a text begins to repeat itself up to its end, and the unit.

    The result is (len(text), "") if it does not. The prefix function of Knuth, Morris and Pratt (1977) over the
    reversed text gives the shortest period of every suffix in linear time.
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


_NUMBER = re.compile(r"\d[\d.,]*")
_DIGITS = re.compile(r"(\d{1,3})(?:[,.]?\1){11,}")
"""One to three digits repeated twelve times: a number whose digits multiplied. Few such numbers are printed."""
_CELLS = re.compile(r"(?:(?:</tr>)?(?:<tr>)?<t[dh]></t[dh]>){300,}")
"""Consecutive empty cells. The largest forms on one page have some 300."""


def find_runaway(text: str, task: Task) -> str | None:
    """Return the first run of multiplied digits or of empty cells, else None.

    `text` is an answer whose tables are HTML. The run may really be printed, which another reading with the same run
    confirms.
    """
    if task is Task.FORMULA:
        return None
    for number in _NUMBER.findall(text):
        # Decimals such as 0.1333333333333333 do not count.
        if run := _DIGITS.search(number.partition(".")[0] if number.count(".") == 1 else number):
            return run[0]
    cells = _CELLS.search(text) if task is Task.TABLE else None
    return cells[0] if cells else None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to request a region.

    `to_lines` sends no more pixels than its lines need, if that is known and wanted. `scale` is relative to the usual
    size of its image, `all_room` allows the answer all tokens that the context leaves, and `parts` is the number of
    strips into which the region is cut.
    """

    to_lines: bool = False
    scale: float = 1.0
    temperature: float = 0.0
    all_room: bool = False
    parts: int = 1


FIRST_ATTEMPT = Attempt(to_lines=True)
_FULL_SIZE = Attempt()
"""The attempt for a region whose image is not scaled down to its lines."""
_WARM = Attempt(temperature=0.3, all_room=True)
"""An attempt warm enough to leave the path of greedy decoding, yet still almost greedy."""
_PLANS = MappingProxyType(
    {
        # Half, then a quarter of the pixels; a table's small print would not survive the quarter.
        Problem.TOO_LARGE: (Attempt(scale=0.7), Attempt(scale=0.5), Attempt(parts=2, all_room=True)),
        # A request that is refused for a reason other than its size is refused at any size.
        Problem.REFUSED: (),
        Problem.CUT: (Attempt(all_room=True), Attempt(parts=2, all_room=True), Attempt(parts=4, all_room=True)),
        # Another size gives different image tokens, which leads a greedy model out of a loop.
        Problem.LOOP: (Attempt(scale=0.8), _WARM, Attempt(parts=2)),
        # At another size, the digits and cells are read afresh.
        Problem.RUNAWAY: (Attempt(scale=1.25), Attempt(scale=0.8)),
        Problem.EMPTY: (Attempt(scale=1.5), Attempt(scale=0.75), _WARM),
        Problem.SCRIPT: (Attempt(scale=1.25), _WARM),
    }
)
_WHOLE = frozenset({"chart", "seal", "vertical_text"})
"""Labels of regions that are one picture, or whose lines run from top to bottom."""
_REFUSALS = frozenset({Problem.TOO_LARGE, Problem.REFUSED})
_TABLE_TOO_LARGE = (Attempt(scale=0.7), Attempt(parts=2, all_room=True), Attempt(parts=4, all_room=True))


def may_be_cut(task: Task, label: str) -> bool:
    """Return whether a region reads the same in strips as in one piece."""
    return task is not Task.FORMULA and label not in _WHOLE


def next_attempt(
    task: Task, label: str, problem: Problem, attempts: Sequence[Attempt], scaled_down: bool
) -> Attempt | None:
    """Return the plan's next attempt for a problem, beyond the `attempts` so far, if any.

    A region whose first image was `scaled_down` to its lines is first retried at full size, unless the server refused
    it.
    """
    plan = _TABLE_TOO_LARGE if problem is Problem.TOO_LARGE and task is Task.TABLE else _PLANS[problem]
    if scaled_down and problem not in _REFUSALS:
        plan = (_FULL_SIZE, *plan)
    for attempt in plan:
        if attempt not in attempts and (attempt.parts == 1 or may_be_cut(task, label)):
            return attempt
    return None


@dataclass(frozen=True, slots=True)
class AttemptReading:
    """The result of one attempt at a region.

    `answer` holds the model's own words, and `text` the same without its marks. `scale` is that of the image.
    """

    answer: ChatAnswer
    text: str
    defect: Defect | None
    seconds: float
    scale: float

    @property
    def sound(self) -> str:
        """The part of the text before its defect."""
        return self.text if self.defect is None else self.text[: self.defect.sound]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of the attempts at a part or a whole region.

    `doubt` says why an accepted reading is unsure.
    """

    reading: AttemptReading
    attempts: int
    seconds: float
    failed: bool = False
    doubt: str | None = None


def _tidy_sound(reading: AttemptReading, task: Task) -> str:
    """Return the sound part of an answer as content, without a torn tag."""
    torn = task is Task.TABLE and reading.defect is not None
    return tidy(_TORN_TAG.sub("", reading.sound) if torn else reading.sound, task)


def no_reading(problem: Problem, reason: str, scale: float) -> AttemptReading:
    """Make the reading of an attempt that got no answer."""
    return AttemptReading(ChatAnswer("", "error", 0), "", Defect(problem, reason, 0), 0.0, scale)


def is_confirmed(readings: Sequence[AttemptReading], task: Task) -> bool:
    """Return whether an earlier attempt with the same problem confirms the last."""
    *others, last = readings
    problem = last.defect.problem if last.defect else None
    for other in others:
        is_same = other.defect is not None and other.defect.problem is problem
        if problem and is_same and answers_agree(problem, last.text, other.text, task):
            return True
    return False


def join_readings(task: Task, parts: Sequence[AttemptReading]) -> AttemptReading:
    """Join parts of a region into one reading, with the first defect of any part."""
    texts: list[str] = []
    defect: Defect | None = None
    finish_reason, tokens, seconds, scale = "stop", 0, 0.0, math.inf
    for part in parts:
        texts.append(_tidy_sound(part, task))
        tokens += part.answer.tokens
        # The parts are read at the same time.
        seconds = max(seconds, part.seconds)
        scale = min(scale, part.scale)
        if defect is None and part.defect is not None:
            defect, finish_reason = part.defect, part.answer.finish_reason
    text = (join_tables if task is Task.TABLE else "\n".join)(texts)
    if defect is not None:
        defect = replace(defect, sound=len(text))
    return AttemptReading(ChatAnswer(text, finish_reason, tokens), text, defect, seconds, scale)


def reading_text(
    region: Region, reading: AttemptReading, attempts: int, seconds: float, reused: bool = False
) -> RegionText:
    """Make the text of a reading; a confirmed empty one makes the region blank."""
    content = tidy(reading.text, region.task)
    empty = reading.defect is not None and reading.defect.problem is Problem.EMPTY and not content
    return RegionText(
        region.index,
        region.label,
        content,
        State.BLANK if empty else State.OK,
        "two attempts read nothing" if empty else None,
        reading.answer.finish_reason,
        attempts,
        seconds,
        reading.scale,
        reused,
    )


def join_outcomes(task: Task, parts: Sequence[Outcome]) -> Outcome:
    """Join the outcomes of a region's parts; the region fails if any part does."""
    reading = join_readings(task, [part.reading for part in parts])
    failure: Defect | None = None
    attempts, seconds, doubt = 0, 0.0, None
    for number, part in enumerate(parts, 1):
        attempts, seconds = max(attempts, part.attempts), max(seconds, part.seconds)
        doubt = doubt or part.doubt
        if part.failed and failure is None:
            defect = part.reading.defect
            assert defect is not None
            reason = Reason("part {number} of {count}: {reason}", number=number, count=len(parts), reason=defect.reason)
            failure = Defect(defect.problem, reason, len(reading.text))
    # If no part failed, the defect of one was confirmed, and only counts if the whole region has no text.
    if failure is not None or reading.text.strip():
        reading = replace(reading, defect=failure)
    return Outcome(reading, attempts, seconds, failure is not None, doubt)


def failed_text(region: Region, settled: Outcome) -> RegionText:
    """Make the text of a failed region from its sound part, with the reason."""
    reading = settled.reading
    assert reading.defect is not None
    return RegionText(
        region.index,
        region.label,
        _tidy_sound(reading, region.task),
        State.FAILED,
        reading.defect.reason,
        reading.answer.finish_reason,
        settled.attempts,
        settled.seconds,
        reading.scale,
    )
