"""Page segmentation: from pixels to blocks of text, tables and pictures in reading order.

All steps work on the page's working copy (`kopub.layout.ink`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box, union
from kopub.layout.grid import RuledLines
from kopub.layout.ink import PAPER_REACH, grey_histogram, ink_contrast, ink_mask, paper_level, shrink, working_scale
from kopub.layout.lines import TextLine, find_lines, find_ruled_areas, part_rules
from kopub.layout.open_tables import find_open_tables
from kopub.layout.runs import merge_intervals

_FLAT = 6
"""Grey levels around the most common one that count as the same tint."""
_HOLLOW = 0.5
"""Smallest share of its box that a filled area covers; an area that covers less is a frame or the edge of a scan."""
_FRAME_AREA = 0.25
"""Smallest share of the page that a frame encloses; a smaller ring of strokes is a drawing."""
_FRAME_WIDTH = 0.12
"""Width of the border of its box that holds all strokes of a frame, as a share of the box's sides."""
_HALO, _DARK_PAPER = 16, 128
"""Most grey levels by which some paper is lighter than the rest, and the level up to which print may be lighter."""
_BAND = 2.5
"""Height of a tint behind a single row, in heights of the body text."""
_PALE = 40
"""Most grey levels between the paper and such a tint on a scan."""
HEAD, FOOT = 0.09, 0.88
"""Shares of the page's height above which running heads end, and below which running feet begin."""

