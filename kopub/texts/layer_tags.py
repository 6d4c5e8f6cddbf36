"""Regions and tables that follow the tags of a PDF. Pure.

Tags that disagree with the page are not followed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from statistics import median

from kopub.layout.grid import RuledCell
from kopub.layout.lines import InkBox
from kopub.layout.regions import Region, Task
from kopub.pages.documents.text_layer import Box, TextLayer, Word
from kopub.texts.layer_lines import area, lines_of, shared, words_of_regions

_TITLES = frozenset({"Title", "H", "H1", "H2", "H3", "H4", "H5", "H6"})
_ENTRY = "LI"
_LABELS = {
    **dict.fromkeys(_TITLES, "paragraph_title"),
    _ENTRY: "text",
    "Code": "algorithm",
    "Caption": "figure_title",
    "Note": "footnote",
    "FENote": "footnote",
}
"""Labels of regions by the roles that are followed; others say nothing more than layout does."""
_TITLE_LABELS = frozenset({"doc_title", "paragraph_title"})
_LONGEST_TITLE, _MOST_TITLES = 120, 0.5
"""Letters of a title, and the share of a page's letters in titles, up to which these tags are believed."""
_CROSSING = 0.1
"""Share of the smaller of two boxes within the other from which words do not stand where their tags say."""
_SLACK = 0.3
"""Height of a word by which cells may reach into the next row or column."""
_LONG_CELL = 80
"""Usual letters of a cell from which a table only lays out the page."""


def follow_tags(regions: Sequence[Region], layer: TextLayer) -> list[Region]:
    """Return the regions with titles, list entries, code and notes as they are tagged.

    A region is divided where its words have several such tags, each of which must stand apart from the others.
    """
    if not layer.tags:
        return list(regions)
    titled = sum(len(word.text) for word in layer.words if _role(layer, word) in _TITLES)
    believed = set(_LABELS) - (_TITLES if titled > _MOST_TITLES * layer.characters else set())
    changed: list[Region] = []
    for region, within in zip(regions, words_of_regions(layer, [region.bbox for region in regions]), strict=True):
        parts: dict[int, list[Word]] = defaultdict(list)
        run = 0
        for word in within.words:
            # Words between two tagged blocks stay together, apart from those before and after.
            run -= bool(parts) and next(reversed(parts)) >= 0
            parts[word.tag if _role(layer, word) in believed else run - 1].append(word)
        labels = {tag: _LABELS[layer.tags[tag].role] for tag in parts if tag >= 0}
        boxes = {tag: _around(words) for tag, words in parts.items()}
        is_apart = all(shared(a, b) <= _CROSSING * min(area(a), area(b)) for a, b in combinations(boxes.values(), 2))
        is_short = all(
            sum(len(word.text) for word in words) <= _LONGEST_TITLE
            for tag, words in parts.items()
            if labels.get(tag) == "paragraph_title"
        )
        if region.task is not Task.TEXT or region.label == "seal" or not labels or not is_apart or not is_short:
            changed.append(region)
            continue
        for tag, box in boxes.items():
            label = labels.get(tag, "text")
            # Layout may know more: that a title is the document's own, or a text a footnote.
            is_known = region.label == "doc_title" if label == "paragraph_title" else region.label not in _TITLE_LABELS
            if is_known and label in ("text", "paragraph_title"):
                label = region.label
            whole = region if len(boxes) == 1 else replace(region, bbox=box, polygon=None)
            changed.append(replace(whole, label=label))
    return changed


def title_level(layer: TextLayer, words: Sequence[Word]) -> int:
    """Return a title's level by its tag, 1 uppermost; 0 if it has none."""
    roles = {_role(layer, word) for word in words}
    role = roles.pop() if len(roles) == 1 else ""
    return int(role[1:]) if role in _TITLES and role[1:].isdigit() else 0


