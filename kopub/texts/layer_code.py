"""Finds code by the font of a text layer. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kopub.layout.regions import Region, Task
from kopub.pages.documents.text_layer import Mark, TextLayer, characters_of
from kopub.texts.layer_lines import Line, printed_rows, words_in
from kopub.texts.region_words import bbox_around, regions_with_words

CODE_LABEL = "algorithm"
_FEWEST_ROWS = 2
_MOST_HANGUL, _MOSTLY_FIXED = 0.5, 0.5
"""Shares of a line's letters that may be Hangul, and that must be in a font of even width."""
_TYPED = 0.8
"""Share of a page's letters in such a font from which it is typed, and only what looks like code is."""
_SIGNS = re.compile(r"[{}()\[\];=<>#$|\\]")
_PITCH = 3.0
"""Distance between two lines of one listing, in heights of the lower one."""
_HANGUL = re.compile("[가-힣]")


def with_code(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with listings in one region each, apart from other text.

    A listing has several lines in a font whose letters are all equally wide.
    """
    fixed = layer.marked(Mark.FIXED)
    if not fixed:
        return list(regions)
    is_typed = fixed > _TYPED * layer.characters
    rows: list[_Row] = []
    for region, within in regions_with_words(regions, layer):
        is_text = region.task is Task.TEXT and region.label != "seal"
        lines = printed_rows(within.words)
        for line in lines:
            # Code begins in a font of even width and is mostly so.
            begins = is_text and bool(line.words[0].marks & Mark.FIXED)
            is_fixed = characters_of(line.words, Mark.FIXED) >= _MOSTLY_FIXED * len(line.letters)
            is_hangul = len(_HANGUL.findall(line.letters)) > _MOST_HANGUL * len(line.letters)
            rows.append(_Row(region, line, begins and is_fixed and not is_hangul))
        if not lines:
            rows.append(_Row(region))
    for run in _runs(rows):
        of_run = [row.line for row in run if row.line]
        is_code = run[0].is_code and len(run) >= _FEWEST_ROWS
        if is_code and is_typed:
            # Most lines of code are indented or have its signs.
            left = min(line.box.x1 for line in of_run)
            height = of_run[0].box.height
            like_code = sum(line.box.x1 - left > height or bool(_SIGNS.search(line.letters)) for line in of_run)
            is_code = 2 * like_code >= len(of_run)
        for row in run:
            row.is_code = is_code
    torn = {id(row.region) for row in rows if row.is_code}
    changed: list[Region] = []
    for run in _runs(rows):
        region = run[0].region
        if id(region) in torn:
            words = words_in(row.line for row in run if row.line)
            label = CODE_LABEL if run[0].is_code else region.label
            region = replace(region, bbox=bbox_around(words, 1.0), polygon=None, label=label)
        changed.append(region)
    return changed


@dataclass(slots=True)
class _Row:
    """A printed row of a region, or a region without one."""

    region: Region
    line: Line | None = None
    is_code: bool = False


def _runs(rows: Iterable[_Row]) -> list[list[_Row]]:
    """Return the rows by the text or listing that they are of."""
    runs: list[list[_Row]] = []
    for row in rows:
        above = runs[-1][-1] if runs else None
        goes_on = False
        if above and row.region is above.region:
            goes_on = row.is_code is above.is_code
        elif above and row.is_code and row.line and above.is_code and above.line:
            # A listing goes on in the next region if that is near.
            height = row.line.box.height
            goes_on = -height <= row.line.box.y1 - above.line.box.y2 <= _PITCH * height
        if goes_on:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs
