"""The content of a region as text: letters and scripts, fenced code, and formulas."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

KOREAN = frozenset({"HANGUL", "LATIN", "GREEK"})
"""Scripts of Korean pages; Hanja may occur beside Hangul."""
_FILLER = re.compile(r"([^\w\s])(?:\s*\1){3,}")
"""Dot leaders and rules: one sign at least four times in a row."""


@lru_cache(maxsize=65_536)
def script_of(char: str) -> str:
    """Return a letter's script, the first word of its Unicode name, such as HANGUL."""
    return unicodedata.name(unicodedata.normalize("NFKC", char)[0], "UNKNOWN").partition(" ")[0]


def main_script(text: str) -> str | None:
    """Return the script of most letters, as `script_of` names it; None without letters."""
    counts = Counter[str]()
    for char, count in Counter(text).items():
        if char.isalpha():
            counts[script_of(char)] += count
    return counts.most_common(1)[0][0] if counts else None


def strip_fillers(text: str) -> str:
    """Return the text with each dot leader and rule reduced to one sign."""
    return _FILLER.sub(r"\1", text)


_LEADER = re.compile(r"(?:[.·‥…․ㆍ∙•]\s?){4,}[.·‥…․ㆍ∙•]")


def shorten_leaders(text: str) -> str:
    """Return the text with each run of dots as one sign."""
    return _LEADER.sub("…", text)


def letters(text: str) -> str:
    """Return only the letters and digits of a text, without matters of form."""
    return "".join(char for char in unicodedata.normalize("NFKC", text) if char.isalnum())


_FENCE = re.compile(r"[ \t]*(`{3,})[ \t]*([\w+#.-]*)[ \t]*")
_TICKS = re.compile(r"`{3,}")


class ContentPart(NamedTuple):
    """Lines of a content: code without its fences, or other text.

    `language` is the code's language, if its fence names one.
    """

    text: str
    is_code: bool = False
    language: str = ""


def content_parts(content: str, unclosed: bool = False) -> Iterator[ContentPart]:
    """Yield the parts of a content in order.

    With `unclosed`, a fence that is never closed contains everything after it.
    """
    lines = content.split("\n")
    loose: list[str] = []
    at = 0
    while at < len(lines):
        opening = _FENCE.fullmatch(lines[at])
        end: int | None = None
        if opening:
            end = len(lines) if unclosed else None
            # A fence is closed by a line of at least as many backticks, so that code may contain shorter fences.
            for number in range(at + 1, len(lines)):
                ticks = lines[number].strip()
                if set(ticks) == {"`"} and len(ticks) >= len(opening[1]):
                    end = number
                    break
        if opening is None or end is None:
            loose.append(lines[at])
            at += 1
            continue
        if loose:
            yield ContentPart("\n".join(loose))
            loose = []
        yield ContentPart("\n".join(lines[at + 1 : end]), True, opening[2])
        at = end + 1
    if loose:
        yield ContentPart("\n".join(loose))


def fence_code(code: str, language: str = "") -> str:
    """Put code between fences longer than any in it."""
    longest = max(map(len, _TICKS.findall(code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def strip_fences(content: str) -> str:
    """Return a content as it is printed, without fences around code."""
    return "\n".join(passage.text for passage in content_parts(content))


_DELIMITERS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))


def strip_delimiters(formula: str) -> str:
    """Return a formula, already stripped, without the delimiters around it.

    Several displays, one after the other, become the lines of one.
    """
    for start, end in _DELIMITERS:
        if formula.startswith(start) and formula.endswith(end) and len(formula) >= len(start) + len(end):
            displays = re.split(rf"{re.escape(end)}\s*{re.escape(start)}", formula[len(start) : -len(end)])
            return " \\\\\n".join(filter(None, map(str.strip, displays)))
    return formula
