"""What a sound text layer gives: texts of regions, and lines to be read to prove them. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from resources.code_version import CodeVersion
from resources.layout.regions import Region, Task
from resources.pages.documents.text_layer import Mark, TextLayer
from resources.recognition.characters import KOREAN, letters, script_of
from resources.recognition.code_fences import fenced
from resources.recognition.known_texts import Sample
from resources.texts.layers.lines import Line, code_of, lines_of, text_of
from resources.texts.layers.region_words import RegionWords, words_of_regions
from resources.texts.layers.soundness import is_broken, unsound

CODE = CodeVersion(
    "texts.layers",
    {
        1: "the first release",
        2: "a layer is taken only where a reading of some lines agrees; one that cannot be read costs its page alone",
    },
)
"""A new version takes the texts of all pages with a layer again."""

_CODE_LABEL = "algorithm"
_DRAWN = frozenset({"seal"})
"""Labels of text that is a picture."""
_MOST_BARE = 0.25
"""Share of a region's ink that may be no word's: rules under words, frames. Text drawn as shapes is more."""
_FORMULA = re.compile("[∑∏∫∮√∂∇\U0001d400-\U0001d7ff]")
"""Signs of a formula in a line, of which a layer has the signs and not how they stand."""
_NOT_PRINT = Mark.INVISIBLE | Mark.NO_INK | Mark.UNMAPPED
_UNREAD = frozenset({"GREEK"})
"""A script of Korean pages that readers of Korean and English take for Latin letters."""
_FEWEST, _BEST, _MOST = 6, 40, 100
"""Letters of a line that is read as a sample: fewer prove little, more take long."""
_PLAIN = 0.7
"""Share of letters and digits in a line from which any reader can be expected to read it."""
_FEWEST_DIGITS = 4
_OTHER_SIZE = 1.2
"""A line so many times as high as another one is set in another font."""
_MARGIN = 0.25
"""Of a line's height around a sample: glyphs leave their boxes, and readers want paper around them."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Texts by the index of their region, and the lines to read before any of them is believed."""

    texts: Mapping[int, str]
    samples: Sequence[Sample] = ()


def taken(layer: TextLayer, regions: Iterable[Region], scripts: frozenset[str] = KOREAN) -> Taken:
    """Return the texts of the text regions whose words are sound and all that is printed there.

    None of a layer that is not sound. Lines are as printed, code stands between fences with its indents. The samples
    are at most three lines in `scripts`, those that the reader knows: one of the body, one of another size, and the
    one with most digits, for fonts map their characters one by one.
    """
    regions = list(regions)
    if unsound(layer, scripts) is not None:
        return Taken({})
    texts: dict[int, str] = {}
    printed: list[Line] = []
    for region, within in zip(regions, words_of_regions(layer, [region.bbox for region in regions]), strict=True):
        if _can_be_taken(region, within):
            lines = lines_of(within.words)
            text = _text(region, lines)
            if text and not any(map(is_broken, text.replace("\n", ""))):
                texts[region.index] = text
                printed += lines
    return Taken(texts, _samples(layer, printed, scripts - _UNREAD))


def _can_be_taken(region: Region, within: RegionWords) -> bool:
    return (
        region.task is Task.TEXT
        and region.label not in _DRAWN
        and within.bare_share <= _MOST_BARE
        and not any(word.marks & _NOT_PRINT or _FORMULA.search(word.text) for word in within.words)
    )


def _text(region: Region, lines: Sequence[Line]) -> str:
    if region.label == _CODE_LABEL:
        return fenced(code_of(lines)) if lines else ""
    return text_of(lines)


def _samples(layer: TextLayer, lines: Iterable[Line], scripts: Collection[str]) -> list[Sample]:
    readable = [(line, text) for line in lines if (text := _readable(line, scripts))]
    if not readable:
        return []
    body = min(readable, key=lambda each: abs(len(letters(each[1])) - _BEST))
    chosen = [body]
    others = [each for each in readable if not 1 / _OTHER_SIZE < _height(each[0]) / _height(body[0]) < _OTHER_SIZE]
    if others:
        chosen.append(max(others, key=lambda each: len(letters(each[1]))))
    numbers = max(readable, key=lambda each: _digits(each[1]))
    if numbers not in chosen and _digits(numbers[1]) >= _FEWEST_DIGITS > max(_digits(text) for _, text in chosen):
        chosen.append(numbers)
    return [Sample(text, _around(layer, line)) for line, text in chosen]


def _readable(line: Line, scripts: Collection[str]) -> str:
    """The text of a line that stands upright and is plain enough to be read; empty for another."""
    text = text_of([line])
    signs, found = "".join(text.split()), letters(text)
    known = sum(char.isdigit() or script_of(char) in scripts for char in found)
    # Turned lines have boxes that are no places on the page.
    upright = min(line.box) >= 0 and not any(word.marks & (Mark.UP | Mark.DOWN) for word in line.words)
    return text if upright and _FEWEST <= len(found) <= _MOST and known >= _PLAIN * len(signs) else ""


def _height(line: Line) -> int:
    return max(1, line.box[3] - line.box[1])


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text))


def _around(layer: TextLayer, line: Line) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = line.box
    margin = _MARGIN * _height(line)
    right, bottom = min(layer.width, x2 + margin), min(layer.height, y2 + margin)
    return max(0.0, x1 - margin), max(0.0, y1 - margin), right, bottom
