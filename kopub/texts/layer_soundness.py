"""Judges whether the text layer of a page can be trusted. Pure."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace

from kopub.pages.documents.text_layer import Mark, TextLayer, Word
from kopub.pages.nameless import NAMELESS
from kopub.recognition.content import KOREAN, script_of
from kopub.states import Reason
from kopub.texts.layer_lines import clean
from kopub.texts.text_quality import DOUBTFUL, doubts, total

_BROKEN = frozenset({"Cc", "Co", "Cn", "Cs"})
"""Unicode categories of characters that are never printed: control, private, unassigned."""
_PRIVATE = re.compile("[\ue000-\uf8ff\ufffd\U000f0000-\U0010ffff]")
_CID = re.compile(r"\(cid:\d+\)")
"""Written by some programs for characters that they could not map."""
_MOST_BROKEN, _MOST_WITHOUT_INK, _MOST_OUTSIDE = 0.5, 0.5, 0.2
"""Shares of the characters from which a whole layer is distrusted; fewer cost only the regions that they are in."""
_FEW = 3
"""Fewer characters than this prove nothing."""
_SCRIPTS = frozenset({"mojibake", "jamo", "capitals"})
"""Kinds of doubt that concern the characters of a text; that a script is unknown to the reader speaks for a layer."""
_COMMON_LATIN = frozenset("etaoin")
"""These six are at least 40 % of the small letters in English words, code and commands; by chance 23 % of 26."""
_WORD = re.compile("[a-z]{4,}")
_LATIN, _LEAST_COMMON_LATIN = 120, 0.32
_COMMON = frozenset("이다는의에을하고를가은로한지기어도사리시나자서일으인라대해그들수있정제아부전과주")
"""A quarter to half of the syllables on a Korean page are among these 40."""
_SYLLABLES, _LEAST_COMMON = 80, 0.08
_IDEOGRAPHS, _LEAST_TAUGHT = 20, 0.8
_TAUGHT = (("gb2312", 0xB0, 0xD7), ("euc_jp", 0xB0, 0xCF), ("big5", 0xA4, 0xC6), ("euc_kr", 0xCA, 0xFD))
"""Ranges of the ideographs in common use: nearly all of a text, a third of those that a wrong map gives."""
_FEW_COMMON = "only {share:.0%} of its {letters} are common ones, as of a wrong Unicode map"


def is_broken(char: str) -> bool:
    """Return whether a character is never printed, or was not identified."""
    return char == NAMELESS or unicodedata.category(char) in _BROKEN


def has_nameless(word: Word) -> bool:
    """Return whether a word has a character that its font does not identify."""
    return bool(word.marks & Mark.UNMAPPED) or any(map(is_broken, clean(word.text)))


def printed_part(layer: TextLayer) -> TextLayer:
    """Return a layer without the words of which nothing is printed."""
    return replace(layer, words=tuple(word for word in layer.words if not word.marks & Mark.NO_INK))


def unsound(layer: TextLayer, scripts: frozenset[str] = KOREAN) -> str | None:
    """Return the plainest reason to distrust a page's text layer, or None.

    `scripts` are those expected on the page. A sound layer may lack parts of its page, for example a stamp on a scan.
    """
    return next(_reasons(layer, scripts), None)


def _reasons(layer: TextLayer, scripts: frozenset[str]) -> Iterator[str]:
    if layer.failure:
        yield Reason("it could not be read: {reason}", reason=layer.failure)
        return
    characters = layer.characters
    if not characters:
        yield "all of its text lies outside of the page"
        return
    text = "\n".join(clean(word.text) for word in layer.words)
    broken = sum(map(is_broken, text.replace("\n", "")))
    cids = sum(map(len, _CID.findall(text)))
    nameless = _share(max(broken, layer.marked(Mark.UNMAPPED), cids), characters)
    if nameless >= _MOST_BROKEN:
        yield Reason("{share:.0%} of its characters have no meaning, as of fonts without a Unicode map", share=nameless)
    outside = _share(layer.outside, characters + layer.outside)
    if outside >= _MOST_OUTSIDE:
        yield Reason("{share:.0%} of its characters lie outside of the page", share=outside)
    bare = _share(layer.marked(Mark.NO_INK), characters)
    if bare >= _MOST_WITHOUT_INK:
        yield Reason("{share:.0%} of its characters stand where nothing is printed", share=bare)
    if layer.is_of_scan:
        invisible = layer.marked(Mark.INVISIBLE) / characters
        form = "{share:.0%} of its characters are invisible: it is the reading of another program"
        yield Reason(form, share=invisible)
    # The text as the PDF has it: characters of private use are judged by their number alone.
    lines = "".join(("\n" if word.marks & Mark.LINE else " ") + clean(word.text) for word in layer.words)
    of_script = [doubt for doubt in doubts(_PRIVATE.sub("", lines), (), scripts) if doubt.kind in _SCRIPTS]
    if total(of_script) >= DOUBTFUL:
        yield of_script[0].says
    # A font's characters may have been mapped with another font's map: they are then no common ones. Each word counts
    # once, since a page may repeat one that is no word of any language.
    latin = "".join(sorted(set(_WORD.findall(text))))
    hangul = [char for char in text if "가" <= char <= "힣"]
    ideographs = [char for char in text if script_of(char) == "CJK"]
    for alphabet, fewest, is_common, least, name in (
        (latin, _LATIN, _COMMON_LATIN.__contains__, _LEAST_COMMON_LATIN, "Latin letters"),
        (hangul, _SYLLABLES, _COMMON.__contains__, _LEAST_COMMON, "syllables"),
        (ideographs, _IDEOGRAPHS, _is_taught, _LEAST_TAUGHT, "Chinese characters"),
    ):
        share = sum(map(is_common, alphabet)) / len(alphabet) if len(alphabet) >= fewest else 1.0
        if share < least:
            yield Reason(_FEW_COMMON, share=share, letters=name)


def _share(part: int, whole: int) -> float:
    return part / whole if whole and part >= _FEW else 0.0


def _is_taught(ideograph: str) -> bool:
    """Return whether an ideograph is among the common ones of any encoding."""
    for encoding, first, last in _TAUGHT:
        code = ideograph.encode(encoding, "ignore")
        if code and first <= code[0] <= last:
            return True
    return False
