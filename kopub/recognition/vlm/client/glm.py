"""GLM-OCR in client processes: the removal of marks that it adds to answers."""

import re

from kopub.layout.regions import Task
from kopub.recognition.content import content_parts, fence_code
from kopub.recognition.tables import strip_placeholders

_PROSE = frozenset({"markdown", "md", "text", "txt", "plaintext"})
"""Languages of a fence that contains not code but the whole answer, as chat models wrap it."""
_CENTRE = re.compile(r'<div\s+align\s*=\s*"?(?:center|left|right)"?\s*>[ \t]*\n*|[ \t]*\n*</div>', re.IGNORECASE)
_DOCTYPE = re.compile(r"<!doctype html>\s*", re.IGNORECASE)
_HEADING = re.compile(r"(?:(?<=\n\n)|\A)#{1,6}[ \t]+(?=\S[^\n]*(?:\n\s*\n|\Z))")
"""The marks of a heading, which is a line by itself; `# ` before each of several lines is printed, as in a listing."""
_FORMULA = re.compile(r"(?<![\\$A-Za-z0-9])\$[ \t]++([^$\n]*[^$\n \t])[ \t]++\$(?![$A-Za-z0-9]|[ \t]*+\d)")
_LATEX = re.compile(r"[\\^_{}=<>]|\A\s*\S\s*\Z")
"""Signs that distinguish a formula from amounts of money such as `$ 5 and $ 6`."""


def clean(text: str, task: Task) -> str:
    """Return an answer as the content of a region.

    A clean answer is returned unchanged. Code stays between fences, each closed and on its own lines; fences around a
    table, a formula or a whole text are removed. Centred text becomes plain text, a heading its words, and inline
    formulas are put between `$` without blanks.
    """
    text, before = text.replace("\r\n", "\n").strip(), None
    while text != before:
        # Removing one mark may turn the remains of a torn one into another.
        before = text
        parts = list(content_parts(text, unclosed=True))
        if task is Task.FORMULA or (task is Task.TABLE and "<table" in text.lower()):
            text = _DOCTYPE.sub("", "\n".join(part.text for part in parts).strip()).strip()
            continue
        if len(parts) == 1 and parts[0].is_code and parts[0].language.lower() in _PROSE:
            parts = list(content_parts(parts[0].text.strip(), unclosed=True))
        cleaned: list[str] = []
        for part in parts:
            if part.is_code:
                code = part.text.strip("\n")
                cleaned += [fence_code(code, part.language)] if code.strip() else []
            elif words := _HEADING.sub("", _strip_centring(part.text)):
                cleaned.append(_FORMULA.sub(lambda span: f"${span[1]}$" if _LATEX.search(span[1]) else span[0], words))
        text = "\n".join(cleaned).strip()
    return strip_placeholders(text) if task is Task.TABLE else text


def _strip_centring(text: str) -> str:
    """Strip the tags that centre text; a lone closing tag is part of the print."""
    if "<div" not in text.lower():
        return text  # the look for blanks before a tag would take minutes in a long run of them
    plain, start, open_tags = "", 0, 0
    for tag in _CENTRE.finditer(text):
        closes = "</" in tag[0]
        if open_tags or not closes:
            plain += text[start : tag.start()]
            start = tag.end()
            open_tags += -1 if closes else 1
    return plain + text[start:]
