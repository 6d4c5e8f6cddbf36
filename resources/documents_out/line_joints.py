"""Lines of print as running text: which line ends are only those of the print, and what stands between two lines."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from resources.recognition.code_fences import passages

if TYPE_CHECKING:
    from kiwipiepy import Kiwi

ITEM = re.compile(r"\s*(?:[•●○◦▪■□ㆍ∙‧]\s*|[·–*+°\-]\s+)(?=\S)")
"""The bullet of a list's entry. Tesseract reads `ㆍ` and `+` for `•`, `°` for `◦`."""
NUMBERED = re.compile(r"\s*(?:\(?(?:\d{1,3}|[가나다라마바사아자차카타파하A-Za-z])[.)]|[①-⑳ⓐ-ⓩ㉮-㉻])\s*(?=\S)")
"""The number of a list's entry: 1. 가. 1) (1) ①."""
ENDED = re.compile(r"[.?!:;。…][\"'”’」』)\]]*$")
"""The end of a sentence."""
_LEADER = re.compile(r"(?:[.·…‥]\s?){4,}\s*\S{0,6}$")
"""The end of a line in a table of contents."""
_COMMAND = re.compile(r"\s*[$#>%]\s")
_FULL = 0.78
"""Share of the longest line from which a line is full: the next word, and no word is longer, had no room."""
_SHORT = 30
"""Columns: text whose lines are all shorter is not running text."""
_PITCH = 2.6
"""Distance of lines in heights of type. Of lines of print it is below; a line that is a paragraph seems far higher."""
_CONTEXT = 24
"""Characters on each side that tell whether a word goes on."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, an entry of a list without its `bullet`, or code. A line break in it is one of its content."""

    text: str
    bullet: str = ""
    is_code: bool = False
    language: str = ""


def paragraphs(content: str, width: float = 0, height: float = 0) -> list[Paragraph]:
    """The content of a region as running text.

    `width` and `height` are those of the region in pixels: lines that cannot be lines of its print were set by the
    reader and stay. A line that no other continues ends a paragraph where it ends a sentence.
    """
    printed = are_printed([line for line in content.split("\n") if line.strip()], width, height)
    found: list[Paragraph] = []
    for passage in passages(content):
        if passage.is_code:
            found.append(Paragraph(passage.text, is_code=True, language=passage.language))
            continue
        lines = _unwrapped(passage.text) if printed else [line.strip() for line in passage.text.split("\n")]
        found += _grouped(lines)
    return found


def one_line(content: str) -> str:
    """A title or caption in one line."""
    lines = [" ".join(line.split()) for line in content.split("\n") if line.strip()]
    text = lines[0] if lines else ""
    for line in lines[1:]:
        text = glued(text, line)
    return text


def glued(left: str, right: str) -> str:
    """Two lines of one paragraph as one: a word that was broken is whole again."""
    if is_broken_word(left, right):
        return left[:-1] + right
    return left + joint(left, right) + right


def joint(left: str, right: str) -> str:
    """What stands between two lines of one paragraph: a blank, or nothing where a word goes on.

    Korean is broken between any two syllables, without a hyphen, so only the words can tell.
    """
    if not left or not right or left[-1].isspace() or right[0].isspace() or is_broken_word(left, right):
        return ""
    if left[-1] in "-/" and left[-2:-1].strip():
        return ""
    if not _is_hangul(left[-1]) and not _is_hangul(right[0]):
        return "" if _is_cjk(left[-1]) and _is_cjk(right[0]) else " "
    if not (left[-1].isalnum() and right[0].isalnum()):
        return " " if _opens_or_closes(left[-1], right[0]) else ""
    _, blanks = _kiwi().glue([left[-_CONTEXT:], right[:_CONTEXT]], return_space_insertions=True)
    return " " if blanks[0] else ""


def columns(line: str) -> int:
    """Width of a line in columns of half a syllable."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line.strip())


def is_command(line: str) -> bool:
    """Whether a line looks like one of a terminal, which no other line continues."""
    return _COMMAND.match(line) is not None


def are_printed(lines: list[str], width: float, height: float) -> bool:
    """Whether the lines are those of the print."""
    longest = max(map(columns, lines), default=0)
    if len(lines) < 2 or longest < _SHORT:
        return False
    if not width or not height:
        return True
    return (height / len(lines)) / (2 * width / longest) < _PITCH


def _unwrapped(text: str) -> list[str]:
    lines = [line.strip() for line in text.split("\n")]
    longest = max(map(columns, lines))
    paragraphs: list[str] = []
    goes_on = False
    for line in lines:
        if goes_on and line and not _begins_entry(paragraphs[-1], line) and not is_command(line):
            paragraphs[-1] = glued(paragraphs[-1], line)
        else:
            paragraphs.append(line)
        goes_on = columns(line) >= _FULL * longest and not is_command(line) and not _LEADER.search(line)
    return paragraphs


def _grouped(lines: Iterable[str]) -> list[Paragraph]:
    """Lines as paragraphs: an entry of a list is one, and so are the lines up to the end of a sentence or a gap."""
    found: list[Paragraph] = []
    loose: list[str] = []

    def end() -> None:
        if loose:
            found.append(Paragraph("\n".join(loose)))
            loose.clear()

    for line in lines:
        bullet = ITEM.match(line)
        if bullet:
            end()
            found.append(Paragraph(line[bullet.end() :], bullet=bullet[0].strip()))
        elif line:
            loose.append(line)
        if not line or ENDED.search(line):
            end()
    end()
    return found


def _begins_entry(before: str, line: str) -> bool:
    """Whether a line begins an entry of a list. `다.` is also the end of a sentence whose word was broken."""
    return bool(ITEM.match(line) or (NUMBERED.match(line) and ENDED.search(before)))


def is_broken_word(left: str, right: str) -> bool:
    """A word of Latin letters with a hyphen at the end of the line."""
    return bool(re.search(r"[a-z]{2}-$", left) and re.match(r"[a-z]{2}", right))


def _opens_or_closes(left: str, right: str) -> bool:
    """Whether a blank belongs between two signs of which one is no letter."""
    return unicodedata.category(left) not in ("Ps", "Pi") and unicodedata.category(right) not in ("Pe", "Pf", "Po")


def _is_hangul(char: str) -> bool:
    return "가" <= char <= "힣"


def _is_cjk(char: str) -> bool:
    return unicodedata.east_asian_width(char) == "W"


@cache
def _kiwi() -> "Kiwi":
    """Takes about a second and 500 MB."""
    from kiwipiepy import Kiwi

    return Kiwi()
