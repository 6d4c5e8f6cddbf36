"""Sorts the words of a text layer into printed lines. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from statistics import median, median_low
from typing import TypeVar

from kopub.boxes import Box, union
from kopub.pages.documents.text_layer import Mark, Word, characters_of
from kopub.recognition.content import shorten_leaders

_OVERLAP = 0.5
"""Least share of the smaller word's height by which two words on one line overlap."""
_NEAR = 3
"""Rows up to which a row's words in another font may be drawn after it."""
_BELOW = 0.3
"""Share of a row's height by which a comma may hang below its letters."""
_SHARED = 0.3
"""Share of a word's width that another word may cover if they stand side by side."""
_STACKED = 0.6
"""Least share of steps from word to word that lead down in a column of single characters."""
_APART = 0.5
"""Share of a character's size from which a gap is a blank if PDFium gives none."""
_FITTED = 3
"""Times that the distance of two letters of code is fitted to their steps."""
_IGNORED = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
"""Hyphens that are not printed, joiners and zero-width marks."""
_LIGATURE = re.compile("[\ufb00-\ufb06]")
_LEFTWARD = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
"""A letter of writing that runs from right to left."""
_BULLET = re.compile("^[\ue000-\uf8ff](?=\\s|$)")
"""A character of a symbol font at the start of a line: such fonts do not say what their bullets are."""


@dataclass(frozen=True)
class Line:
    """The words of a line from left to right; its box in the reading direction."""

    words: tuple[Word, ...]

    @cached_property
    def box(self) -> Box:
        return box_of(self.words)

    @property
    def letters(self) -> str:
        """Its text without blanks."""
        return joined(self.words)


def joined(words: Iterable[Word], blank: str = "") -> str:
    """Return the text of words, without blanks if none is given."""
    return blank.join(word.text for word in words)


def box_of(words: Iterable[Word]) -> Box:
    """Return the smallest box around words, of which there is at least one."""
    return union(word.box for word in words)


def usual_height(words: Iterable[Word]) -> float:
    """Return the median height of words in pixels."""
    return median(word.box.height for word in words)


def words_in(lines: Iterable[Line]) -> list[Word]:
    """Return the words of several lines."""
    return [word for line in lines for word in line.words]


def on_one_line(a: Box, b: Box) -> bool:
    """Return whether two boxes overlap as words of one line do."""
    return min(a.y2, b.y2) - max(a.y1, b.y1) > _OVERLAP * min(a.height, b.height)


_Printed = TypeVar("_Printed", Word, Line)


def _rows(printed: Iterable[_Printed]) -> list[list[_Printed]]:
    """Return words, or parts of lines, by printed row, from the top and the left."""
    rows: list[list[_Printed]] = []
    for part in sorted(printed, key=lambda part: part.box.y1 + part.box.y2):
        if rows and on_one_line(rows[-1][0].box, part.box):
            rows[-1].append(part)
        else:
            rows.append([part])
    for row in rows:
        row.sort(key=lambda part: part.box.x1)
    return rows


def printed_rows(words: Iterable[Word]) -> list[Line]:
    """Return the words by printed row, from the top and the left."""
    return [Line(tuple(row)) for row in _rows(words)]


def lines_of(words: Sequence[Word]) -> list[Line]:
    """Return the lines in reading order.

    This is the order of the PDF if it leads down the page, or else from top to bottom. Turned lines and vertical
    writing are turned upright first, so that their boxes are no longer places on the page.
    """
    runs: list[list[Word]] = []
    for word in set_upright(words):
        if runs and on_one_line(runs[-1][-1].box, word.box) and word.box.x1 >= runs[-1][-1].box.x1:
            runs[-1].append(word)
        else:
            runs.append([word])
    lines = [Line(tuple(run)) for run in runs]
    right = 0
    for above, below in pairwise(line.box for line in lines):
        right = max(right, above.x2)
        # A next line that stands higher is right only at the head of a second column.
        leads_up = below.y2 <= above.y1 and below.x1 < right
        if leads_up or (on_one_line(above, below) and below.x1 < above.x1):
            lines = list(chain.from_iterable(_rows(lines)))
            break
    rows: list[Line] = []
    for line in lines:
        for at in range(len(rows) - 1, max(-1, len(rows) - _NEAR - 1), -1):
            goes_on = at == len(rows) - 1 and line.box.x1 >= rows[at].box.x2
            if (goes_on and on_one_line(rows[at].box, line.box)) or _is_between(line, rows[at]):
                rows[at] = Line(tuple(sorted((*rows[at].words, *line.words), key=lambda word: word.box.x1)))
                break
        else:
            rows.append(line)
    return rows


def _is_between(line: Line, row: Line) -> bool:
    """Return whether words belong in the gaps that were left for them in a row."""
    box = row.box
    if not any(map(str.isalnum, line.letters)):
        box = box._replace(y2=round(box.y2 + _BELOW * box.height))
    if not box.x1 <= line.box.x1 <= box.x2 or not on_one_line(box, line.box):
        return False
    for word in line.words:
        for other in row.words:
            if min(word.box.x2, other.box.x2) - max(word.box.x1, other.box.x1) > _SHARED * word.box.width:
                return False
    return True


