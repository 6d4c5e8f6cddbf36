"""A second reader of figures, which knows more signs than Tesseract.

PP-OCRv6 reads those that Tesseract's Korean data lack, but no Hangul.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box, union
from kopub.layout.ink import PRINT_CONTRAST, ink_mask
from kopub.layout.runs import true_runs
from kopub.recognition.print_reader import CERTAIN, FIGURE, OcrWord, mean_confidence
from kopub.recognition.tesseract.figure_model import SecondReading
from kopub.recognition.tesseract.words import HALF_SURE, NONSENSE, SURE_SYLLABLE, count_syllables, join_words

_FIGURE = re.compile(rf"({FIGURE}(?:\.\d+)*[)%℃]*)([A-Za-z]{{1,2}}[23²³]?)?|(-)")
"""A figure with its signs, and the unit behind it."""
_IN_TEXT = re.compile(r"\W{0,3}[A-Za-z]?\W?\d[\d.,]*\W{0,2}(?:[A-Za-z]{1,2}[23²³]?)?\W{0,2}")
"""The form of a figure in a line of text, with signs that Tesseract may have taken for a letter."""
_FORMULA = re.compile(r".=|\w\+\w")
"""Signs within a line that no figure has."""
_LOOKS = str.maketrans("lIi|Oo", "111100")
"""Letters that Tesseract takes for figures."""
_SURE_IN_TEXT, _FEWEST_IN_TEXT = 90, 3
"""Confidence of Tesseract from which a figure of fewer digits in a line of text has one reader."""
_SHORT = 16
"""Most letters of a line that may be a figure."""
SURE = 0.8
"""Certainty of the least certain character from which a figure counts; wrong ones are mostly below."""
_SURE_AGREED = 0.4
"""The same for a figure whose digits both readers know, if its sign and ㎡ perhaps only the second."""
_CERTAIN = 0.97
"""Certainty from which the second reader is believed where Tesseract is unsure."""
_MORE = 3
"""Most digits that Tesseract reads for signs and units."""
SURE_FIRST = 85
"""Mean confidence of Tesseract from which its figure is a second opinion."""
_RAISED = 0.1
"""How much lower than its figure a plain m begins at least, as a share of the line's height."""


def is_figure(line: Sequence[OcrWord]) -> bool:
    """Return whether a whole line may be a figure, such as that of a cell.

    It is short, and may begin or end with a syllable, for which Tesseract takes some signs and units, or be nonsense.
    """
    text = "".join(word.text for word in line)
    is_unsure = min(word.confidence for word in line) < HALF_SURE
    if len(text) > _SHORT or not (len(text) <= 1 or is_unsure or any(map(str.isdigit, text))) or _FORMULA.search(text):
        return False
    unit = line[-1].confidence < SURE_SYLLABLE and count_syllables(line[-1].text) == len(line[-1].text) == 1
    return count_syllables(text[1:]) == (unit and len(line) > 1) or mean_confidence(line) < NONSENSE


def figure_runs(line: Sequence[OcrWord]) -> list[tuple[int, int]]:
    """Return ranges (start, end) of words that may be figures.

    In a line of text these have the form of a figure, and are not both short and sure, such as the number of a section.
    """
    if is_figure(line):
        return [(0, len(line))]
    runs: list[tuple[int, int]] = []
    for at, word in enumerate(line):
        if count_syllables(word.text) or word.confidence >= CERTAIN:
            continue
        if runs and runs[-1][1] == at and not word.after_blank:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    figures: list[tuple[int, int]] = []
    for start, end in runs:
        text = "".join(word.text for word in line[start:end])
        is_sure = min(word.confidence for word in line[start:end]) >= _SURE_IN_TEXT
        if _IN_TEXT.fullmatch(text) and not (is_sure and sum(map(str.isdigit, text)) < _FEWEST_IN_TEXT):
            figures.append((start, end))
    return figures


def has_raised_unit(strip: NDArray[np.uint8]) -> bool:
    """Return whether the last letter of a line is as high as its figures.

    A m is lower, unless it carries the 2 of ㎡.
    """
    ink = ink_mask(strip, PRINT_CONTRAST)
    rows, letters = np.flatnonzero(ink.any(axis=1)), true_runs(np.any(ink, axis=0))
    if len(letters) < 2:
        return False
    return bool(ink[: int(rows[0] + _RAISED * (rows[-1] - rows[0] + 1)), letters[-1][0] :].any())


def with_figure(line: list[OcrWord], run: tuple[int, int], second: SecondReading) -> tuple[list[OcrWord], str | None]:
    """Return the line with the better reading of a run, and a doubt.

    The doubt names both readings of a short line, or of the run, if their digits differ.
    """
    read = _FIGURE.fullmatch(second.text)
    if read is None:
        return line, None
    figure, unit = read[1] or read[3], read[2] or ""
    if unit.startswith("m") and len(unit) > 1:
        unit = "㎥" if unit[1:2] in ("3", "³") else "㎡"
    elif run[1] - run[0] > 1 and count_syllables(line[run[1] - 1].text):
        # A syllable behind a figure is its unit, which the second reader does not know.
        run, unit = (run[0], run[1] - 1), ""
    words = line[slice(*run)]
    first = "".join(join_words(words).split())
    digits, alike = _digits(figure), False
    # Tesseract takes a sign before a figure, and a unit after it, for more digits.
    for signs in range(1 if figure[0].isdigit() else 3):
        other = _digits(first[signs:])
        alike |= other.startswith(digits) and len(other) - len(digits) <= _MORE
    certainty = min(second.certainties[: len(figure)])
    agreed = first == figure + unit or (alike and (figure[0] in "△▲▽▼" or unit in ("㎡", "㎥")))
    if certainty < (_SURE_AGREED if agreed else SURE):
        return line, None
    better = [*line[: run[0]], _confirmed(words, figure + unit, certainty), *line[run[1] :]]
    sure = certainty >= _CERTAIN and mean_confidence(words) < SURE_FIRST
    if alike or sure or not _digits(first):
        return better, None
    short = sum(len(word.text) for word in line) <= _SHORT
    named = [join_words(line), join_words(better)] if short else [first, figure + unit]
    return better, " or ".join("".join(name.split()) for name in named)


def settle(line: list[OcrWord], second: SecondReading) -> tuple[list[OcrWord], str | None]:
    """Return a line that is no sure figure to the second reader, and a doubt.

    Of two readings that differ in letters that look like figures, a word such as `i386` is the second reader's.
    """
    if min(second.certainties, default=0) < SURE:
        # English may know the digits of a figure whose sign only the second reader knows.
        return with_figure(line, (0, len(line)), second)
    first = "".join(join_words(line).split())
    digits = _digits(first), _digits(second.text)
    if not all(digits) or digits[0] == digits[1]:
        return line, None
    alike = first.translate(_LOOKS) == second.text.translate(_LOOKS)
    if alike and second.text[0].isalpha() and min(second.certainties) >= _CERTAIN:
        return [_confirmed(line, second.text, min(second.certainties))], None
    return line, f"{first} or {second.text}"


def _confirmed(words: Sequence[OcrWord], text: str, certainty: float) -> OcrWord:
    """Return the second reader's word in place of Tesseract's."""
    around = union([Box(*word.box) for word in words])
    return OcrWord(text, 99 * certainty, around, words[0].after_blank, confirmed=True)


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))
