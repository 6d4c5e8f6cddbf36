"""The rules of olmOCR-bench for facts about the text of a page. Pure.

The rules are those of the benchmark's authors (Apache-2.0, allenai/olmocr); each verdict of their samples comes out
the same. Formulas (`math`) need a browser that draws them, and are skipped.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rapidfuzz import fuzz

from resources.evaluation.benchmark import Fact
from resources.evaluation.scorers.table_cells import Table, tables_of

_BREAK, _BLANKS = re.compile(r"<br/?>"), re.compile(r"\s+")
_MARKUP = [
    (re.compile(pattern), kept)
    for pattern, kept in (
        (r"\*\*(.*?)\*\*", r"\1"),
        (r"__(.*?)__", r"\1"),
        (r"</?b>", ""),
        (r"</?i>", ""),
        (r"(\*\*|__)(.*?)\1", r"\2"),
        (r"(\*|_)(.*?)\1", r"\2"),
    )
]
_ASCII = str.maketrans({**dict.fromkeys("‘’‚", "'"), **dict.fromkeys("“”„", '"'), **dict.fromkeys("–—‑‒−", "-")})
_OTHER = str.maketrans({"＿": "_", "\u00b5": "\u03bc"})
_FOREIGN = re.compile("[\u4e00-\u9fff\u3040-\u30ff\U0001f600-\U0001f64f\U0001f300-\U0001f6ff\U0001f1e0-\U0001f1ff]")
_PICTURE = re.compile(r"!\[.*?\]\(.*?\)")
_SHOWN = 40
_REPEATED = 5
"""Longest part of a text, in characters, whose repetition at the end counts."""
FORMATS: Mapping[str, tuple[re.Pattern[str], ...]] = {
    "heading": (
        re.compile(r"^#{1,6}\s+(.+?)$", re.MULTILINE),
        re.compile(r"<h[1-6][^>]*>(.*?)</h[1-6]>", re.IGNORECASE | re.DOTALL),
    ),
    "bold": (
        re.compile(r"\*\*(.*?)\*\*", re.DOTALL),
        re.compile(r"__(.*?)__", re.DOTALL),
        re.compile(r"<b[^>]*>(.*?)</b>", re.IGNORECASE | re.DOTALL),
        re.compile(r"<strong[^>]*>(.*?)</strong>", re.IGNORECASE | re.DOTALL),
    ),
    "italic": (
        re.compile(r"(?<!\*)\*(?!\*)(.*?)(?<!\*)\*(?!\*)", re.DOTALL),
        re.compile(r"(?<!_)_(?!_)(.*?)(?<!_)_(?!_)", re.DOTALL),
        re.compile(r"<i[^>]*>(.*?)</i>", re.IGNORECASE | re.DOTALL),
        re.compile(r"<em[^>]*>(.*?)</em>", re.IGNORECASE | re.DOTALL),
    ),
}
_SUPERSCRIPTS = dict(zip("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True))
_BESIDE_NOTE = 200
"""Characters beside a footnote's mark in which the text beside it is looked for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a fact holds; None where that cannot be told here.

    `why` is empty for one that does.
    """

    holds: bool | None
    why: str = ""


def check(fact: Fact, markdown: str) -> Verdict:
    """Return the verdict on a fact, given the markdown of its page."""
    return _CHECKS[fact.type](fact.fields, markdown)


def normalized(text: str) -> str:
    """Return the text in NFC, without emphasis, with single blanks and ASCII quotes and dashes."""
    text = _BREAK.sub(" ", text)
    for mark, kept in _MARKUP:
        text = mark.sub(kept, text)
    return unicodedata.normalize("NFC", _BLANKS.sub(" ", text)).translate(_ASCII).translate(_OTHER)


def _share(fields: Mapping[str, Any], text: str) -> float:
    """Return the least similarity that counts as found: `max_diffs` characters may differ."""
    return 1.0 - fields.get("max_diffs", 0) / (len(text) or 1)


def _presence(fields: Mapping[str, Any], markdown: str) -> Verdict:
    wanted, page = normalized(fields["text"]), normalized(markdown)
    if not fields.get("case_sensitive", True):
        wanted, page = wanted.lower(), page.lower()
    first, last = fields.get("first_n"), fields.get("last_n")
    if first and last:
        page = page[:first] + page[-last:]
    elif first:
        page = page[:first]
    elif last:
        page = page[-last:]
    least, best = _share(fields, wanted), fuzz.partial_ratio(wanted, page) / 100.0
    found = best >= least
    if found == (fields["type"] == "present"):
        return Verdict(True)
    what = "not found" if fields["type"] == "present" else "found, though it must not be there"
    return Verdict(False, f"{_shown(wanted)} {what}: similarity {best:.3f}, {least:.3f} counts as found")


def _order(fields: Mapping[str, Any], markdown: str) -> Verdict:
    from fuzzysearch import find_near_matches

    page, most = normalized(markdown), fields.get("max_diffs", 0)
    places = []
    for part in ("before", "after"):
        text = normalized(fields[part])
        found = find_near_matches(text, page, max_l_dist=most)
        if not found:
            return Verdict(False, f"{_shown(text)} not found with at most {most} edits")
        places.append([match.start for match in found])
    if min(places[0]) < max(places[1]):
        return Verdict(True)
    before, after = (_shown(normalized(fields[part])) for part in ("before", "after"))
    return Verdict(False, f"{before} does not come before {after}")


def _table(fields: Mapping[str, Any], markdown: str) -> Verdict:
    tables = tables_of(markdown, pipes=not fields.get("ignore_markdown_tables", False))
    if not tables:
        return Verdict(False, "there is no table")
    wanted = normalized(fields["cell"])
    least = max(0.5, _share(fields, wanted))
    reasons = []
    for table in tables:
        for cell, text in table.texts.items():
            if fuzz.ratio(wanted, normalized(text)) / 100.0 >= least:
                wrong = _neighbours(fields, table, cell)
                if not wrong:
                    return Verdict(True)
                reasons.extend(wrong)
    if not reasons:
        return Verdict(False, f"no table has a cell {_shown(wanted)}")
    return Verdict(False, f"the cell {_shown(wanted)} is there, but {'; '.join(dict.fromkeys(reasons))}")


def _neighbours(fields: Mapping[str, Any], table: Table, cell: tuple[int, int]) -> list[str]:
    """Return what is wrong with the neighbours of a cell."""
    wrong = []
    for side, find in _SIDES.items():
        wanted = normalized(fields.get(side) or "")
        if not wanted:
            continue
        texts = [normalized(table.texts[neighbour]) for neighbour in sorted(find(table, cell))]
        least = max(0.5, _share(fields, wanted))
        if not any(fuzz.ratio(wanted, text) / 100.0 >= least for text in texts):
            wrong.append(f"{side} of it is {' or '.join(map(_shown, texts)) or 'nothing'}, not {_shown(wanted)}")
    return wrong


_SIDES: Mapping[str, Callable[[Table, tuple[int, int]], set[tuple[int, int]]]] = {
    "up": lambda table, cell: table.up[cell],
    "down": lambda table, cell: table.down[cell],
    "left": lambda table, cell: table.left[cell],
    "right": lambda table, cell: table.right[cell],
    "left_heading": lambda table, cell: table.headings(cell, table.left),
    "top_heading": lambda table, cell: table.headings(cell, table.up),
}


def _baseline(fields: Mapping[str, Any], markdown: str) -> Verdict:
    most = fields.get("max_length")
    counted = markdown
    if most is not None and fields.get("max_length_skips_image_alt_tags"):
        counted = _PICTURE.sub("", markdown)
    letters = sum(map(str.isalnum, counted))
    if most is not None:
        return Verdict(letters <= most, "" if letters <= most else f"{letters} characters on a page that is blank")
    if not letters:
        return Verdict(False, "the text has no letter or digit")
    for length, count in enumerate(_repeats(markdown), start=1):
        if count > fields.get("max_repeats", 30):
            return Verdict(False, f"the text ends with {count} repetitions of {length} characters")
    if fields.get("check_disallowed_characters", True) and (foreign := _FOREIGN.search(markdown)):
        return Verdict(False, f"the text has a character that the page cannot have: {foreign[0]}")
    return Verdict(True)


def _repeats(text: str) -> list[int]:
    """Return how often the last 1, 2, ... characters stood before them without a gap."""
    text, counts = _BLANKS.sub(" ", text), []
    for size in range(1, _REPEATED + 1):
        end, count = text[-size:], 0
        place = len(text) - size
        while len(text) >= size and place >= 0 and text[place : place + size] == end:
            count += 1
            place -= size
        counts.append(count)
    return counts


def _format(fields: Mapping[str, Any], markdown: str) -> Verdict:
    wanted = normalized(fields["text"])
    texts = [normalized(found) for pattern in FORMATS[fields["format"]] for found in pattern.findall(markdown)]
    if not fields.get("case_sensitive", True):
        wanted, texts = wanted.lower(), [text.lower() for text in texts]
    least = _share(fields, wanted)
    if any(fuzz.partial_ratio(wanted, text) / 100.0 >= least for text in texts):
        return Verdict(True)
    return Verdict(False, f"{_shown(wanted)} is no {fields['format']}")


def _footnote(fields: Mapping[str, Any], markdown: str) -> Verdict:
    mark = fields["marker"]
    patterns = [
        re.compile(rf"\[\^{re.escape(mark)}\](?!:)"),
        re.compile(rf"<sup[^>]*>{re.escape(mark)}</sup>", re.IGNORECASE),
    ]
    if all(character in _SUPERSCRIPTS for character in mark):
        patterns.append(re.compile("".join(_SUPERSCRIPTS[character] for character in mark)))
    places = [match.span() for pattern in patterns for match in pattern.finditer(markdown)]
    if not places:
        return Verdict(False, f"there is no footnote mark {_shown(mark)}")
    before = [_alphanumeric(markdown[max(0, start - _BESIDE_NOTE) : start]) for start, _ in places]
    after = [_alphanumeric(markdown[end : end + _BESIDE_NOTE]) for _, end in places]
    for field, texts, near in (
        ("appears_before_marker", before, lambda text, length: text[-length:]),
        ("appears_after_marker", after, lambda text, length: text[:length]),
    ):
        if not (wanted := normalized(fields.get(field) or "")):
            continue
        plain, least = _alphanumeric(wanted), _share(fields, wanted)
        parts = [near(text, min(len(text), 2 * len(plain))) or text for text in texts if text]
        if not any(fuzz.partial_ratio(plain, part) / 100.0 >= least for part in parts):
            return Verdict(False, f"{_shown(wanted)} is not beside a footnote mark {_shown(mark)}")
    return Verdict(True)


def _alphanumeric(text: str) -> str:
    return "".join(filter(str.isalnum, normalized(text))).lower()


def _math(fields: Mapping[str, Any], markdown: str) -> Verdict:
    return Verdict(None, "formulas are compared as they are drawn, which needs a browser")


def _shown(text: str) -> str:
    return f"'{text[:_SHOWN]}{'...' if len(text) > _SHOWN else ''}'"


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], str], Verdict]] = {
    "present": _presence,
    "absent": _presence,
    "order": _order,
    "table": _table,
    "baseline": _baseline,
    "format": _format,
    "footnote": _footnote,
    "math": _math,
}

TYPES = frozenset(_CHECKS)