def tagged_tables(layer: TextLayer) -> list[Box]:
    """Return the boxes of the tables that are tagged as they are printed."""
    tables: dict[int, list[Word]] = defaultdict(list)
    for word in layer.words:
        if word.tag >= 0 and (number := layer.tags[word.tag].table) >= 0:
            tables[number].append(word)
    boxes = [(_around(words), words) for words in tables.values() if tagged_cells(layer, words)]
    return [
        (round(x1), round(y1), round(x2), round(y2))
        for (x1, y1, x2, y2), words in boxes
        if sum(x1 <= word.box[0] and word.box[2] <= x2 and y1 <= word.box[1] and word.box[3] <= y2
               for word in layer.words) == len(words)
    ]  # fmt: skip


def tagged_cells(layer: TextLayer, words: Sequence[Word]) -> list[tuple[RuledCell, Sequence[Word]]]:
    """Return the cells of a tagged table with their words; none if wrong."""
    if any(word.tag < 0 for word in words) or len({layer.tags[word.tag].table for word in words}) != 1:
        return []
    held: dict[int, list[Word]] = defaultdict(list)
    for word in words:
        held[word.tag].append(word)
    tags = {number: layer.tags[number] for number in held}
    if next(iter(tags.values())).table < 0 or not _agrees(layer, held):
        return []
    placed = {
        (tag.row, tag.column): (RuledCell(tag.row, tag.column, tag.row_span, tag.column_span, InkBox(*box)), cell)
        for number, tag in tags.items()
        for cell in [held[number]]
        for box in [_around(cell)]
    }
    taken = {
        (row + down, column + over)
        for (row, column), (cell, _) in placed.items()
        for down in range(cell.row_span)
        for over in range(cell.column_span)
    }
    rows, columns = (1 + max(place[axis] for place in taken) for axis in (0, 1))
    empty = InkBox(0, 0, 0, 0)
    for row in range(rows):
        for column in range(columns):
            if (row, column) not in taken:
                placed[row, column] = RuledCell(row, column, 1, 1, empty), []
    return [placed[place] for place in sorted(placed)] if rows > 1 and columns > 1 else []


def _agrees(layer: TextLayer, held: Mapping[int, Sequence[Word]]) -> bool:
    """Return whether the cells of each row and column stand beside each other."""
    slack = _SLACK * median(word.box[3] - word.box[1] for words in held.values() for word in words)
    rows: dict[int, list[Box]] = defaultdict(list)
    columns: dict[int, list[Box]] = defaultdict(list)
    for number, words in held.items():
        tag, box = layer.tags[number], _around(words)
        if tag.row_span == 1:
            rows[tag.row].append(box)
        if tag.column_span == 1:
            columns[tag.column].append(box)
    bands = [(min(box[1] for box in rows[at]), max(box[3] for box in rows[at])) for at in sorted(rows)]
    strips = [(min(box[0] for box in columns[at]), max(box[2] for box in columns[at])) for at in sorted(columns)]
    if any(before[1] > after[0] + slack for each in (bands, strips) for before, after in pairwise(each)):
        return False
    if median(sum(len(word.text) for word in words) for words in held.values()) > _LONG_CELL:
        return False
    upright = [rule for rule in layer.rules if rule[3] - rule[1] > rule[2] - rule[0]]
    return not any(
        a.box[2] <= (rule[0] + rule[2]) / 2 <= b.box[0] and rule[1] <= (a.box[1] + a.box[3]) / 2 <= rule[3]
        for words in held.values()
        for line in lines_of(words)
        for a, b in pairwise(line.words)
        for rule in upright
    )


def _role(layer: TextLayer, word: Word) -> str:
    return layer.tags[word.tag].role if word.tag >= 0 else ""


def _around(words: Sequence[Word]) -> Box:
    x1, y1, x2, y2 = zip(*(word.box for word in words), strict=True)
    return min(x1), min(y1), max(x2), max(y2)
