"""Error rates, edit distances, and normalisations of texts, formulas and tables.

Pure. Some scores ignore the order of a text. Every text is composed (NFC) first, because Hangul stored as single jamo
is the same text.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from typing import Self

from rapidfuzz.distance import Indel, Levenshtein


@dataclass(frozen=True, slots=True)
class Errors:
    """The edits from a reading to the known answer, and the answer's length.

    Both are in characters, jamo or words.
    """

    count: int
    size: int

    @property
    def rate(self) -> float:
        """The errors divided by the length, above 1 if far too much was read.

        With an empty answer it is 0 if nothing was read, else 1.
        """
        return self.count / self.size if self.size else float(self.count > 0)


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def without_blanks(text: str) -> str:
    """Return the text in NFC without any white space."""
    return "".join(composed(text).split())


def single_blanks(text: str) -> str:
    """Return the text in NFC with single blanks, and none at its ends."""
    return " ".join(composed(text).split())


def jamo(text: str) -> str:
    """Return the text as jamo (NFD), with each run of white space as one blank."""
    return unicodedata.normalize("NFD", single_blanks(text))


def character_errors(gold: str, text: str) -> Errors:
    """Count errors in characters without blanks, which OCR often misplaces in Korean."""
    return _errors(without_blanks(gold), without_blanks(text))


def spaced_errors(gold: str, text: str) -> Errors:
    """Count errors in characters, with each run of blanks as one."""
    return _errors(single_blanks(gold), single_blanks(text))


def jamo_errors(gold: str, text: str) -> Errors:
    """Count errors in jamo, with each run of blanks as one.

    A syllable with one wrong letter is one error in two or three jamo.
    """
    return _errors(jamo(gold), jamo(text))


def word_errors(gold: str, text: str) -> Errors:
    """Count errors in words between blanks.

    They mean little for Korean, whose words carry particles.
    """
    return _errors(composed(gold).split(), composed(text).split())


def _errors(gold: Sequence[str], text: Sequence[str]) -> Errors:
    return Errors(Levenshtein.distance(gold, text), len(gold))


def pooled(errors: Sequence[Errors]) -> float:
    """Return all errors divided by the total length, so that long texts count more."""
    return Errors(sum(part.count for part in errors), sum(part.size for part in errors)).rate


def edit(gold: Sequence[object], text: Sequence[object]) -> float:
    """Return the edit distance divided by the longer length, or 0 if both are empty."""
    return Levenshtein.normalized_distance(gold, text)


def nid(gold: str, text: str) -> float:
    """Return the normalized Indel similarity: 1 for two empty texts, 0 if only one is."""
    return Indel.normalized_similarity(gold, text)


def bag_f1(gold: str, text: str) -> float:
    """Return the F1 of the multisets of characters without blanks, in any order."""
    wanted, read = Counter(without_blanks(gold)), Counter(without_blanks(text))
    if not wanted and not read:
        return 1.0
    return 2 * sum((wanted & read).values()) / (sum(wanted.values()) + sum(read.values()))


def similarity(answer: str, text: str) -> float:
    """Return 1 - `edit` of both in lower case, without blanks at their ends."""
    answer, text = (composed(side).strip().lower() for side in (answer, text))
    return 1 - edit(answer, text)


_INLINE = re.compile(r"\$(.*?)\$|\\\((.*?)\\\)")
_ESCAPED = re.compile(r"\\([\\_&%^])")
_DISPLAY = re.compile(r"\\\[(.+?)(?<!\\)\\\]")
_NO_WORD = re.compile(r"[^\w\u4e00-\u9fff]")
_CONTROL = ("\\t", "\\n", "\t", "\n", "/t", "/n")
"""Removed from a text as the benchmark does, even a letter t or n after a slash."""

_FORMULA_PARTS = [
    re.compile(pattern)
    for pattern in (
        r"\\tag\{.*?\}",
        r"\\hspace\{.*?\}",
        r"\\begin\{.*?\}",
        r"\\end\{.*?\}",
        r"\\arraycolsep.*?\}",
    )
]
_FORMULA_COMMANDS = (
    *(f"\\math{font}" for font in ("bf", "rm", "normal", "it", "bb", "cal", "scr", "frak", "sf", "tt")),
    *("\\textbf", "\\text", "\\boldmath", "\\boldsymbol", "\\operatorname", "\\bm"),
    *("\\symbfit", "\\mathbfcal", "\\symbf", "\\scriptscriptstyle", "\\notag"),
    *("\\setlength", "\\coloneqq", "\\space", "\\thickspace", "\\thinspace", "\\medspace", "\\nobreakspace"),
    *("\\negmedspace", "\\quad", "\\qquad", "\\enspace", "\\substackw", " ", "$$", "\\left", "\\right"),
    *("\\displaystyle", "\\text"),
)
"""Removed one after the other, so the order counts: `\\mathbfcal` is only `cal` when it is reached."""

_TABLE = re.compile(r"<table\b[^>]*>(.*)</table>", re.DOTALL | re.IGNORECASE)
_TABLE_ATTRIBUTES = [re.compile(f'( {name}=".*?")') for name in ("style", "height", "width", "align", "class")]
_TABLE_TAGS = ("sup", "sub", "span", "div", "p")
_COLGROUP = re.compile("<colgroup>.*?</colgroup>")


def normalized_text(text: str) -> str:
    """Return only the letters, digits and `_` of a paragraph, with inline LaTeX as Unicode."""
    text = composed(text)
    for formula in reversed(list(_INLINE.finditer(text))):
        latex = _ESCAPED.sub("", formula[1] if formula[1] is not None else formula[2])
        if {*"\\^_"}.isdisjoint(latex):
            continue
        try:
            from pylatexenc.latex2text import LatexNodes2Text

            # It warns about every formula that it cannot parse completely, and pages have many of these.
            logging.getLogger("pylatexenc").setLevel(logging.ERROR)
            plain = LatexNodes2Text().latex_to_text(latex + " " if latex.endswith("\\") else latex)
        except Exception:  # pylatexenc fails on broken LaTeX in many ways; the formula then stays as it is
            continue
        text = text[: formula.start()] + plain.strip() + text[formula.end() :]
    for control in _CONTROL:
        text = text.replace(control, "")
    return _NO_WORD.sub("", text)


def normalized_formula(text: str) -> str:
    """Return a formula in lower case without markup for its looks.

    Delimiters, fonts, spacing, environments, tags and the sizes of brackets are dropped.
    """
    text = composed(text).strip().strip("$").strip("\n")
    if display := _DISPLAY.search(text):
        text = display[1].strip()
    for part in _FORMULA_PARTS:
        text = part.sub("", text)
    text = text.strip(".")
    for command in _FORMULA_COMMANDS:
        text = text.replace(command, "")
    return text.lower()


def normalized_table(text: str) -> str:
    """Return the tables of an HTML text as one document, with `th` as `td`.

    It is empty if there is no table. Sections and inline tags are unwrapped, attributes other than spans dropped,
    characters normalised by NFKC, and runs of blanks reduced to one.
    """
    if "<table" not in text.replace(" ", "").replace("'", '"'):
        return ""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(composed(text), "html.parser")
    for head in soup.find_all("th"):
        head.name = "td"
    for section in soup.find_all("thead"):
        section.unwrap()
    for formula in soup.find_all("math"):
        formula.replace_with(f"${formula.get('alttext', '')}$")
    for span in soup.find_all("span"):
        span.unwrap()
    table = unescape(str(soup)).replace("\n", "")
    table = "".join(_TABLE.findall(unicodedata.normalize("NFKC", table).strip()))
    for attribute in _TABLE_ATTRIBUTES:
        table = attribute.sub("", table)
    table = re.sub(r"\s+", " ", re.sub("</?tbody>", "", table))
    document = f'<html><body><table border="1" >{table}</table></body></html>'
    for tag in _TABLE_TAGS:
        document = document.replace(f"<{tag}>", "").replace(f"</{tag}>", "")
    return _COLGROUP.sub("", document.replace('<spandata-span-identity="">', ""))


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits between a gold block and its reading, and the length of the longer."""

    count: int
    size: int

    @classmethod
    def between(cls, gold: str, text: str) -> Self:
        return cls(Levenshtein.distance(gold, text), max(len(gold), len(text)))

    @property
    def share(self) -> float:
        return self.count / self.size if self.size else 0.0


def edits(gold: str, text: str, normalized_gold: str, normalized: str) -> Edits:
    """Return the edits of one pair; a text that normalisation empties is used unchanged."""
    return Edits.between(normalized_gold or gold, normalized or text)
