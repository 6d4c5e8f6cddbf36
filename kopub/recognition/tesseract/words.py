"""Words of a line: Korean and English readings, merged.

Tesseract's Korean model reads Hangul almost without error but has no Latin letters: it reads "USB" as "058". Its
English model reads Latin well and Hangul as nonsense. Both give low confidence to words that are not in their script.
"""

from collections.abc import Sequence
from itertools import pairwise

from kopub.recognition.print_reader import CERTAIN, OcrWord, mean_confidence

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
READ_FOR_BULLETS = frozenset("ㆍ¢®©")
"""Misreadings of a bullet; none of these stands alone at the start of a Korean line."""
PARTICLES = frozenset("은는을를의에와과로도")
"""Syllables that begin a particle after a Latin word, hardly ever misread letters, unlike 다 for C or 아 for e."""
BLANK = 0.17
"""Narrowest white space between words, in widths of a Hangul syllable; between letters it is a third of that."""


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
    runs: list[tuple[int, int]] = []
    for first, last in _printed_words(line):
        sure: list[int] = []
        for here in range(first, last):
            word = line[here]
            if word.confirmed or (count_syllables(word.text) > 0 and word.confidence >= SURE_SYLLABLE):
                sure.append(here)
        for start, end in pairwise([first - 1, *sure, last]):
            text = "".join(word.text for word in line[start + 1 : end])
            syllables = count_syllables(text)
            if 0 < syllables < len(text) or (text and syllables == 1 and not sure):
                runs.append((start + 1, end))
    return runs


def is_latin_word(_: Sequence[OcrWord], english: Sequence[OcrWord]) -> bool:
    """Return whether the English reading of an unsure word is surely Latin."""
    return _count_latin(english) > 1 and min(word.confidence for word in english) >= SURE_LATIN


def uncertain_runs(line: Sequence[OcrWord]) -> list[tuple[int, int]]:
    """Return ranges (start, end) of words that may be Latin and are read again.

    Words without Hangul next to an uncertain one are included: a "18" between Latin words is an "is". All other words
    with digits and no Hangul are ranges of their own, because the Korean model can be sure of digits that are really
    letters.
    """
    marks = _uncertain_words(line)
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
    for at, (start, end) in enumerate(runs):
        last = line[end - 1]
        glued = end - start > 1 and not last.after_blank and not count_syllables(line[end - 2].text)
        # The English model would read "brltty를" as "brlttyS".
        if glued and last.text[:1] in PARTICLES:
            runs[at] = (start, end - 1)
    for here, word in enumerate(line):
        has_digits = any(char.isascii() and char.isdigit() for char in word.text)
        if not marks[here] and has_digits and _may_be_latin(word) and not _count_latin([word]):
            runs.append((here, here + 1))
    return sorted(runs)


def _uncertain_words(line: Sequence[OcrWord]) -> list[bool]:
    """Mark the words that are uncertain, and those without Hangul next to them."""
    marks = [_is_uncertain(word) for word in line]
    for order in (range(1, len(line)), range(len(line) - 2, -1, -1)):
        for here in order:
            before = line[here - order.step]
            if marks[here - order.step] and not count_syllables(before.text) and _may_be_latin(line[here]):
                marks[here] = True
    for here in range(1, len(line) - 1):
        before, word, after = line[here - 1 : here + 2]
        glued = not word.after_blank and not after.after_blank
        unsure = len(word.text) == 1 and word.confidence < SURE
        # The "tF" of "AltF4" may be read as one syllable.
        if glued and unsure and not count_syllables(before.text + after.text) and (marks[here - 1] or marks[here + 1]):
            marks[here - 1 : here + 2] = [True] * 3
    return marks


def _may_be_latin(word: OcrWord) -> bool:
    return not count_syllables(word.text) and word.confidence < CERTAIN and not word.confirmed


def _is_hangul(words: Sequence[OcrWord]) -> bool:
    return _mostly_hangul(words) and mean_confidence(words) >= NONSENSE


def _mostly_hangul(words: Sequence[OcrWord]) -> bool:
    text = "".join(word.text for word in words)
    return 2 * count_syllables(text) > sum(map(str.isalnum, text))


def _is_uncertain(word: OcrWord) -> bool:
    if count_syllables(word.text):
        return word.confidence < SURE_HANGUL
    if word.confirmed:
        return False
    jamo = any("ㄱ" <= char <= "ㅣ" for char in word.text)
    legible = any(char.isalnum() or char in "\\/|" for char in word.text)
    return jamo or (legible and word.confidence < SURE)


def english_is_better(korean: Sequence[OcrWord], english: Sequence[OcrWord]) -> bool:
    """Return whether the English reading of an uncertain run replaces the Korean one."""
    latin = _count_latin(english)
    sure_english, sure_korean = mean_confidence(english), mean_confidence(korean)
    if _mostly_hangul(korean):
        syllables = sum(count_syllables(word.text) for word in korean)
        return latin > 2 * syllables and sure_english >= 70 and sure_korean < NONSENSE
    if not any(_is_uncertain(word) for word in korean):
        return latin > 0 and sure_english >= SURE_LATIN and sure_english > sure_korean
    return bool(english) and (sure_english >= NONSENSE or sure_korean < HALF_SURE)


def _count_latin(words: Sequence[OcrWord]) -> int:
    return sum(char.isascii() and char.isalpha() for word in words for char in word.text)


def syllable_width(line: Sequence[OcrWord]) -> float:
    """Return the median width in pixels of a line's Hangul syllables, else its height."""
    widths: list[float] = []
    for start, end in _printed_words(line):
        text = "".join(word.text for word in line[start:end])
        if len(text) == count_syllables(text) > 1:
            widths.append((line[end - 1].box[2] - line[start].box[0]) / len(text))
    if widths:
        return sorted(widths)[len(widths) // 2]
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
    blanks = [gap for gap in gaps if gap[1] - gap[0] >= BLANK * em]
    left, right = line[first].box[0], line[last].box[2]
    if first < start:
        left = _nearest(left + em * sum(_width(word.text) for word in line[first:start]), gaps, 0.4 * em)[1]
    else:
        # A word starts where the last blank ends, up to an `em` before its box.
        left = max((gap[1] for gap in blanks if left - em <= gap[1] <= left + 0.1 * em), default=left)
    if end <= last:
        right = _nearest(right - em * sum(_width(word.text) for word in line[end : last + 1]), gaps, 0.4 * em)[0]
    else:
        # A word ends where the first blank starts, up to an `em` after its box.
        right = min(right, line[end].box[0]) if end < len(line) else right
        right = min((gap[0] for gap in blanks if right - 0.1 * em <= gap[0] <= right + em), default=right)
    return left, right


def _width(text: str) -> float:
    """Return a text's width in syllables; letters are about half as wide."""
    return sum(1.0 if is_syllable(char) else 0.55 if char.isalnum() else 0.4 for char in text)


def _nearest(x: float, gaps: Sequence[tuple[int, int]], reach: float) -> tuple[int, int]:
    near = [gap for gap in gaps if gap[0] - reach <= x <= gap[1] + reach]
    return min(near, key=lambda gap: abs((gap[0] + gap[1]) / 2 - x)) if near else (round(x), round(x))


def join_words(words: Sequence[OcrWord]) -> str:
    """Join words into a text, with the blanks that were printed.

    A lone sign at the start may be a misread bullet.
    """
    if len(words) > 1 and words[0].text in READ_FOR_BULLETS and words[1].after_blank:
        return f"• {join_words(words[1:])}"
    return "".join(f" {word.text}" if word.after_blank and i else word.text for i, word in enumerate(words))
