"""Completes readings of regions by what their PDF says is printed there. Pure."""

import re
from collections import Counter, defaultdict, deque
from dataclasses import replace
from html import escape

from rapidfuzz.distance import Levenshtein

from kopub.layout.regions import FORMULAS
from kopub.pages.nameless import NAMELESS, is_nameless
from kopub.recognition.content import letters, shorten_leaders
from kopub.recognition.regions import RegionText, TextOrigin
from kopub.states import Reason, State

_MOST_LOST, _MOST_LOST_OF_FORMULA = 0.2, 0.5
"""Shares of the printed letters that a reading may lack; LaTeX writes some of a formula's in words."""
_MOST_MORE, _FEW = 0.25, 3
"""Letters that a reading may have besides those printed, as a share of them or as a number, if it shows no more."""
_MISREAD = 2
"""Signs of a cell that may be misread without a doubt that the print stands there."""
MARKUP = re.compile(r"</?(?:table|thead|tbody|tr|t[dh]|br)\b[^>]*>")
"""The markup of a table."""
_PART = re.compile(rf"{MARKUP.pattern}|[^<]+|<")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ASCII_OR_HANGUL = re.compile("[0-9A-Za-z가-힣]")
"""Letters that a formula in LaTeX has, too."""


def with_print(read: RegionText, printed: str) -> RegionText:
    """Return a region's reading, with the letters that a text layer has in it.

    A reading that shows no more than `printed` gives way to it; one that lacks its letters or numbers is completed by
    it. The cells of a table that was read have the printed words that they show. Without `printed`, signs that are no
    text, as of icons and dotted rules, are left out.
    """
    read = replace(read, content=shorten_leaders(read.content))
    if not printed:
        return read if read.state is State.FAILED or _is_text(read.content) else replace(read, content="")
    has_nameless = any(map(is_nameless, printed))
    has_cells = read.native_label == "table" and bool(MARKUP.search(read.content))
    if has_cells and not has_nameless and (table := _fill(read.content, printed)):
        return replace(read, content=table, state=State.OK, reason=None, origin=TextOrigin.TEXT_LAYER)
    text, guesses = _name(printed, read.content) if has_nameless else (printed, 0)
    is_formula = read.native_label in FORMULAS
    own, others = _letters(text, is_formula), _letters(read.content, is_formula)
    lost, more = (own - others).total(), (others - own).total()
    # Words that are aligned are better than a reading without cells, and a reading with cells better than they are.
    is_structured = is_formula or (read.native_label == "table" and (has_cells or not MARKUP.search(printed)))
    is_complete = has_nameless or (not is_structured and more <= max(_FEW, _MOST_MORE * own.total()))
    most_lost = _MOST_LOST_OF_FORMULA if is_formula else _MOST_LOST
    # A chart may read as cells of nonsense, which have all digits of its scales but none of their numbers.
    has_numbers = is_formula or not Counter(_NUMBER.findall(text)) - Counter(_NUMBER.findall(read.content))
    is_better = has_numbers or (has_cells and not MARKUP.search(printed) and more <= own.total())
    if read.state is not State.FAILED and not is_complete and is_better and lost <= most_lost * own.total():
        return read
    is_doubted = read.state is State.FAILED or read.reason or not _is_text(read.content)
    if not (is_complete or is_doubted or more <= own.total()):
        text = f"{read.content}\n{text}"
    form = "{count} letters whose font does not name them were read from the picture"
    reason = Reason(form, count=guesses) if guesses else None
    return replace(read, content=text, state=State.OK, reason=reason, origin=TextOrigin.TEXT_LAYER)


def _fill(table: str, printed: str) -> str | None:
    """Return a table that was read, with the printed words in its cells.

    None unless each word stands in a cell that shows it, and each cell shows nothing else.
    """
    words = deque((MARKUP.sub(" ", printed) if MARKUP.search(printed) else escape(printed, quote=False)).split())
    parts = _PART.findall(table)
    for at, part in enumerate(parts):
        if MARKUP.fullmatch(part):
            continue
        signs, own, differ = "".join(part.split()), "", len("".join(part.split()))
        while words and (more := Levenshtein.distance(own.replace(" ", "") + words[0], signs)) <= differ:
            own, differ = f"{own} {words.popleft()}", more
        if differ > max(_MISREAD, _MOST_LOST * len(signs)) or bool(signs) != bool(own):
            return None
        parts[at] = own.strip()
    return None if words else "".join(parts)


def _is_text(content: str) -> bool:
    signs = "".join(MARKUP.sub("", content).split())
    words = letters(signs)
    return 2 * len(words) >= len(signs) and (len(words) >= _FEW or any(map(str.isdigit, words)))


def _letters(content: str, is_formula: bool) -> Counter[str]:
    words = letters(MARKUP.sub("", content))
    return Counter(_ASCII_OR_HANGUL.findall(words) if is_formula else words)


def _name(printed: str, read: str) -> tuple[str, int]:
    """Return `printed` with the names of its nameless signs, and how many are letters."""
    own, others = ("".join(MARKUP.sub("", text).split()) for text in (printed, read))
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for edit in Levenshtein.editops(own, others):
        if edit.tag == "replace" and is_nameless(own[edit.src_pos]):
            votes[own[edit.src_pos]][others[edit.dest_pos]] += 1
    text, guesses = "", 0
    for char in printed:
        # The same sign is printed wherever a font has the same code.
        name = votes[char].most_common(1)[0][0] if char in votes else NAMELESS
        text += name if is_nameless(char) else char
        guesses += char in votes and name.isalnum()
    return text, guesses