def set_upright(words: Sequence[Word]) -> list[Word]:
    """Return the words turned so that lines run left to right and downwards."""
    half = characters_of(words) / 2
    runs_down = characters_of(words, Mark.DOWN) > half
    if not runs_down and len(words) >= 3 and characters_of(words) <= 1.5 * len(words):
        # In vertical writing without a mark, the characters are stacked.
        down = 0
        for above, below in pairwise(words):
            a, b = above.box, below.box
            across = min(a.x2, b.x2) - max(a.x1, b.x1)
            down += across > _OVERLAP * min(a.width, b.width) and b.y1 > a.y1
        runs_down = down >= _STACKED * (len(words) - 1)
    if not runs_down and characters_of(words, Mark.UP) <= half:
        return list(words)
    turned: list[Word] = []
    for word in words:
        x1, y1, x2, y2 = word.box
        turned.append(replace(word, box=Box(y1, -x2, y2, -x1) if runs_down else Box(-y2, x1, -y1, x2)))
    return turned


def text_of(lines: Sequence[Line]) -> str:
    """Return the lines as they are printed.

    A hyphenated word is put whole on the line where it begins. The hyphen is removed only if small letters stand on
    both sides of it.
    """
    words = words_in(lines)
    is_stack = len(words) > 2 and all(len(word.text) == 1 for word in words)
    texts: list[str] = []
    carried = 0  # words of a line that end the line before it
    for line in lines:
        for at, word in enumerate(_as_read(line)):
            if at < carried:
                in_small = texts[-1][-1:].islower() and word.text[:1].islower()
                texts[-1] += word.text if in_small else f"-{word.text}"
            elif at == carried:
                texts.append(word.text)
            else:
                is_apart = not is_stack or word.box.x1 - line.words[at - 1].box.x2 > _APART * word.box.height
                texts[-1] += f" {word.text}" if is_apart else word.text
        carried = 1 if line.words[-1].marks & Mark.HYPHEN else 0
    if carried:
        texts[-1] += "-"
    return "\n".join(filter(None, map(clean, texts)))


def _as_read(line: Line) -> Sequence[Word]:
    """Return a line's words in reading order, to the left where most letters run so."""
    if 2 * len(_LEFTWARD.findall(line.letters)) <= sum(map(str.isalpha, line.letters)):
        return line.words
    words: list[Word] = []
    end = 0  # of the words from right to left; those after it keep their order
    for word in reversed(line.words):
        is_rightward = any(map(str.isalpha, word.text)) and not _LEFTWARD.search(word.text)
        words.insert(end if is_rightward else len(words), word)
        end = end if is_rightward else len(words)
    return words


def clean(text: str) -> str:
    """Return a line in NFC, without ligatures and invisible characters.

    A bullet of a symbol font becomes an ordinary one, and a run of dots one sign.
    """
    plain = _LIGATURE.sub(lambda ligature: unicodedata.normalize("NFKC", ligature[0]), _IGNORED.sub("", text))
    return shorten_leaders(_BULLET.sub("•", unicodedata.normalize("NFC", plain).strip()))


def code_of(lines: Sequence[Line]) -> str:
    """Return lines of code with the indents and empty lines that fit."""
    # The distance of two letters. The ink of a word is a little shorter than its letters, which counts least in long
    # words.
    words = words_in(lines)
    longest = max((len(word.text) for word in words), default=0)
    widths = [word.box.width / _cells(word.text) for word in words if 2 * len(word.text) >= longest]
    width = max(1.0, median(widths)) if widths else 1.0
    across: list[int] = []
    for line in lines:
        across += (after.box.x1 - before.box.x1 for before, after in pairwise(line.words))
    for _ in range(_FITTED):
        letters = sum(round(step / width) for step in across)
        width = max(1.0, sum(across) / letters) if letters > 0 else width
    left = min((line.box.x1 for line in lines), default=0)
    steps = [below.box.y2 - above.box.y2 for above, below in pairwise(lines)]
    usual = max(1, median_low(steps)) if steps else 1
    texts = []
    for line, step in zip(lines, [usual, *steps], strict=False):
        texts += [""] * (round(step / usual) - 1)
        text = " " * round((line.box.x1 - left) / width)
        for at, word in enumerate(line.words):
            if at:
                before = line.words[at - 1]
                text += " " * max(1, round((word.box.x1 - before.box.x1) / width) - _cells(before.text))
            text += word.text + ("-" if word.marks & Mark.HYPHEN else "")
        texts.append(unicodedata.normalize("NFC", _IGNORED.sub("", text)))
    return "\n".join(texts)


def _cells(text: str) -> int:
    """Return the letters that a text is as wide as; Hangul takes two of them."""
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in text)
