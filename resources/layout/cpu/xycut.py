"""Reading order by recursive XY-cut (Nagy and Seth, 1984): columns first, then rows of white. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from resources.layout.boxes import Box, spans, union
from resources.layout.lines import Line

HEAD, FOOT = 0.09, 0.88
"""Running heads end above, feet begin below these shares of the height of the page."""

Kind = Literal["text", "table", "picture"]


@dataclass(frozen=True, slots=True)
class Block:
    """`rows` are the lines of a text block, top to bottom; parts of one row are joined."""

    kind: Kind
    box: Box
    rows: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A line (a "text" item has one), a table, a picture, or a frame with the items inside it."""

    kind: Literal["text", "table", "picture", "frame"]
    box: Box
    line: Line | None = None
    inner: tuple["Item", ...] = ()


def in_reading_order(items: list[Item], frames: list[Box], height: int, em: float) -> list[Block]:
    """Blocks of a page of `height` pixels with body text of `em` pixels; what a frame holds stays together."""
    head, body, foot = _peeled(_nested(items, frames), height, em)
    return [block for part in (head, body, foot) if part for block in _ordered(part, em)]


def _nested(items: list[Item], frames: list[Box]) -> list[Item]:
    """Items put into the smallest frame around them; a frame with nothing in it is dropped."""
    for frame in sorted(frames, key=lambda box: box.width * box.height):
        inner = [item for item in items if item.box.inside(frame)]
        if inner:
            items = [item for item in items if not item.box.inside(frame)]
            items.append(Item("frame", union([frame, *(item.box for item in inner)]), inner=tuple(inner)))
    return items


def _peeled(items: list[Item], height: int, em: float) -> tuple[list[Item], list[Item], list[Item]]:
    """Running head, body and foot: the rows near the edges would otherwise close the gap between columns."""
    rows = _rows(items)
    head = foot = 0
    if len(rows) > 1 and _bottom(rows[0]) < HEAD * height and _top(rows[1]) - _bottom(rows[0]) > 0.8 * em:
        head = 1
    if len(rows) > 1 and _top(rows[-1]) > FOOT * height and _top(rows[-1]) - _bottom(rows[-2]) > 0.8 * em:
        foot = 1
    body = [item for row in rows[head : len(rows) - foot] for item in row]
    return rows[0] if head else [], body, rows[-1] if foot else []


def _top(row: list[Item]) -> int:
    return min(item.box.y1 for item in row)


def _bottom(row: list[Item]) -> int:
    return max(item.box.y2 for item in row)


def _rows(items: Sequence[Item]) -> list[list[Item]]:
    """Items that share some height, top to bottom."""
    rows: list[list[Item]] = []
    bottom = 0
    for item in sorted(items, key=lambda item: item.box.y1):
        if rows and item.box.y1 < bottom:
            rows[-1].append(item)
        else:
            rows.append([item])
        bottom = max(bottom, item.box.y2)
    return rows


def _ordered(items: Sequence[Item], em: float) -> list[Block]:
    """Recursive XY-cut: rows of white across the group, else a column gap, else one block."""
    if len(items) == 1 and items[0].kind != "text":
        item = items[0]
        return _ordered(item.inner, em) if item.kind == "frame" else [Block(item.kind, item.box)]  # type: ignore[arg-type]
    parts = _columns(items, em) or _bands(items, em)
    if parts:
        return [block for part in parts for block in _ordered(part, em)]
    solid = [item for item in items if item.kind != "text"]
    text = [item for item in items if item.kind == "text"]
    blocks = [block for item in solid for block in _ordered([item], em)]
    return sorted([*blocks, *([_text_block(text)] if text else [])], key=lambda block: block.box.y1)


def _columns(items: Sequence[Item], em: float) -> list[list[Item]]:
    """Left and right of the widest column gap, or nothing."""
    gaps = [
        (right[0] - left[1], left[1])
        for left, right in pairwise(spans([(item.box.x1, item.box.x2) for item in items], 1))
    ]
    for gap, x in sorted(gaps, reverse=True):
        left = [item for item in items if item.box.x2 <= x]
        right = [item for item in items if item.box.x2 > x]
        if _is_column_gap(gap, left, right, em):
            return [left, right]
    return []


def _is_column_gap(gap: int, left: list[Item], right: list[Item], em: float) -> bool:
    boxes = [union([item.box for item in side]) for side in (left, right)]
    if all(item.kind != "text" for item in left) or all(item.kind != "text" for item in right):
        return gap >= 0.3 * em and not _are_pairs(left, right)
    lines = [len(spans([(item.box.y1, item.box.y2) for item in side], 1)) for side in (left, right)]
    # A column is wide and has several lines; what is narrow is a bullet, a number or a term of a list.
    if gap < 1.3 * em or min(box.width for box in boxes) < 8 * em or min(lines) < 3:
        return False
    return not _are_table_columns(left, right, em)


def _are_pairs(left: list[Item], right: list[Item]) -> bool:
    """Whether several boxes on one side each stand beside one on the other: examples with their results, row by row."""
    solid = [[item.box for item in side if item.kind != "text"] for side in (left, right)]
    few, many = sorted(solid, key=len)
    return len(few) > 1 and all(
        any(min(box.y2, other.y2) - max(box.y1, other.y1) > 0.6 * min(box.height, other.height) for other in many)
        for box in few
    )


def _are_table_columns(left: list[Item], right: list[Item], em: float) -> bool:
    """Whether the sides are columns of an unruled table: rows at the same heights that do not fill their column."""
    middles = [(item.box.y1 + item.box.y2) / 2 for item in left]
    level = [any(abs((item.box.y1 + item.box.y2) / 2 - y) < 0.3 * em for y in middles) for item in right]
    fill = [item.box.width / union([other.box for other in side]).width for side in (left, right) for item in side]
    return sum(level) >= 0.8 * len(right) and float(np.mean(fill)) < 0.8


def _bands(items: Sequence[Item], em: float) -> list[list[Item]]:
    """Groups split at wide white rows, at a change of size and around everything that is no text; or nothing."""
    rows = _rows(items)
    if len(rows) < 2:
        return []
    boxes = [union([item.box for item in row]) for row in rows]
    gaps = [below.y1 - above.y2 for above, below in pairwise(boxes)]
    limit = max(0.85 * em, 1.4 * float(np.median(gaps)))
    parts = [rows[0]]
    for gap, above, below in zip(gaps, rows, rows[1:], strict=False):
        if gap > limit or _differ(above, below, em):
            parts.append(list(below))
        else:
            parts[-1] = [*parts[-1], *below]
    return parts if len(parts) > 1 else []


def _differ(above: list[Item], below: list[Item], em: float) -> bool:
    if any(item.kind != "text" for item in (*above, *below)):
        return True
    tall, short = (max(item.box.height for item in row) for row in (above, below))
    return max(tall, short) > 1.3 * max(min(tall, short), 0.8 * em)


def _text_block(items: Sequence[Item]) -> Block:
    rows = []
    for top, bottom in spans([(item.box.y1, item.box.y2) for item in items], 1):
        lines = [item.line for item in items if item.line and top <= item.box.y1 < bottom]
        stroke = sum(line.stroke * line.box.width for line in lines) / sum(line.box.width for line in lines)
        rows.append(Line(union([line.box for line in lines]), stroke))
    return Block("text", union([row.box for row in rows]), tuple(rows))
