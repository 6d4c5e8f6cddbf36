"""Paragraphs and tables that go on over a page, joined where that is certain. Pure."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from resources.documents_out.document import Block, Kind, Part
from resources.documents_out.line_joints import (
    ENDED,
    ITEM,
    NUMBERED,
    are_printed,
    columns,
    is_broken_word,
    is_command,
    joint,
)
from resources.documents_out.table_grid import Grid, grid_of, is_table, tables_and_text
from resources.recognition.read_regions import ReadRegion

_RUNNING = frozenset({"text", "content", "abstract", "reference_content"})
_FULL = 0.9
"""Share of the longest line from which the last line of a paragraph is full: it may go on."""
_LONG = 40
"""Columns of a paragraph that a reader gave as one line, from which it may go on."""
_ALIKE = 25
"""Edges of a paragraph's parts differ by no more, in parts of 1,000 of the page; columns may be one of two."""
_FOOT, _HEAD = 80, 60
"""What may be left below the first part and above the second, in parts of 1,000."""
_SAME_EDGES = 15
"""Of the parts of a table, and of one column."""
_NEXT_LINE = 15
"""Between the lines of a paragraph, in parts of 1,000 of the page."""
_SENTENCE_END = re.compile(r"(?:[다요죠까음함됨임것]|있음|없음|바람)$")
"""Ends of sentences and of notes in keywords, which need no full stop."""
_GOES_ON = re.compile(r"[가-힣A-Za-z,]$")
_BEGINS = re.compile(r"[가-힣a-z(“‘]")


@dataclass(frozen=True, slots=True)
class Extent:
    """Where most pages of a document begin and end to be printed on, heads and feet left out; parts of 1,000."""

    top: int
    bottom: int


def extent_of(blocks: Sequence[Block]) -> Extent:
    """The extent of a document's pages, a tenth of them left out at each end."""
    tops: dict[int, int] = {}
    bottoms: dict[int, int] = {}
    for block in blocks:
        if block.kind in (Kind.FURNITURE, Kind.LOST):
            continue
        for part in block.parts:
            box = part.region.bbox_2d
            tops[part.page] = min(box[1], tops.get(part.page, box[1]))
            bottoms[part.page] = max(box[3], bottoms.get(part.page, box[3]))
    if not tops:
        return Extent(0, 1000)
    tenth = len(tops) // 10
    return Extent(sorted(tops.values())[tenth], sorted(bottoms.values())[-1 - tenth])


def joined(blocks: Sequence[Block], whole: Collection[int]) -> list[Block]:
    """The blocks, each paragraph and table that surely goes on as one.

    It goes on on the next page, or below what layout took for its end. `whole` are the pages of which every region was
    read; only they are joined. What stands between the parts (heads, feet and notes, on one page its pictures) comes
    behind the region of the second part, so that regions stay whole.
    """
    extent = extent_of(blocks)
    done: list[Block] = []
    between: list[Block] = []
    region: Part | None = None
    for block in blocks:
        if region is not None and (block.page, block.parts[0].region.index) != (region.page, region.region.index):
            done += between
            between, region = [], None
        at = _may_go_on(done, block)
        if at is not None and done[at].last_page in whole and block.page in whole:
            one = _as_one(done[at], block, replace(extent, bottom=_foot(done[at + 1 :], extent)))
            if one is not None:
                between = done[at + 1 :]
                done[at:] = [one]
                region = block.parts[0]
                continue
        done.append(block)
    return done + between


def _may_go_on(done: Sequence[Block], block: Block) -> int | None:
    """Where the block stands that this one may go on from: the last one, but for what may stand between."""
    if block.kind not in (Kind.TEXT, Kind.TABLE):
        return None
    for at in range(len(done) - 1, -1, -1):
        before = done[at]
        between_pages = before.kind is Kind.FURNITURE or (before.kind is Kind.FOOTNOTE and before.page < block.page)
        if between_pages or (before.kind is Kind.PICTURE and before.page == block.page):
            continue
        return at if before.last_page in (block.page, block.page - 1) else None
    return None


def _foot(between: Sequence[Block], extent: Extent) -> int:
    """Where the print of the page ends, above its notes."""
    notes = [block.parts[0].region.bbox_2d[1] for block in between if block.kind is Kind.FOOTNOTE]
    return min([extent.bottom, *notes])


