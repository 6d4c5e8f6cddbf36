"""Corrects a page's regions by its text layer. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from kopub.boxes import Box, union
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import PICTURES, READ_TASKS, Layout, Region, Task
from kopub.pages.documents.text_layer import NO_MARK, Mark, TextLayer, Word, characters_of
from kopub.states import State
from kopub.texts.layer_code import with_code
from kopub.texts.layer_columns import split_columns
from kopub.texts.layer_lines import Line, box_of, joined, printed_rows, set_upright, usual_height, words_in
from kopub.texts.layer_soundness import unsound
from kopub.texts.layer_tables import aligned, chunks_of, is_plain_table, table_of
from kopub.texts.layer_tags import follow_tags, tagged_tables
from kopub.texts.piece_regions import regions_of_pieces
from kopub.texts.region_words import (
    MOST_BARE,
    area,
    bbox_around,
    outside_of,
    regions_with_words,
    shared,
    without_rules,
    words_of_boxes,
)

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
        4: "no cell of a document takes a part of a longer number, whose rest came out a second time, and the dots of "
        "a contents list leave no gutter",
        5: "turned lines in the margin are no words of the lines beside them",
    },
)
"""With a new version, pages with a text layer are laid out again."""

_NOT_PRINT = Mark.INVISIBLE | Mark.NO_INK
_TURNED = Mark.UP | Mark.DOWN
_FEWEST_TURNED = 4
"""Characters of a turned line; fewer may be a level word of one letter."""
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


def correct_regions(layout: Layout, layer: TextLayer) -> Layout:
    """Return the layout of a page with what its text layer knows better.

    Connected rules or filled boxes around words are a table, and so are aligned words without rules. Text across the
    gutter of two columns is parted there, and read column by column. Words in pictures and in no region get regions of
    their own, even on a page that looks blank. An unsound layer changes nothing. Where a document's own structure is
    known, its pieces are the regions.
    """
    if layout.state not in (State.OK, State.PARTIAL, State.BLANK):
        return layout
    if layer.pieces:
        regions, beside, rest = regions_of_pieces(layout, layer)
        for region in _with_homeless(beside, rest):
            regions.insert(_place(regions, region.bbox), region)
        return replace(layout, state=State.OK, reason=None, regions=_numbered(regions))
    if unsound(layer) is not None:
        return layout
    printed = tuple(word for word in layer.words if not word.marks & _NOT_PRINT)
    if not _has_letters(printed):
        return layout
    layer = replace(layer, words=printed)
    tables = list(_ruled_tables(layer))
    for box in tagged_tables(layer):
        if not any(shared(box, ruled) for ruled in tables):
            tables.append(box)
    regions = _with_tables(_without_side_lines(layout.regions, layer), tables, layer)
    if not any(region.text for region in regions):
        in_columns: list[Region] = []
        for group in split_columns(regions, layer):
            in_columns += with_code(_with_plain_tables(group, layer), layer)
        regions = follow_tags(in_columns, layer)
    regions = _with_homeless(_with_one_vertical(regions, layer), layer)
    regions = _with_fitting_tasks(regions, layer)
    if layout.state is State.BLANK:
        # The print is finer than what counts as ink.
        layout = replace(layout, state=State.OK, reason=None)
    return replace(layout, regions=_numbered(regions))


def _numbered(regions: Sequence[Region]) -> tuple[Region, ...]:
    return tuple(replace(region, index=at) for at, region in enumerate(regions))


def _has_letters(words: Sequence[Word]) -> bool:
    return any(map(str.isalnum, joined(words)))


def _without_side_lines(regions: Sequence[Region], layer: TextLayer) -> Sequence[Region]:
    """Return the regions, those of text without turned lines beside their level ones."""
    sides: list[Box] = []
    for block in _blocks([word for word in layer.words if word.marks & _TURNED]):
        box = box_of(block)
        if box.height > box.width and characters_of(block) >= _FEWEST_TURNED:
            sides.append(box)
    changed = list(regions)
    for at, (region, within) in enumerate(regions_with_words(regions, layer) if sides else ()):
        for side in sides:
            if region.task is not Task.TEXT or not shared(side, region.bbox):
                continue
            level: list[Word] = []
            for word in within.words:
                # A letter that is a word shows no direction.
                is_of_side = len(word.text) == 1 and side.x1 <= word.box.middle[0] <= side.x2
                if not (word.marks & _TURNED or is_of_side):
                    level.append(word)
            if level and side.apart(box_of(level))[0]:
                changed[at] = replace(region, bbox=bbox_around(level, 1.0), polygon=None)
    return changed


def _ruled_tables(layer: TextLayer) -> Iterator[Box]:
    """Yield the boxes of touching rules and filled boxes that are tables."""
    import cv2

    most = _WHOLE_PAGE * layer.width * layer.height
    fills = [fill for fill in layer.fills if fill.width * fill.height < most]
    boxes = [*layer.rules, *fills]
    if len(boxes) < 2:
        return
    shrink = max(1, layer.cell // 2)
    canvas = np.zeros((layer.height // shrink + 2, layer.width // shrink + 2), np.uint8)
    for x1, y1, x2, y2 in boxes:
        canvas[max(0, y1) // shrink : max(0, y2) // shrink + 1, max(0, x1) // shrink : max(0, x2) // shrink + 1] = 1
    count, labels = cv2.connectedComponents(canvas)
    groups: list[list[Box]] = [[] for _ in range(count)]
    for box in boxes:
        row, column = max(0, box.y1) // shrink, max(0, box.x1) // shrink
        if row < canvas.shape[0] and column < canvas.shape[1]:
            groups[labels[row, column]].append(box)
    rules = set(layer.rules)
    bands = [union(group) for group in groups if group and rules.isdisjoint(group)]
    around = list(_banded(sorted(bands, key=lambda band: band.y1), layer))
    banded = around.copy()
    for group in groups:
        if len(group) >= 3 and not any(shared(union(group), band) >= area(union(group)) for band in banded):
            around.append(union(group))
    for box, within in zip(around, words_of_boxes(layer, around), strict=True):
        own = replace(layer, rules=tuple(filter(box.holds, layer.rules)), fills=tuple(filter(box.holds, fills)))
        table = table_of(own, within.words, box)
        if table is None or table.rows < 2 or table.columns < 2:
            continue
        if sum(map(bool, table.words)) >= max(3, _FILLED * len(table.cells)):
            yield box


def _banded(bands: Sequence[Box], layer: TextLayer) -> Iterator[Box]:
    """Yield the boxes around bands of one width with plain rows between them.

    The rows above the first band and below the last one may be such rows, too.
    """
    runs: list[list[Box]] = []
    for band in bands:
        for run in runs:
            last = run[-1]
            is_aligned = max(abs(band.x1 - last.x1), abs(band.x2 - last.x2)) <= layer.cell
            if is_aligned and 0 < band.y1 - last.y2 <= _BAND_GAP * min(band.height, last.height):
                run.append(band)
                break
        else:
            runs.append([band])
    for run in runs:
        if len(run) < 2:
            continue
        whole = union(run)
        gap = run[-1].y1 - run[-2].y2
        higher, lower = whole._replace(y1=whole.y1 - gap), whole._replace(y2=whole.y2 + gap)
        above, below = words_of_boxes(layer, (higher._replace(y2=whole.y1), lower._replace(y1=whole.y2)))
        if above.words and len(chunks_of(printed_rows(above.words)[0])) > 1:
            whole = whole._replace(y1=higher.y1)
        if below.words and len(chunks_of(printed_rows(below.words)[0])) > 1:
            whole = whole._replace(y2=lower.y2)
        yield whole


def _with_tables(regions: Sequence[Region], tables: Sequence[Box], layer: TextLayer) -> list[Region]:
    """Return the regions with a table in each box, in place of those within it.

    A region that is two tables, with words between them, is left out first.
    """
    between = [word.box for word in outside_of(layer, tables)]
    changed: list[Region] = []
    for region in regions:
        several = sum(shared(region.bbox, box) >= _SAME * area(box) for box in tables) > 1
        is_joined = region.task is Task.TABLE and several
        if not is_joined or not any(shared(region.bbox, word) >= _WITHIN * area(word) for word in between):
            changed.append(region)
    for box in tables:
        inner: list[int] = []
        table: int | None = None
        for at, region in enumerate(changed):
            common = shared(region.bbox, box)
            if common >= _WITHIN * area(region.bbox):
                inner.append(at)
            if table is None and region.task is Task.TABLE and common >= _SAME * area(box):
                table = at
        if table is not None and len(inner) <= 1:
            # Layout may lose a last row without a rule below it.
            changed[table] = replace(changed[table], bbox=union((Box(*changed[table].bbox), box)))
            continue
        for at in reversed(inner):
            del changed[at]
        changed.insert(inner[0] if inner else _place(changed, box), _table(box))
    return changed


def _table(box: Box) -> Region:
    return Region(0, "table", Task.TABLE, 1.0, (float(box.x1), float(box.y1), float(box.x2), float(box.y2)))


def _with_plain_tables(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with the tables of aligned words in those of text."""
    texts: list[tuple[Region, Sequence[Word]]] = []
    words: list[Word] = []
    for region, within in regions_with_words(regions, layer):
        if region.task is Task.TEXT and region.label != "seal":
            texts.append((region, within.words))
            words += within.words
    changed = list(regions)
    for rows in _plain_tables(words):
        cells = set(words_in(rows))
        touched = [(region, own) for region, own in texts if region in changed and not cells.isdisjoint(own)]
        if not touched:
            continue
        table = _table(box_of(cells))
        at = changed.index(touched[0][0])
        above: list[Region] = []
        below: list[Region] = []
        for region, own in touched:
            changed.remove(region)
            over: list[Word] = []
            under: list[Word] = []
            for word in own:
                if word not in cells:
                    (over if word.box.y1 < table.bbox[1] else under).append(word)
            if over:
                above.append(replace(region, bbox=bbox_around(over), polygon=None))
            if under:
                below.append(replace(region, bbox=bbox_around(under), polygon=None))
        changed[at:at] = [*above, table, *below]
    return changed


