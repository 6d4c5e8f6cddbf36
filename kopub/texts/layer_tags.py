"""Regions and tables that follow the tags of a PDF. Pure.

Tags that disagree with the page are not followed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, pairwise, product
from statistics import median

from kopub.boxes import Box, union
from kopub.layout.grid import RuledCell
from kopub.layout.regions import Region, Task
from kopub.pages.documents.text_layer import TextLayer, Word, characters_of
from kopub.texts.layer_lines import box_of, lines_of, usual_height
from kopub.texts.region_words import area, regions_with_words, shared

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
    titled = characters_of(word for word in layer.words if _role(layer, word) in _TITLES)
    believed = set(_LABELS) - (_TITLES if titled > _MOST_TITLES * layer.characters else set())
    changed: list[Region] = []
    for region, within in regions_with_words(regions, layer):
        parts: dict[int, list[Word]] = defaultdict(list)
        run = 0
        for word in within.words:
            # Words between two tagged blocks stay together, apart from those before and after.
            run -= bool(parts) and next(reversed(parts)) >= 0
            parts[word.tag if _role(layer, word) in believed else run - 1].append(word)
        is_believed = region.task is Task.TEXT and region.label != "seal"
        labels: dict[int, str] = {}
        boxes: dict[int, Box] = {}
        for tag, words in parts.items():
            boxes[tag] = box_of(words)
            if tag >= 0:
                labels[tag] = _LABELS[layer.tags[tag].role]
                is_believed &= labels[tag] != "paragraph_title" or characters_of(words) <= _LONGEST_TITLE
        is_apart = all(shared(a, b) <= _CROSSING * min(area(a), area(b)) for a, b in combinations(boxes.values(), 2))
        if not (is_believed and labels and is_apart):
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


def _role(layer: TextLayer, word: Word) -> str:
    return layer.tags[word.tag].role if word.tag >= 0 else ""


def tagged_tables(layer: TextLayer) -> list[Box]:
    """Return the boxes of the tables that are tagged as they are printed."""
    tables: dict[int, list[Word]] = defaultdict(list)
    for word in layer.words:
        if word.tag >= 0 and (number := layer.tags[word.tag].table) >= 0:
            tables[number].append(word)
    boxes: list[Box] = []
    for words in tables.values():
        box = box_of(words)
        within = sum(box.holds(word.box) for word in layer.words)
        if within == len(words) and tagged_cells(layer, words):
            boxes.append(box)
    return boxes


def tagged_cells(layer: TextLayer, words: Sequence[Word]) -> list[tuple[RuledCell, Sequence[Word]]]:
    """Return the cells of a tagged table with their words; none if wrong."""
    if any(word.tag < 0 for word in words) or len({layer.tags[word.tag].table for word in words}) != 1:
        return []
    words_of_tags: dict[int, list[Word]] = defaultdict(list)
    for word in words:
        words_of_tags[word.tag].append(word)
    if layer.tags[words[0].tag].table < 0 or not _agrees(layer, words_of_tags):
        return []
    placed: dict[tuple[int, int], tuple[RuledCell, list[Word]]] = {}
    for number, own in words_of_tags.items():
        tag = layer.tags[number]
        cell = RuledCell(tag.row, tag.column, tag.row_span, tag.column_span, box_of(own))
        placed[tag.row, tag.column] = cell, own
    covered: set[tuple[int, int]] = set()
    for cell, _ in placed.values():
        last = cell.row + cell.row_span, cell.column + cell.column_span
        covered.update(product(range(cell.row, last[0]), range(cell.column, last[1])))
    rows, columns = (1 + max(places) for places in zip(*covered, strict=True))
    for row, column in product(range(rows), range(columns)):
        if (row, column) not in covered:
            placed[row, column] = RuledCell(row, column, 1, 1, Box(0, 0, 0, 0)), []
    return [placed[place] for place in sorted(placed)] if rows > 1 and columns > 1 else []


def _agrees(layer: TextLayer, words_of_tags: Mapping[int, Sequence[Word]]) -> bool:
    """Return whether the cells of each row and column stand beside each other."""
    if median(map(characters_of, words_of_tags.values())) > _LONG_CELL:
        return False
    slack = _SLACK * usual_height(chain.from_iterable(words_of_tags.values()))
    rows: dict[int, list[Box]] = defaultdict(list)
    columns: dict[int, list[Box]] = defaultdict(list)
    for number, words in words_of_tags.items():
        tag, box = layer.tags[number], box_of(words)
        if tag.row_span == 1:
            rows[tag.row].append(box)
        if tag.column_span == 1:
            columns[tag.column].append(box)
    bands = [union(rows[at]) for at in sorted(rows)]
    strips = [union(columns[at]) for at in sorted(columns)]
    is_torn = any(above.y2 > below.y1 + slack for above, below in pairwise(bands))
    if is_torn or any(left.x2 > right.x1 + slack for left, right in pairwise(strips)):
        return False
    upright = [rule for rule in layer.rules if rule.height > rule.width]
    for words in words_of_tags.values():
        for line in lines_of(words):
            for before, after in pairwise(line.words):
                for rule in upright:
                    is_level = rule.y1 <= before.box.middle[1] <= rule.y2
                    if is_level and before.box.x2 <= rule.middle[0] <= after.box.x1:
                        return False
    return True