def _as_one(first: Block, second: Block, extent: Extent) -> Block | None:
    """The two blocks as one; None where it is not certain."""
    above, below = first.parts[-1].region, second.parts[0].region
    if first.last_page == second.page:
        near = above is not below and _is_below(above, below)
    else:
        near = extent.bottom - above.bbox_2d[3] <= _FOOT and below.bbox_2d[1] - extent.top <= _HEAD
    if not near:
        return None
    if first.kind is second.kind is Kind.TABLE:
        return _one_table(first, second) if first.last_page < second.page else None
    return _one_paragraph(first, second)


def _one_paragraph(first: Block, second: Block) -> Block | None:
    running = {first.parts[-1].region.label, second.parts[0].region.label} <= _RUNNING
    if first.kind not in (Kind.TEXT, Kind.ITEM) or second.kind is not Kind.TEXT or not running:
        return None
    if not _goes_on(first.parts[-1], second.parts[0]):
        return None
    left, right = first.text, second.text
    if is_broken_word(left, right):
        ended = replace(first.parts[-1], text=first.parts[-1].text[:-1])
        return replace(first, parts=(*first.parts[:-1], ended, *second.parts))
    return replace(first, parts=(*first.parts, replace(second.parts[0], joint=joint(left, right)), *second.parts[1:]))


def _is_below(above: ReadRegion, below: ReadRegion) -> bool:
    """Whether the second region is the next line of the first one's column."""
    gap = below.bbox_2d[1] - above.bbox_2d[3]
    return abs(above.bbox_2d[0] - below.bbox_2d[0]) <= _SAME_EDGES and -_NEXT_LINE <= gap <= _NEXT_LINE


def _goes_on(first: Part, second: Part) -> bool:
    """Whether the paragraph at the foot of a page lacks its end, and the one on the next page its beginning."""
    end, begin = first.text.rstrip().rpartition("\n")[2], second.text.lstrip()
    if not _GOES_ON.search(end) or ENDED.search(end) or not _BEGINS.match(begin) or _SENTENCE_END.search(end):
        return False
    # `다.` is the end of a sentence whose word was broken, for the other part lacks it.
    is_entry = ITEM.match(begin) or (NUMBERED.match(begin) and not "가" <= begin[0] <= "힣")
    if is_entry or is_command(end) or is_command(begin):
        return False
    if end[-1].isascii() and not (begin[0].islower() or "가" <= begin[0] <= "힣"):
        return False
    return _are_columns(first.region, second.region) and _is_full(first.region, end)


def _are_columns(first: ReadRegion, second: ReadRegion) -> bool:
    """Whether the parts stand in one column, or in two of one width."""
    (left, _, right, _), (x1, _, x2, _) = first.bbox_2d, second.bbox_2d
    return abs(left - x1) <= _ALIKE or abs((right - left) - (x2 - x1)) <= _ALIKE


def _is_full(region: ReadRegion, end: str) -> bool:
    """Whether the last line of print runs to the end of the column, as far as the reader has told the lines apart."""
    lines = [line for line in (region.content or "").split("\n") if line.strip()]
    x1, y1, x2, y2 = region.bbox
    if are_printed(lines, x2 - x1, y2 - y1):
        return columns(lines[-1]) >= _FULL * max(map(columns, lines))
    return columns(end) >= _LONG


def _one_table(first: Block, second: Block) -> Block | None:
    """Two tables of equal columns and edges as one."""
    upper, lower = tables_and_text(first.parts[-1].text), tables_and_text(second.parts[0].text)
    if len(upper) != 1 or len(lower) != 1 or not is_table(upper[0]) or not is_table(lower[0]):
        return None
    (left, _, right, _), (x1, _, x2, _) = first.parts[-1].region.bbox_2d, second.parts[0].region.bbox_2d
    if abs(left - x1) > _SAME_EDGES or abs(right - x2) > _SAME_EDGES:
        return None
    above, below = grid_of(tables_and_text(first.parts[0].text)[0]), grid_of(lower[0])
    if above.columns != below.columns or below.columns < 2 or below.caption:
        return None
    repeated = below.rows > 1 and _heading(above) == _heading(below) is not None
    if not repeated and any(cell.heading for cell in below.row(0)):
        return None
    return replace(first, parts=(*first.parts, replace(second.parts[0], repeated=repeated), *second.parts[1:]))


def _heading(grid: Grid) -> tuple[str, ...] | None:
    """The texts of the first row where they can head columns: a text for each; None for another row."""
    cells = grid.row(0)
    if not all(cell.text and cell.rows == 1 for cell in cells):
        return None
    return tuple("".join(cell.text.split()) for cell in cells)