def _plain_tables(words: Sequence[Word]) -> Iterator[list[Line]]:
    """Yield the printed rows of each table of aligned words."""
    runs: list[list[Line]] = [[]]
    for row in printed_rows(words):
        run = runs[-1]
        if len(chunks_of(row)) < 2 or any(_LEADER.search(word.text) for word in row.words):
            runs.append([])
        elif not run or row.box.y1 - run[-1].box.y2 <= _PITCH * usual_height(row.words):
            run.append(row)
        else:
            runs.append([row])
    for run in filter(None, runs):
        table = aligned(words_in(run))
        if table is not None and is_plain_table(table):
            yield run


def _with_homeless(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with new ones for the words in pictures and in no region."""
    changed: list[Region] = []
    homeless = {id(word): word for word in layer.words}
    for region, within in regions_with_words(regions, without_rules(layer)):
        for word in within.words:
            homeless.pop(id(word), None)
        if region.task is Task.SKIP and region.label in PICTURES and _has_letters(within.words):
            if within.bare_share > MOST_BARE:
                changed.append(region)
            changed += map(_text, _blocks(within.words))
        else:
            changed.append(region)
    for block in _blocks(list(homeless.values())):
        if _has_letters(block):
            text = _text(block)
            changed.insert(_place(changed, text.bbox), text)
    return changed


def _text(words: Sequence[Word]) -> Region:
    return Region(0, "text", Task.TEXT, 1.0, bbox_around(words, 1.0))


def _blocks(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield words by block: lines of one start and direction, one below the other."""
    for turn in (NO_MARK, Mark.UP, Mark.DOWN):
        own = [word for word in words if word.marks & _TURNED == turn]
        upright = set_upright(own)
        drawn = dict(zip(map(id, upright), own, strict=True))
        blocks: list[list[Line]] = []
        for row in printed_rows(upright):
            for chunk in chunks_of(row):
                box = chunk.box
                for block in blocks:
                    last = block[-1].box
                    is_near = -1 <= (box.y1 - last.y2) / max(1, usual_height(chunk.words)) <= 1 and box.y1 > last.y1
                    if is_near and min(box.x2, last.x2) > max(box.x1, last.x1):
                        block.append(chunk)
                        break
                else:
                    blocks.append([chunk])
        for block in blocks:
            yield [drawn[id(word)] for word in words_in(block)]


def _place(regions: Sequence[Region], box: Sequence[float]) -> int:
    """Return where a new region belongs: after the last above it."""
    place = 0
    for at, region in enumerate(regions, start=1):
        if region.bbox[1] < box[1] and min(region.bbox[2], box[2]) > max(region.bbox[0], box[0]):
            place = at
    # In a column of its own, it comes after all that ends above it.
    return place or sum(region.bbox[3] <= box[1] for region in regions)


def _with_one_vertical(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with those of a page of vertical writing as one.

    Its columns, which run from right to left, look like blocks side by side.
    """
    if layer.marked(Mark.DOWN) <= layer.characters / 2:
        return list(regions)
    columns: list[Region] = []
    changed: list[Region] = []
    for region, within in regions_with_words(regions, layer):
        is_column = region.task is Task.TEXT and any(word.marks & Mark.DOWN for word in within.words)
        if is_column:
            columns.append(region)
        if not is_column or len(columns) == 1:
            changed.append(region)
    if columns:
        box = union(Box(*region.bbox) for region in columns)
        whole = replace(columns[0], label="text", bbox=box, polygon=None)
        changed[changed.index(columns[0])] = whole
    return changed


def _with_fitting_tasks(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions as text, picture or not at all where their words say so.

    A formula with several Hangul is text. A region whose words all stand in smaller ones would be read twice; it is a
    picture if it has more in print.
    """
    rest: list[Region] = []
    plain = without_rules(layer)
    for region, own in regions_with_words(regions, layer):
        [inside] = words_of_boxes(plain, [region.bbox])
        if region.task is Task.FORMULA and len(_HANGUL.findall(joined(own.words))) > 1:
            rest.append(replace(region, label="text", task=Task.TEXT))
        elif region.task not in READ_TASKS or own.words or not _has_letters(inside.words):
            rest.append(region)
        elif inside.bare_share > MOST_BARE:
            rest.append(replace(region, label="image", task=Task.SKIP))
    return rest
