"""Whether a text layer can be believed: what speaks against it, in one sentence. Pure."""

import re
import unicodedata
from collections.abc import Iterator

from resources.pages.documents.text_layer import Mark, TextLayer
from resources.recognition.characters import KOREAN
from resources.texts.layers.lines import clean
from resources.texts.text_quality import DOUBTFUL, doubts, total

_BROKEN = frozenset({"Cc", "Co", "Cn", "Cs"})
"""Unicode categories of characters that nobody prints: control, private, unassigned."""
_CID = re.compile(r"\(cid:\d+\)")
"""What some programs write for a character that they could not map."""
_MOST_BROKEN, _MOST_WITHOUT_INK, _MOST_OUTSIDE, _MOST_INVISIBLE = 0.03, 0.1, 0.2, 0.5
"""Shares of the characters from which a layer is not believed: more than the bullets of symbol fonts come to."""
_FEW = 3
"""Fewer characters than this say nothing."""
_SCRIPTS = frozenset({"mojibake", "jamo", "script"})
"""Kinds of doubt about a text that speak of its characters."""
_COMMON_LATIN = frozenset("etaoin")
"""40 % and more of the small letters in English words, code and commands are one of these six, of 26 by chance 23 %."""
_WORD = re.compile("[a-z]{4,}")
_LATIN, _LEAST_COMMON_LATIN = 120, 0.32
_COMMON = frozenset("이다는의에을하고를가은로한지기어도사리시나자서일으인라대해그들수있정제아부전과주")
"""A quarter to a half of the syllables on a page of Korean are among these 40."""
_SYLLABLES, _LEAST_COMMON = 80, 0.08


def unsound(layer: TextLayer, scripts: frozenset[str] = KOREAN) -> str | None:
    """Why the layer of a page is not what is printed on it, the plainest reason; None where nothing speaks against it.

    `scripts` are those that the page is expected to have. A sound layer may lack parts of its page, as that of a scan
    with a printed stamp.
    """
    return next(_reasons(layer, scripts), None)


def is_broken(char: str) -> bool:
    """Whether a character stands for one that its font could not name."""
    return char == "\ufffd" or unicodedata.category(char) in _BROKEN


def _reasons(layer: TextLayer, scripts: frozenset[str]) -> Iterator[str]:
    if layer.failure:
        yield f"it could not be read: {layer.failure}"
        return
    characters = layer.characters
    if not characters:
        yield "all of its text lies outside of the page"
        return
    text = "\n".join(clean(word.text) for word in layer.words)
    broken = sum(map(is_broken, text.replace("\n", "")))
    unmapped = _characters(layer, Mark.UNMAPPED)
    cids = sum(map(len, _CID.findall(text)))
    nameless = _share(max(broken, unmapped, cids), characters)
    if nameless >= _MOST_BROKEN:
        yield f"{nameless:.0%} of its characters have no meaning, as of fonts without a Unicode map"
    outside = _share(layer.outside, characters + layer.outside)
    if outside >= _MOST_OUTSIDE:
        yield f"{outside:.0%} of its characters lie outside of the page"
    bare = _share(_characters(layer, Mark.NO_INK), characters)
    if bare >= _MOST_WITHOUT_INK:
        yield f"{bare:.0%} of its characters stand where nothing is printed"
    invisible = _share(_characters(layer, Mark.INVISIBLE), characters)
    if invisible >= _MOST_INVISIBLE:
        yield f"{invisible:.0%} of its characters are invisible: it is the reading of another program"
    found = [doubt for doubt in doubts(_as_page(layer), (), scripts) if doubt.kind in _SCRIPTS]
    if total(found) >= DOUBTFUL:
        yield found[0].says
    yield from _implausible(text)


def _implausible(text: str) -> Iterator[str]:
    """Characters that have a meaning, and mean another: a font whose map was made for another font."""
    # Each word once: a page may repeat one that is no word of any language.
    latin = list("".join(sorted(set(_WORD.findall(text)))))
    hangul = [char for char in text if "가" <= char <= "힣"]
    for letters, fewest, common, least, name in (
        (latin, _LATIN, _COMMON_LATIN, _LEAST_COMMON_LATIN, "Latin letters"),
        (hangul, _SYLLABLES, _COMMON, _LEAST_COMMON, "syllables"),
    ):
        share = sum(char in common for char in letters) / len(letters) if len(letters) >= fewest else 1.0
        if share < least:
            yield f"only {share:.0%} of its {name} are common ones, as of a wrong Unicode map"


def _as_page(layer: TextLayer) -> str:
    """The words with a blank between them, and line ends where the PDF has them."""
    return "".join(("\n" if word.marks & Mark.LINE else " ") + clean(word.text) for word in layer.words)


def _characters(layer: TextLayer, mark: Mark) -> int:
    return sum(len(word.text) for word in layer.words if word.marks & mark)


def _share(part: int, whole: int) -> float:
    return part / whole if whole and part >= _FEW else 0.0
