"""Corrects a page's regions by its text layer. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import PICTURES, READ_TASKS, PageLayout, Region, Task
from kopub.pages.documents.text_layer import NO_MARK, Box, Mark, TextLayer, Word
from kopub.states import State
from kopub.texts.extracted_text import unsound
from kopub.texts.layer_code import with_code
from kopub.texts.layer_columns import split_columns
from kopub.texts.layer_lines import MOST_BARE, Line, area, outside_of, set_upright, shared, words_of_regions
from kopub.texts.layer_tables import aligned, chunks_of, is_plain_table, printed_rows, table_of, without_rules
from kopub.texts.layer_tags import follow_tags, tagged_tables
from kopub.texts.piece_regions import regions_of_pieces

CODE = CodeVersion(
    "texts.layer_regions",
    {
        1: "regions of pages with a text layer are corrected by it",
        2: "titles in brackets are no formulas, a page that looks blank has the words of its layer, columns of "
        "vertical writing are one region, and the two columns of a page are two; a table of bands is one table, and "
        "two tables with words between them are two",
        3: "lines in a font of even width are code; titles, lists, notes and tables follow the tags of their PDF; "
        "formulas of documents have the words of their print, bullets that touch a word are kept, and what documents "
        "draw without a word is not read",
    },
)
"""With a new version, pages with a text layer are laid out again."""

_NOT_PRINT = Mark.INVISIBLE | Mark.NO_INK
_FILLED = 0.5
"""Share of a grid's cells that hold words in a table; the grid of a chart holds few."""
_WHOLE_PAGE = 0.6
"""Share of the page from which a filled box is its background."""
_WITHIN = 0.5
"""Share of a region within a table from which it is a part of that table."""
_SAME = 0.8
"""Share of the area of two boxes that they have in common if they are the same table."""
_PITCH = 3.0
"""Distance between two lines of a table or block without rules, in heights of a word."""
_HANGUL = re.compile("[가-힣]")
_BAND_GAP = 1.5
"""Distance between two bands of one table, in heights of a band."""
_LEADER = re.compile(r"[.·…‥]{3,}")


def correct_regions(layout: PageLayout, layer: TextLayer) -> PageLayout:
    """Return the layout of a page with what its text layer knows better.

    Connected rules or filled boxes around words are a table, and so are aligned words without rules. Text across the
    gutter of two columns is parted there, and read column by column. Words in pictures and in no region get regions of
    their own, even on a page that looks blank. An unsound layer changes nothing. Where a document's own structure is
    known, its pieces are the regions.
    """
    if layout.state not in (State.OK, State.PARTIAL, State.BLANK):
        return layout
    if layer.pieces:
        own, beside, rest = regions_of_pieces(layout, layer)
        for region in _with_homeless(beside, rest):
            own.insert(_place(own, region.bbox), region)
        regions = tuple(replace(region, index=at) for at, region in enumerate(own))
        return replace(layout, state=State.OK, reason=None, regions=regions)
    if unsound(layer) is not None:
        return layout
    printed = tuple(word for word in layer.words if not word.marks & _NOT_PRINT)
    if not _letters(printed):
        return layout
    layer = replace(layer, words=printed)
    regions = list(layout.regions)
    tables = list(_ruled_tables(layer))
    tables += [box for box in tagged_tables(layer) if not any(shared(box, other) for other in tables)]
    regions = _without_joined(regions, tables, layer)
    for box in tables:
        regions = _with_table(regions, box)
    read_by_layout = any(region.text for region in regions)
    if not read_by_layout:
        groups = split_columns(regions, layer)
        regions = [region for group in groups for region in with_code(_with_plain_tables(group, layer), layer)]
        regions = follow_tags(regions, layer)
    regions = _with_one_vertical(regions, layer)
    regions = _without_emptied(_without_prose_formulas(_with_homeless(regions, layer), layer), layer)
    if layout.state is State.BLANK:
        # The print is finer than what counts as ink.
        layout = replace(layout, state=State.OK, reason=None)
    return replace(layout, regions=tuple(replace(region, index=at) for at, region in enumerate(regions)))


