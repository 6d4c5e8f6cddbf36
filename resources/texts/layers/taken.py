"""The texts of regions that a page's text layer gives: those that a reading could not better. Pure."""

import re
from collections.abc import Iterable, Mapping

from resources.code_version import CodeVersion
from resources.layout.regions import Region, Task
from resources.pages.documents.text_layer import Mark, TextLayer
from resources.recognition.code_fences import fenced
from resources.texts.layers.lines import code_of, lines_of, text_of
from resources.texts.layers.region_words import RegionWords, words_of_regions
from resources.texts.layers.soundness import is_broken, unsound

CODE = CodeVersion("texts.layers", {1: "the first release"})
"""A new version takes the texts of all pages with a layer again."""

_CODE_LABEL = "algorithm"
_DRAWN = frozenset({"seal"})
"""Labels of text that is a picture."""
_MOST_BARE = 0.25
"""Share of a region's ink that may be no word's: rules under words, frames. Text drawn as shapes is more."""
_FORMULA = re.compile("[∑∏∫∮√∂∇\U0001d400-\U0001d7ff]")
"""Signs of a formula in a line, of which a layer has the signs and not how they stand."""
_NOT_PRINT = Mark.INVISIBLE | Mark.NO_INK | Mark.UNMAPPED


def taken(layer: TextLayer, regions: Iterable[Region]) -> Mapping[int, str]:
    """By index, the text of the regions of text whose words are sound and all that is printed there.

    None of a layer that is not sound. Lines are as printed, code stands between fences with its indents.
    """
    regions = list(regions)
    if unsound(layer) is not None:
        return {}
    found = zip(regions, words_of_regions(layer, [region.bbox for region in regions]), strict=True)
    texts = {region.index: _text(region, within) for region, within in found if _can_be_taken(region, within)}
    return {index: text for index, text in texts.items() if text and not any(map(is_broken, text.replace("\n", "")))}


def _can_be_taken(region: Region, within: RegionWords) -> bool:
    return (
        region.task is Task.TEXT
        and region.label not in _DRAWN
        and within.bare_share <= _MOST_BARE
        and not any(word.marks & _NOT_PRINT or _FORMULA.search(word.text) for word in within.words)
    )


def _text(region: Region, within: RegionWords) -> str:
    lines = lines_of(within.words)
    if region.label == _CODE_LABEL:
        return fenced(code_of(lines)) if lines else ""
    return text_of(lines)