Kind = Literal["text", "table", "picture"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A block of text, a table or a picture.

    `rows` are the lines of a text block, top to bottom; parts of one row are joined.
    """

    kind: Kind
    box: Box
    rows: tuple[TextLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A line ("text"), a table, a picture, or a frame with the items inside it."""

    kind: Literal["text", "table", "picture", "frame"]
    box: Box
    line: TextLine | None = None
    inner: tuple["Item", ...] = ()


@dataclass(frozen=True, slots=True)
class Segmentation:
    """The blocks of a page in reading order, in pixels of its working copy.

    `em` is the height of its body text.
    """

    blocks: tuple[Segment, ...]
    rules: RuledLines
    em: float
    scale: float
    shape: tuple[int, int]


def segment(gray: NDArray[np.uint8]) -> Segmentation:
    """Find the blocks of a page, uint8 (height, width) at full size."""
    scale = working_scale(*gray.shape)
    gray = shrink(gray, scale)
    if (paper := paper_level(gray)) > _DARK_PAPER:
        # A sharpened photo is lighter around its letters, beside which the rest of its paper would be ink.
        gray = np.minimum(gray, np.uint8(min(255, paper + _HALO)))
    contrast = ink_contrast(gray, PAPER_REACH)
    ink, rules, em = part_rules(contrast)
    ruled, frames = find_ruled_areas(rules, gray.shape, em)
    pictures, tints = find_filled(gray, em)
    # Straight edges in a screenshot are not a table, and a filled cell of a table is not a picture.
    tables = [table for table in ruled if not any(table.inside(p) and table.width <= p.width for p in pictures)]
    pictures = [box for box in pictures if not box.inside_any(tables)]
    _clear_boxes(ink, [*pictures, *tables])
    drawings = find_drawings(ink, em)
    _clear_boxes(ink, drawings)
    pictures += drawings
    lines = find_lines(ink, em)
    for at, table in enumerate(tables):
        # The edge of a table may have cut off letters, whose remains belong to it.
        for line in lines:
            box = line.box
            touches = abs(box.y1 - table.y2) <= 2 or abs(table.y1 - box.y2) <= 2
            if box.height < 0.8 * em and touches and table.x1 <= box.x1 and box.x2 <= table.x2:
                tables[at] = union([tables[at], box])
    tables += find_open_tables([line.box for line in lines if not line.box.inside_any(tables)], rules.horizontal, em)
    # What dotted rules join is no part of a table in its middle, but nothing that can be read either.
    tallest = max((table.height for table in tables), default=0)
    pictures += [line.box for line in lines if line.box.height > tallest and line.box.inside_any(tables)]
    items = [Item("text", line.box, line) for line in lines if not line.box.inside_any(tables)]
    items += [Item("table", box) for box in tables]
    items += [Item("picture", box) for box in pictures]
    # A tint behind a single row is a heading or a band of a table, and keeps nothing together.
    frames += [tint for tint in tints if tint.height > _BAND * em and not tint.inside_any(tables)]
    blocks = order_blocks(items, frames, gray.shape[0], em)
    return Segmentation(tuple(blocks), rules, em, scale, gray.shape)


def _clear_boxes(ink: NDArray[np.uint8], boxes: Sequence[Box]) -> None:
    """Clear boxes from an ink mask, with the soft edge around them."""
    for x1, y1, x2, y2 in boxes:
        ink[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = 0


def find_filled(gray: NDArray[np.uint8], em: float) -> tuple[list[Box], list[Box]]:
    """Find pictures and tinted boxes of a page, in pixels.

    Filled areas are those that survive an opening wider than any stroke. An area mostly of its most frequent level is a
    tint that may hold text; any other is a picture. A hollow area, such as the dark edges of a scan, does not include
    what it encloses: only its solid parts count.
    """
    coloured = ink_mask(gray, _FLAT).astype(np.uint8)
    wide = max(7, round(0.4 * em) * 2 + 1)
    filled = cv2.morphologyEx(coloured, cv2.MORPH_OPEN, np.ones((wide, wide), np.uint8))
    bridged = cv2.morphologyEx(filled, cv2.MORPH_CLOSE, np.ones((wide, wide), np.uint8))
    pictures, tints = [], []
    for box, area in _solid_parts(np.asarray(bridged, np.uint8), wide):
        if min(box.width, box.height) < 1.2 * em:
            continue
        part = gray[box.y1 : box.y2, box.x1 : box.x2]
        # Noise tears the pale band behind a row into pieces that are mostly print.
        is_pale = box.height < _BAND * em and abs(float(np.percentile(part, 75)) - paper_level(gray)) <= _PALE
        levels = grey_histogram(part)
        level = int(levels.argmax())
        same = levels[max(0, level - _FLAT) : level + _FLAT + 1].sum() / part.size
        # Print covers at most about a third of a tinted box; a screenshot has flat parts but no single background.
        if is_pale or (same > 0.62 and area > 0.5 * part.size):
            tints.append(box)
        elif max(box.width, box.height) >= 2 * em:
            pictures.append(box)
    return _merge_overlapping(pictures), tints


def _solid_parts(filled: NDArray[np.uint8], wide: int) -> Iterator[tuple[Box, int]]:
    """Yield boxes and areas of a mask's filled parts; hollow ones are opened wider."""
    _, parts, stats, _ = cv2.connectedComponentsWithStats(filled, connectivity=8)
    for part, (x, y, w, h, area) in enumerate(stats[1:].tolist(), start=1):
        if area >= _HOLLOW * w * h:
            yield Box(x, y, x + w, y + h), area
        elif (wider := 2 * wide + 1) < min(w, h):
            alone = (parts[y : y + h, x : x + w] == part).astype(np.uint8)
            opened = cv2.morphologyEx(alone, cv2.MORPH_OPEN, np.ones((wider, wider), np.uint8), borderValue=0)
            for box, inside in _solid_parts(np.asarray(opened, np.uint8), wider):
                yield Box(box.x1 + x, box.y1 + y, box.x2 + x, box.y2 + y), inside


def find_drawings(ink: NDArray[np.uint8], em: float) -> list[Box]:
    """Find icons and line drawings in an ink mask of 0 and 1.

    They are connected strokes larger than letters. Letters of a large title are as large, but have others of the same
    height beside them. A frame around much of the page, or a dark edge, is not a drawing: it is erased from the mask,
    and what it encloses stays.
    """
    _, strokes, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    height, width = ink.shape
    least = 2.2 * em
    large: list[Box] = []
    for stroke, (x, y, w, h, area) in enumerate(stats[1:].tolist(), start=1):
        # An edge runs along at least half of a side of the page.
        along = w >= width / 2 and (y == 0 or y + h == height)
        down = h >= height / 2 and (x == 0 or x + w == width)
        is_edge = min(w, h) <= least and (along or down)
        is_frame = False
        if not is_edge and w * h >= _FRAME_AREA * ink.size:
            # Nearly all strokes of a frame run along its sides.
            side_y, side_x = round(_FRAME_WIDTH * h), round(_FRAME_WIDTH * w)
            inner = strokes[y + side_y : y + h - side_y, x + side_x : x + w - side_x] == stroke
            is_frame = int(inner.sum()) < 0.02 * area
        if is_edge or is_frame:
            ink[strokes == stroke] = 0
        elif w > least and h > least:
            large.append(Box(x, y, x + w, y + h))
    drawings: list[Box] = []
    for box in large:
        for other in large:
            shared = min(box.y2, other.y2) - max(box.y1, other.y1)
            if other is not box and shared > 0.6 * max(box.height, other.height):
                break
        else:
            drawings.append(box)
    return _merge_overlapping(drawings)


def _merge_overlapping(boxes: list[Box]) -> list[Box]:
    """Join overlapping boxes until none overlap."""
    todo, done = list(boxes), []
    while todo:
        box = todo.pop()
        partners = [other for other in todo if box.overlaps(other)]
        if not partners:
            done.append(box)
            continue
        todo = [other for other in todo if other not in partners]
        todo.append(union([box, *partners]))
    return done


def order_blocks(items: list[Item], frames: list[Box], height: int, em: float) -> list[Segment]:
    """Order items into blocks by recursive XY-cut (Nagy and Seth, 1984).

    The page is `height` pixels high, its body text `em`. The contents of a frame stay together.
    """
    # Each item belongs to the smallest frame around it.
    for frame in sorted(frames, key=lambda box: box.width * box.height):
        inner = [item for item in items if item.box.inside(frame)]
        if inner:
            items = [item for item in items if not item.box.inside(frame)]
            items.append(Item("frame", union([frame, _around(inner)]), inner=tuple(inner)))
    rows = _rows(items)
    boxes = [*map(_around, rows)]
    # A running head or foot would bridge the gap between columns, so it is ordered by itself.
    start, end = 0, len(rows)
    if len(rows) > 1 and boxes[0].y2 < HEAD * height and boxes[1].y1 - boxes[0].y2 > 0.8 * em:
        start = 1
    if len(rows) > 1 and boxes[-1].y1 > FOOT * height and boxes[-1].y1 - boxes[-2].y2 > 0.8 * em:
        end -= 1
    blocks: list[Segment] = []
    for part in (rows[:start], rows[start:end], rows[end:]):
        if part:
            blocks += _order([*chain.from_iterable(part)], em)
    return blocks


def _around(parts: Sequence[Item] | Sequence[TextLine]) -> Box:
    return union([part.box for part in parts])


def _rows(items: Sequence[Item]) -> list[list[Item]]:
    """Group items that overlap vertically into rows, top to bottom."""
    rows: list[list[Item]] = []
    bottom = 0
    for item in sorted(items, key=lambda item: item.box.y1):
        if rows and item.box.y1 < bottom:
            rows[-1].append(item)
        else:
            rows.append([item])
        bottom = max(bottom, item.box.y2)
    return rows


def _order(items: Sequence[Item], em: float) -> list[Segment]:
    """Cut a group at a column gap, else at white rows, else nowhere."""
    if len(items) == 1 and items[0].kind != "text":
        item = items[0]
        return _order(item.inner, em) if item.kind == "frame" else [Segment(item.kind, item.box)]  # type: ignore[arg-type]
    blocks: list[Segment] = []
    if parts := _split_columns(items, em) or _split_bands(items, em):
        for part in parts:
            blocks += _order(part, em)
        return blocks
    for item in items:
        if item.kind != "text":
            blocks += _order([item], em)
    text = [item for item in items if item.line]
    rows: list[TextLine] = []
    for top, bottom in merge_intervals([(item.box.y1, item.box.y2) for item in text], 1):
        lines = [item.line for item in text if item.line and top <= item.box.y1 < bottom]
        stroke = sum(line.stroke * line.box.width for line in lines) / sum(line.box.width for line in lines)
        rows.append(TextLine(_around(lines), stroke))
    if rows:
        blocks.append(Segment("text", _around(rows), tuple(rows)))
    return sorted(blocks, key=lambda block: block.box.y1)


def _split_columns(items: Sequence[Item], em: float) -> list[list[Item]]:
    """Split at the widest column gap; return left and right, or nothing without a gap."""
    columns = merge_intervals([(item.box.x1, item.box.x2) for item in items], 1)
    gaps = [(right[0] - left[1], left[1]) for left, right in pairwise(columns)]
    for gap, x in sorted(gaps, reverse=True):
        left = [item for item in items if item.box.x2 <= x]
        right = [item for item in items if item.box.x2 > x]
        has_text, is_column = True, True
        for side in (left, right):
            lines = merge_intervals([(item.box.y1, item.box.y2) for item in side], 1)
            # A column is wide and has several lines; anything narrow is a bullet, a number or a term of a list.
            is_column = is_column and _around(side).width >= 8 * em and len(lines) >= 3
            has_text = has_text and any(item.kind == "text" for item in side)
        if has_text:
            is_gap = gap >= 1.3 * em and is_column and not _are_table_columns(left, right, em)
        else:
            is_gap = gap >= 0.3 * em and not _are_pairs(left, right)
        if is_gap:
            return [left, right]
    return []


def _are_pairs(left: list[Item], right: list[Item]) -> bool:
    """Return whether several boxes face one on the other side, like examples and results."""
    few = [item.box for item in left if item.kind != "text"]
    many = [item.box for item in right if item.kind != "text"]
    if len(many) < len(few):
        few, many = many, few
    facing = 0
    for box in few:
        facing += any(min(box.y2, b.y2) - max(box.y1, b.y1) > 0.6 * min(box.height, b.height) for b in many)
    return len(few) > 1 and facing == len(few)


def _are_table_columns(left: list[Item], right: list[Item], em: float) -> bool:
    """Return whether the sides are columns of an unruled table: aligned rows, mostly white."""
    lefts = np.array([item.box.middle[1] for item in left])
    rights = np.array([item.box.middle[1] for item in right])
    is_level = (np.abs(rights[:, None] - lefts) < 0.3 * em).any(axis=1)
    fill: list[float] = []
    for side in (left, right):
        width = _around(side).width
        fill += [item.box.width / width for item in side]
    return int(is_level.sum()) >= 0.8 * len(right) and float(np.mean(fill)) < 0.8


def _split_bands(items: Sequence[Item], em: float) -> list[list[Item]]:
    """Split at wide white rows, changes of size and around non-text; empty if none."""
    rows = _rows(items)
    if len(rows) < 2:
        return []
    boxes = [*map(_around, rows)]
    gaps = [below.y1 - above.y2 for above, below in pairwise(boxes)]
    limit = max(0.85 * em, 1.4 * float(np.median(gaps)))
    parts = [rows[0]]
    heights: list[int] = []
    is_text: list[bool] = []
    for row in rows:
        heights.append(max(item.box.height for item in row))
        is_text.append(all(item.kind == "text" for item in row))
    for at, (gap, below) in enumerate(zip(gaps, rows[1:], strict=True)):
        short, tall = sorted(heights[at : at + 2])
        differ = not all(is_text[at : at + 2]) or tall > 1.3 * max(short, 0.8 * em)
        if gap > limit or differ:
            parts.append(list(below))
        else:
            parts[-1] = [*parts[-1], *below]
    return parts if len(parts) > 1 else []
