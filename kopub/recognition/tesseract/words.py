"""Words of a line: merged Korean and English readings, and dot leaders.

Tesseract's Korean model reads Hangul almost without error but has no Latin letters: it reads "USB" as "058". Its
English model reads Latin well and Hangul as nonsense. Both give low confidence to words that are not in their script.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kopub.layout.ink import PRINT_CONTRAST, ink_mask, paper_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

SURE = 84
"""Confidence from which a word without Hangul is mostly correct: real numbers reach 90, Latin read as digits 75."""
SURE_LATIN = 92
"""Confidence from which Latin replaces unsure Hangul or a less sure number: "BIOS" is read as 8109 with 88."""
SURE_SYLLABLE = 90
"""Confidence from which Hangul is not a Latin word: most syllables have 93."""
SURE_HANGUL = 45
"""Confidence from which Hangul syllables are accepted: real ones are above 50, made-up ones mostly at 0."""

NONSENSE = 20
"""Confidence below which apparent Hangul is as likely to be Latin."""
HALF_SURE = 60
"""Confidence below which a word without Hangul is so rarely correct that any English reading is better."""
CERTAIN = 100
"""Confidence of a word that was measured, not read (dot leaders); it is never read again."""
READ_FOR_BULLETS = frozenset("ㆍ¢®©")
"""Misreadings of a bullet; none of these stands alone at the start of a Korean line."""
PARTICLES = frozenset("은는을를의에와과로도")
"""Syllables that begin a particle after a Latin word, and that are hardly ever misread letters, unlike 다 for C or 아
for e."""
BLANK = 0.17
"""Narrowest white space between words, in widths of a Hangul syllable; between letters it is a third of that."""


@dataclass(frozen=True, slots=True)
class OcrWord:
    """A word that Tesseract read, with its confidence and its position.

    `box` is (x1, y1, x2, y2) in pixels of the block, and `after_blank` whether white space precedes it. The Korean
    model splits words into syllables, and those without a blank before them belong together. A figure that the second
    reader knows is `confirmed`, and not read again.
    """

    text: str
    confidence: float
    box: tuple[int, int, int, int]
    after_blank: bool
    confirmed: bool = False


def is_syllable(char: str) -> bool:
    """Return whether a character is a composed Hangul syllable."""
    return "가" <= char <= "힣"


def count_syllables(text: str) -> int:
    """Count the composed Hangul syllables of a text."""
    return sum(map(is_syllable, text))


def unsure_words(line: Sequence[OcrWord]) -> list[tuple[int, int]]:
    """Return ranges (start, end) of words with unsure Hangul that may be Latin.

    They contain neither a blank nor sure Hangul: the Korean model reads "NTFS" as 지18. A range of syllables alone is
    Hangul, if badly printed, unless it is a single syllable between blanks.
    """
    found = []
    for first, last in _printed_words(line):
        sure = [here for here in range(first, last) if _is_sure_hangul(line[here])]
        for start, end in pairwise([first - 1, *sure, last]):
            text = "".join(word.text for word in line[start + 1 : end])
            syllables = count_syllables(text)
            if 0 < syllables < len(text) or (text and syllables == 1 and not sure):
                found.append((start + 1, end))
    return found


def _is_sure_hangul(word: OcrWord) -> bool:
    return word.confirmed or (count_syllables(word.text) > 0 and word.confidence >= SURE_SYLLABLE)


def is_latin_word(_: Sequence[OcrWord], english: Sequence[OcrWord]) -> bool:
    """Return whether the English reading of an unsure word is surely Latin."""
    return _count_latin(english) > 1 and min(word.confidence for word in english) >= SURE_LATIN


def uncertain_runs(line: Sequence[OcrWord]) -> list[tuple[int, int]]:
    """Return ranges (start, end) of words that may be Latin and are read again.

    Words without Hangul next to an uncertain one are included: a "18" between Latin words is an "is". All other words
    with digits and no Hangul are ranges of their own, because the Korean model can be sure of digits that are really
    letters.
    """
    marks = [_is_uncertain(word) for word in line]
    for order in (range(1, len(line)), range(len(line) - 2, -1, -1)):
        for here in order:
            before = line[here - order.step]
            if marks[here - order.step] and not count_syllables(before.text) and _may_be_latin(line[here]):
                marks[here] = True
    for here in range(1, len(line) - 1):
        if _is_enclosed(line, here) and (marks[here - 1] or marks[here + 1]):
            marks[here - 1 : here + 2] = [True] * 3
    cores: list[tuple[int, int]] = []
    for here, word in enumerate(line):
        if marks[here] and cores and cores[-1][1] == here and not word.after_blank:
            cores[-1] = (cores[-1][0], here + 1)
        elif marks[here]:
            cores.append((here, here + 1))
    runs: list[tuple[int, int]] = []
    for start, end in cores:
        if runs and runs[-1][1] == start and _is_hangul(line[start:end]) == _is_hangul(line[slice(*runs[-1])]):
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    alone = [(here, here + 1) for here, word in enumerate(line) if not marks[here] and _may_be_digits_for_latin(word)]
    return sorted([*(_without_particle(line, run) for run in runs), *alone])


def _without_particle(line: Sequence[OcrWord], run: tuple[int, int]) -> tuple[int, int]:
    """Return a run without a particle attached to its end.

    The English model would read "brltty를" as "brlttyS".
    """
    start, last = run[0], run[1] - 1
    glued = last > start and not line[last].after_blank and not count_syllables(line[last - 1].text)
    return (start, last) if glued and line[last].text[:1] in PARTICLES else run


def _may_be_digits_for_latin(word: OcrWord) -> bool:
    """Return whether a word with digits may be letters, which the Korean model lacks."""
    has_digits = any(char.isascii() and char.isdigit() for char in word.text)
    return _may_be_latin(word) and has_digits and not _count_latin([word])


def _is_enclosed(line: Sequence[OcrWord], here: int) -> bool:
    """Return whether a word is one unsure syllable between letters, without blanks.

    The "tF" of "AltF4" may be read as one.
    """
    before, word, after = line[here - 1 : here + 2]
    glued = not word.after_blank and not after.after_blank
    around = not count_syllables(before.text) and not count_syllables(after.text)
    return glued and around and len(word.text) == 1 and word.confidence < SURE


def _may_be_latin(word: OcrWord) -> bool:
    return not count_syllables(word.text) and word.confidence < CERTAIN and not word.confirmed


def _is_hangul(words: Sequence[OcrWord]) -> bool:
    return _mostly_hangul(words) and mean_confidence(words) >= NONSENSE


def _mostly_hangul(words: Sequence[OcrWord]) -> bool:
    letters = [char for word in words for char in word.text if char.isalnum()]
    return 2 * sum(map(is_syllable, letters)) > len(letters)


def _is_uncertain(word: OcrWord) -> bool:
    if count_syllables(word.text):
        return word.confidence < SURE_HANGUL
    if word.confirmed:
        return False
    jamo = any("ㄱ" <= char <= "ㅣ" for char in word.text)
    legible = any(char.isalnum() or char in "\\/|" for char in word.text)
    return jamo or (legible and word.confidence < SURE)


def mean_confidence(words: Sequence[OcrWord]) -> float:
    """Return the mean confidence, weighted by letters; 0 for no words."""
    letters = sum(len(word.text) for word in words)
    return sum(len(word.text) * word.confidence for word in words) / letters if letters else 0.0


def english_is_better(korean: Sequence[OcrWord], english: Sequence[OcrWord]) -> bool:
    """Return whether the English reading of an uncertain run replaces the Korean one."""
    latin = _count_latin(english)
    sure_english, sure_korean = mean_confidence(english), mean_confidence(korean)
    if _mostly_hangul(korean):
        return (
            latin > 2 * sum(count_syllables(word.text) for word in korean)
            and sure_english >= 70
            and sure_korean < NONSENSE
        )
    if not any(_is_uncertain(word) for word in korean):
        return latin > 0 and sure_english >= SURE_LATIN and sure_english > sure_korean
    return bool(english) and (sure_english >= NONSENSE or sure_korean < HALF_SURE)


def _count_latin(words: Sequence[OcrWord]) -> int:
    return sum(char.isascii() and char.isalpha() for word in words for char in word.text)


def syllable_width(line: Sequence[OcrWord]) -> float:
    """Return the median width in pixels of a line's Hangul syllables, else its height."""
    widths = sorted(
        (words[-1].box[2] - words[0].box[0]) / sum(len(word.text) for word in words)
        for words in (line[start:end] for start, end in _printed_words(line))
        if (text := "".join(word.text for word in words)) and len(text) == count_syllables(text) > 1
    )
    if widths:
        return widths[len(widths) // 2]
    return float(max(word.box[3] for word in line) - min(word.box[1] for word in line))


def _printed_words(line: Sequence[OcrWord]) -> list[tuple[int, int]]:
    """Return the ranges (start, end) of words that have no blank between them."""
    starts = [i for i, word in enumerate(line) if word.after_blank or i == 0]
    return list(pairwise([*starts, len(line)]))


def run_span(line: Sequence[OcrWord], run: tuple[int, int], gaps: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return left and right of a run in pixels, snapped to `gaps`.

    `gaps` are the columns (start, end) without ink. The Korean model's boxes inside a printed word are rough. Hangul is
    as wide as it is high, so where the run meets the rest of its printed word is measured in syllables from the word's
    other end.
    """
    start, end = run
    em = syllable_width(line)
    first, last = start, end - 1
    while first > 0 and not line[first].after_blank:
        first -= 1
    while last + 1 < len(line) and not line[last + 1].after_blank:
        last += 1
    left, right = line[first].box[0], line[last].box[2]
    if first < start:
        left = _nearest(left + em * sum(_width(word.text) for word in line[first:start]), gaps, 0.4 * em)[1]
    else:
        left = _before(left, gaps, em)
    if end <= last:
        right = _nearest(right - em * sum(_width(word.text) for word in line[end : last + 1]), gaps, 0.4 * em)[0]
    else:
        right = _after(min(right, line[end].box[0]) if end < len(line) else right, gaps, em)
    return left, right


def _width(text: str) -> float:
    """Return a text's width in syllables; letters are about half as wide."""
    return sum(1.0 if is_syllable(char) else 0.55 if char.isalnum() else 0.4 for char in text)


def _nearest(x: float, gaps: Sequence[tuple[int, int]], reach: float) -> tuple[int, int]:
    near = [gap for gap in gaps if gap[0] - reach <= x <= gap[1] + reach]
    return min(near, key=lambda gap: abs((gap[0] + gap[1]) / 2 - x)) if near else (round(x), round(x))


def _before(x: int, gaps: Sequence[tuple[int, int]], em: float) -> int:
    """Return the end of the last blank that ends near `x`, where a word starts.

    It ends at most an `em` before `x` and a tenth of an `em` after it.
    """
    ends = [end for start, end in gaps if end - start >= BLANK * em and x - em <= end <= x + 0.1 * em]
    return max(ends, default=x)


def _after(x: int, gaps: Sequence[tuple[int, int]], em: float) -> int:
    """Return the start of the first blank that starts near `x`, where a word ends.

    It starts at most a tenth of an `em` before `x` and an `em` after it.
    """
    starts = [start for start, end in gaps if end - start >= BLANK * em and x - 0.1 * em <= start <= x + em]
    return min(starts, default=x)


def join_words(words: Sequence[OcrWord]) -> str:
    """Join words into a text, with the blanks that were printed.

    A lone sign at the start may be a misread bullet.
    """
    if len(words) > 1 and words[0].text in READ_FOR_BULLETS and words[1].after_blank:
        return f"• {join_words(words[1:])}"
    return "".join(f" {word.text}" if word.after_blank and i else word.text for i, word in enumerate(words))


LARGEST_DOT = 14
"""Most pixels of a dot; one of a 12-point leader has 7 at 300 dpi."""
FEWEST = 6
"""Fewest dots in a row that make a leader; three are an ellipsis."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A dot leader: `dots` equal dots at an equal pitch.

    `box` is (x1, y1, x2, y2) in pixels. Tesseract misreads leaders as letters, so they are measured and erased.
    """

    dots: int
    box: tuple[int, int, int, int]


def find_leaders(gray: "NDArray[np.uint8]") -> list[Leader]:
    """Find the dot leaders of a block, uint8 (height, width)."""
    import cv2

    _, _, stats, _ = cv2.connectedComponentsWithStats(ink_mask(gray, PRINT_CONTRAST).astype(np.uint8), connectivity=8)
    width, height = stats[1:, cv2.CC_STAT_WIDTH], stats[1:, cv2.CC_STAT_HEIGHT]
    small = (width <= LARGEST_DOT) & (height <= LARGEST_DOT) & (np.abs(width - height) <= 2) & (width >= 2)
    if np.count_nonzero(small) < FEWEST:
        return []
    dots = sorted((y + h // 2, x, y, w, h) for x, y, w, h, _ in stats[1:][small].tolist())
    leaders, row = [], [dots[0]]
    for dot in dots[1:]:
        if dot[0] - row[0][0] > 2:
            leaders += _in_row(row)
            row = []
        row.append(dot)
    return leaders + _in_row(row)


def _in_row(row: Sequence[tuple[int, int, int, int, int]]) -> list[Leader]:
    """Return the leaders among dots at one height: runs of equal pitch."""
    found: list[Leader] = []
    run: list[tuple[int, int, int, int, int]] = []
    for dot in [*sorted(row, key=lambda dot: dot[1]), None]:
        if dot and _continues(run, dot):
            run.append(dot)
            continue
        if len(run) >= FEWEST:
            box = (run[0][1], min(d[2] for d in run), run[-1][1] + run[-1][3], max(d[2] + d[4] for d in run))
            found.append(Leader(len(run), box))
        run = [dot] if dot else []
    return found


def _continues(run: Sequence[tuple[int, int, int, int, int]], dot: tuple[int, int, int, int, int]) -> bool:
    if not run:
        return True
    pitch = dot[1] - run[-1][1]
    if len(run) == 1:
        return pitch <= 5 * LARGEST_DOT
    return abs(pitch - (run[1][1] - run[0][1])) <= 2


def erase_leaders(gray: "NDArray[np.uint8]", leaders: Sequence[Leader]) -> "NDArray[np.uint8]":
    """Return the block without its leaders, or the same array if it has none."""
    if not leaders:
        return gray
    clean = gray.copy()
    paper = paper_level(gray)
    for leader in leaders:
        x1, y1, x2, y2 = leader.box
        clean[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = paper
    return clean


def insert_leaders(lines: Sequence[list[OcrWord]], leaders: Sequence[Leader]) -> list[list[OcrWord]]:
    """Put each leader into its line or, alone, between lines, as dots separated by blanks."""
    filled = [list(line) for line in lines]
    for leader in leaders:
        middle = (leader.box[1] + leader.box[3]) / 2
        line = next((line for line in filled if _top(line) <= middle <= _bottom(line)), None)
        word = OcrWord(" ".join("." * leader.dots), CERTAIN, leader.box, True)
        if line is None:
            filled.insert(sum(_top(other) < middle for other in filled), [word])
        else:
            place = sum(other.box[0] < leader.box[0] for other in line)
            line.insert(place, word)
    return filled


def _top(line: Sequence[OcrWord]) -> int:
    return min(word.box[1] for word in line)


def _bottom(line: Sequence[OcrWord]) -> int:
    return max(word.box[3] for word in line)
