"""Finds code by the font of a text layer. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kopub.layout.regions import Region, Task
from kopub.pages.documents.text_layer import Mark, TextLayer
from kopub.texts.layer_lines import Line, words_of_regions
from kopub.texts.layer_tables import printed_rows

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
    for region, within in zip(regions, words_of_regions(layer, [region.bbox for region in regions]), strict=True):
        is_text = region.task is Task.TEXT and region.label != "seal"
        rows += [_Row(region, line, is_text and _is_code(line)) for line in printed_rows(within.words)] or [
            _Row(region)
        ]
    listings = [
        replace(row, is_code=len(run) >= _FEWEST_ROWS and (not is_typed or _looks_like_code(run)))
        if row.is_code
        else row
        for run in _runs(rows)
        for row in run
    ]
    changed: list[Region] = []
    torn = {id(row.region) for row in listings if row.is_code}
    for run in _runs(listings):
        region, lines = run[0].region, [row.line for row in run if row.line]
        if id(region) in torn:
            x1, y1, x2, y2 = zip(*(line.box for line in lines), strict=True)
            box = min(x1) - 1.0, min(y1) - 1.0, max(x2) + 1.0, max(y2) + 1.0
            label = CODE_LABEL if run[0].is_code else region.label
            region = replace(region, bbox=box, polygon=None, label=label)
        changed.append(region)
    return changed


@dataclass(frozen=True, slots=True)
class _Row:
    """A printed row of a region, or a region without one."""

    region: Region
    line: Line | None = None
    is_code: bool = False

    def follows(self, above: "_Row") -> bool:
        """Return whether it goes on with the text or the listing of the row above."""
        if self.region is above.region or not (self.is_code and self.line and above.is_code and above.line):
            return self.region is above.region and self.is_code is above.is_code
        (_, _, _, end), (_, start, _, foot) = above.line.box, self.line.box
        height = foot - start
        return -height <= start - end <= _PITCH * height


def _runs(rows: Iterable[_Row]) -> list[list[_Row]]:
    runs: list[list[_Row]] = []
    for row in rows:
        if runs and row.follows(runs[-1][-1]):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _is_code(line: Line) -> bool:
    text = "".join(word.text for word in line.words)
    fixed = sum(len(word.text) for word in line.words if word.marks & Mark.FIXED)
    starts = line.words[0].marks & Mark.FIXED
    return (
        bool(starts) and fixed >= _MOSTLY_FIXED * len(text) and len(_HANGUL.findall(text)) <= _MOST_HANGUL * len(text)
    )


def _looks_like_code(rows: Sequence[_Row]) -> bool:
    lines = [row.line for row in rows if row.line]
    left = min(line.box[0] for line in lines)
    height = lines[0].box[3] - lines[0].box[1]
    told = sum(
        line.box[0] - left > height or bool(_SIGNS.search("".join(word.text for word in line.words))) for line in lines
    )
    return 2 * told >= len(lines)