def _ruled_tables(layer: TextLayer) -> Iterator[Box]:
    """Yield the boxes of touching rules and filled boxes that are tables."""
    import cv2

    most = _WHOLE_PAGE * layer.width * layer.height
    boxes = [*layer.rules, *(fill for fill in layer.fills if (fill[2] - fill[0]) * (fill[3] - fill[1]) < most)]
    if len(boxes) < 2:
        return
    shrink = max(1, layer.cell // 2)
    canvas = np.zeros((layer.height // shrink + 2, layer.width // shrink + 2), np.uint8)
    for x1, y1, x2, y2 in boxes:
        canvas[max(0, y1) // shrink : max(0, y2) // shrink + 1, max(0, x1) // shrink : max(0, x2) // shrink + 1] = 1
    count, labels = cv2.connectedComponents(canvas)
    groups: list[list[Box]] = [[] for _ in range(count)]
    for x1, y1, x2, y2 in boxes:
        row, column = max(0, y1) // shrink, max(0, x1) // shrink
        if row < canvas.shape[0] and column < canvas.shape[1]:
            groups[labels[row, column]].append((x1, y1, x2, y2))
    whole = [_around(group) for group in groups if len(group) >= 3]
    rules = set(layer.rules)
    bands = [_around(group) for group in groups if group and rules.isdisjoint(group)]
    banded = list(_banded(sorted(bands, key=lambda box: box[1]), layer))
    around = [*banded, *(box for box in whole if not any(shared(box, band) >= area(box) for band in banded))]
    for box, within in zip(around, words_of_regions(layer, around), strict=True):
        own = replace(layer, rules=tuple(_inside(layer.rules, box)), fills=tuple(_inside(layer.fills, box, most)))
        table = table_of(own, within.words, box) if within.words else None
        if table is None or table.rows < 2 or table.columns < 2:
            continue
        if sum(map(bool, table.words)) >= max(3, _FILLED * len(table.cells)):
            yield box


def _banded(boxes: Sequence[Box], layer: TextLayer) -> Iterator[Box]:
    """Yield the boxes around bands of one width with plain rows between them.

    The rows above the first band and below the last one may be such rows, too.
    """
    runs: list[list[Box]] = []
    for box in boxes:
        for run in runs:
            last = run[-1]
            aligned = max(abs(box[0] - last[0]), abs(box[2] - last[2])) <= layer.cell
            if aligned and 0 < box[1] - last[3] <= _BAND_GAP * min(box[3] - box[1], last[3] - last[1]):
                run.append(box)
                break
        else:
            runs.append([box])
    for run in runs:
        if len(run) > 1:
            x1, y1, x2, y2 = _around(run)
            gap = run[-1][1] - run[-2][3]
            above, below = (x1, y1 - gap, x2, y1), (x1, y2, x2, y2 + gap)
            words = [within.words for within in words_of_regions(layer, (above, below))]
            is_row = [bool(some) and len(chunks_of(printed_rows(some)[0].words)) > 1 for some in words]
            yield x1, y1 - gap * is_row[0], x2, y2 + gap * is_row[1]


def _inside(boxes: Sequence[Box], box: Box, most: float = np.inf) -> Iterator[Box]:
    for x1, y1, x2, y2 in boxes:
        if box[0] <= x1 and box[1] <= y1 and x2 <= box[2] and y2 <= box[3] and (x2 - x1) * (y2 - y1) < most:
            yield x1, y1, x2, y2


def _without_joined(regions: Sequence[Region], tables: Sequence[Box], layer: TextLayer) -> list[Region]:
    """Return the regions without tables that are two, with words between them."""
    joined = [
        region
        for region in regions
        if region.task is Task.TABLE and sum(shared(region.bbox, box) >= _SAME * area(box) for box in tables) > 1
    ]
    between = [word.box for word in outside_of(layer, tables)] if joined else []
    return [
        region
        for region in regions
        if region not in joined or not any(shared(region.bbox, word) >= _WITHIN * area(word) for word in between)
    ]


def _with_table(regions: Sequence[Region], box: Box) -> list[Region]:
    """Return the regions with a table in a box, in place of those within it."""
    inner = [region for region in regions if shared(region.bbox, box) >= _WITHIN * area(region.bbox)]
    outer = [region for region in regions if shared(region.bbox, box) >= _SAME * area(box)]
    known = next((region for region in outer if region.task is Task.TABLE), None)
    if known is not None and len(inner) <= 1:
        # Layout may lose a last row without a rule below it.
        (x1, y1, x2, y2), (left, top, right, bottom) = known.bbox, box
        whole = replace(known, bbox=(min(x1, left), min(y1, top), max(x2, right), max(y2, bottom)))
        return [whole if region is known else region for region in regions]
    table = Region(0, "table", Task.TABLE, 1.0, _floats(box))
    kept = [region for region in regions if region not in inner]
    at = regions.index(inner[0]) if inner else _place(kept, box)
    return [*kept[:at], table, *kept[at:]]


def _with_plain_tables(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with the tables of aligned words in those of text."""
    texts = [region for region in regions if region.task is Task.TEXT and region.label != "seal"]
    held = words_of_regions(layer, [region.bbox for region in regions])
    words = {region.index: within.words for region, within in zip(regions, held, strict=True) if region in texts}
    tables = list(_plain_tables([word for some in words.values() for word in some]))
    changed = list(regions)
    for rows in tables:
        inside = {word for row in rows for word in row.words}
        touched = [region for region in texts if region in changed and inside & set(words[region.index])]
        if not touched:
            continue
        table = Region(0, "table", Task.TABLE, 1.0, _floats(_around([word.box for word in inside])))
        at = changed.index(touched[0])
        above: list[Region] = []
        below: list[Region] = []
        for region in touched:
            rest = [word for word in words[region.index] if word not in inside]
            for side, is_above in ((above, True), (below, False)):
                boxes = [word.box for word in rest if (word.box[1] < table.bbox[1]) is is_above]
                if boxes:
                    side.append(replace(region, bbox=_floats(_around(boxes)), polygon=None))
        others = [region for region in changed if region not in touched]
        changed = [*others[:at], *above, table, *below, *others[at:]]
    return changed


def _plain_tables(words: Sequence[Word]) -> Iterator[list[Line]]:
    """Yield the printed rows of each table of aligned words."""
    run: list[Line] = []
    for row in [*printed_rows(words), None]:
        is_row = (
            row is not None
            and len(chunks_of(row.words)) > 1
            and not any(_LEADER.search(word.text) for word in row.words)
        )
        follows = row is not None and run and row.box[1] - run[-1].box[3] <= _PITCH * _height(row.words)
        if run and not (is_row and follows):
            table = aligned([word for line in run for word in line.words])
            if table is not None and is_plain_table(table):
                yield run
            run = []
        if row is not None and is_row:
            run.append(row)


def _with_homeless(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with new ones for the words in pictures and in no region."""
    boxes = [region.bbox for region in regions]
    held_words = words_of_regions(layer, boxes) if boxes else []
    changed = list(regions)
    for region, within, plain in zip(regions, held_words, words_of_regions(without_rules(layer), boxes), strict=True):
        if region.task is not Task.SKIP or region.label not in PICTURES or not _letters(within.words):
            continue
        at = changed.index(region)
        blocks = [replace(_text(block), polygon=None) for block in _blocks(within.words)]
        kept = [] if plain.bare_share <= MOST_BARE else [region]
        changed[at : at + 1] = [*kept, *blocks]
    held = {id(word) for within in held_words for word in within.words}
    for block in _blocks([word for word in layer.words if id(word) not in held]):
        if _letters(block):
            text = _text(block)
            changed.insert(_place(changed, text.bbox), text)
    return changed


def _with_one_vertical(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with those of a page of vertical writing as one.

    Its columns, which run from right to left, look like blocks side by side.
    """
    down = sum(len(word.text) for word in layer.words if word.marks & Mark.DOWN)
    if down <= layer.characters / 2:
        return list(regions)
    held = words_of_regions(layer, [region.bbox for region in regions])
    columns = [
        region
        for region, within in zip(regions, held, strict=True)
        if region.task is Task.TEXT and any(word.marks & Mark.DOWN for word in within.words)
    ]
    if not columns:
        return list(regions)
    x1, y1, x2, y2 = zip(*(region.bbox for region in columns), strict=True)
    whole = replace(columns[0], label="text", bbox=(min(x1), min(y1), max(x2), max(y2)), polygon=None)
    return [whole if region is columns[0] else region for region in regions if region not in columns[1:]]


def _without_emptied(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions without those whose words all stand in smaller ones.

    Read once more, their words would come out twice. One with more in print is a picture.
    """
    kept: list[Region] = []
    plain = without_rules(layer)
    for region, own in zip(regions, words_of_regions(layer, [region.bbox for region in regions]), strict=True):
        [inside] = words_of_regions(plain, [region.bbox])
        if region.task not in READ_TASKS or own.words or not _letters(inside.words):
            kept.append(region)
        elif inside.bare_share > MOST_BARE:
            kept.append(replace(region, label="image", task=Task.SKIP))
    return kept


def _without_prose_formulas(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with formulas that hold several Hangul as text."""
    held = words_of_regions(layer, [region.bbox for region in regions])
    return [
        replace(region, label="text", task=Task.TEXT)
        if region.task is Task.FORMULA and len(_HANGUL.findall("".join(word.text for word in within.words))) > 1
        else region
        for region, within in zip(regions, held, strict=True)
    ]


def _text(words: Sequence[Word]) -> Region:
    x1, y1, x2, y2 = _around([word.box for word in words])
    return Region(0, "text", Task.TEXT, 1.0, (x1 - 1.0, y1 - 1.0, x2 + 1.0, y2 + 1.0))


def _letters(words: Sequence[Word]) -> int:
    return sum(char.isalnum() for word in words for char in word.text)


def _blocks(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield words by block: lines of one start and direction, one below the other."""
    for turn in (NO_MARK, Mark.UP, Mark.DOWN):
        own = [word for word in words if word.marks & (Mark.UP | Mark.DOWN) == turn]
        upright = set_upright(own)
        drawn = dict(zip(map(id, upright), own, strict=True))
        blocks: list[list[list[Word]]] = []
        for row in printed_rows(upright):
            for chunk in chunks_of(row.words):
                box = _around([word.box for word in chunk])
                for block in blocks:
                    last = _around([word.box for word in block[-1]])
                    near = -1 <= (box[1] - last[3]) / max(1, _height(chunk)) <= 1 and box[1] > last[1]
                    if near and min(box[2], last[2]) - max(box[0], last[0]) > 0:
                        block.append(chunk)
                        break
                else:
                    blocks.append([chunk])
        for block in blocks:
            yield [drawn[id(word)] for line in block for word in line]


def _place(regions: Sequence[Region], box: Sequence[float]) -> int:
    """Return where a new region belongs: after the last above it."""
    places = [
        at
        for at, region in enumerate(regions, start=1)
        if region.bbox[1] < box[1] and min(region.bbox[2], box[2]) > max(region.bbox[0], box[0])
    ]
    return places[-1] if places else sum(region.bbox[3] <= box[1] for region in regions)


def _height(words: Sequence[Word]) -> float:
    return median(word.box[3] - word.box[1] for word in words)


def _around(boxes: Sequence[Box]) -> Box:
    x1, y1, x2, y2 = zip(*boxes, strict=True)
    return min(x1), min(y1), max(x2), max(y2)


def _floats(box: Sequence[float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = map(float, box)
    return x1, y1, x2, y2
