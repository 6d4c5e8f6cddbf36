"""Blocks of a page, labelled by size, weight and position."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import cv2
import numpy as np

from kopub.boxes import Box
from kopub.errors import UndecodableImage
from kopub.layout.cpu.formulas import find_formulas
from kopub.layout.cpu.segmentation import FOOT, HEAD, PageBlock, Segmentation, segment
from kopub.layout.ink import blank_reason, has_writing, readable_grey
from kopub.layout.regions import PageLayout, Region, Task
from kopub.pages.page import Page
from kopub.states import Reason, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TASKS = {"table": Task.TABLE, "display_formula": Task.FORMULA, "image": Task.SKIP, "chart": Task.SKIP}
"""Everything else is read as text, even running heads and page numbers, which cost next to nothing on a CPU."""


def detect_page(page: Page, speck: float) -> PageLayout:
    """Return the layout of one page, whose state says what is wrong with it."""
    try:
        gray, has_ink = readable_grey(page.image, keep_tints=True)
    except UndecodableImage as error:
        return PageLayout(page.page_id, error.state, str(error))
    if not has_ink or not has_writing(gray, speck):
        return PageLayout(page.page_id, State.BLANK, blank_reason(gray))
    try:
        boxes = list(_label_boxes(segment(gray), gray))
    except cv2.error as error:
        return PageLayout(page.page_id, State.FAILED, Reason("the page cannot be segmented: {error}", error=error.err))
    if not boxes:
        return PageLayout(page.page_id, State.FAILED, "the page has ink, but no text, table or picture was found")
    regions = (Region(index, label, _TASKS.get(label, Task.TEXT), 1.0, box) for index, (box, label) in enumerate(boxes))
    return PageLayout(page.page_id, State.OK, regions=tuple(regions))


def _label_boxes(
    page: Segmentation, gray: "NDArray[np.uint8]"
) -> Iterator[tuple[tuple[float, float, float, float], str]]:
    """Yield boxes in pixels of the full page with their labels, in reading order."""
    labels = label_blocks(page)
    formulas = {formula.blocks[0]: formula for formula in find_formulas(page, labels, gray)}
    inside = {place for formula in formulas.values() for place in formula.blocks}
    height, width = gray.shape
    for place, (block, label) in enumerate(zip(page.blocks, labels, strict=True)):
        if place in formulas:
            parts = formulas[place].parts
        elif place in inside:
            continue
        else:
            # Shrinking cut off the soft edge of the letters; one more pixel on each side brings it back.
            x1, y1, x2, y2 = block.box
            grown = (x1 - 1, y1 - 1, x2 + 1, y2 + 1)
            parts = ((tuple(edge / page.scale for edge in grown), label),)
        for (x1, y1, x2, y2), part in parts:
            yield (max(0.0, x1), max(0.0, y1), min(float(width), x2), min(float(height), y2)), part


LARGE = 1.25
"""Height relative to the body text from which a line is a heading; capitals and brackets stay below."""
BOLD = 1.22
"""Mean ink run relative to the body text from which a line is bold; regular faces differ by less than a tenth."""


def label_blocks(page: Segmentation) -> list[str]:
    """Return a label for each block; uncertain blocks are `text`."""
    body = _body_stroke(page)
    return [_label(block, page, body) for block in page.blocks]


def _body_stroke(page: Segmentation) -> float:
    """Return the median ink run of lines of body height, weighted by their width."""
    rows = sorted(
        (row.stroke, row.box.width)
        for block in page.blocks
        for row in block.rows
        if 0.7 * page.em < row.box.height < 1.4 * page.em
    )
    half = sum(width for _, width in rows) / 2
    for stroke, width in rows:
        half -= width
        if half <= 0:
            return stroke
    return page.em / 8


def _label(block: PageBlock, page: Segmentation, body_stroke: float) -> str:
    if block.kind != "text":
        return "table" if block.kind == "table" else "image"
    margin = _margin_label(block, page)
    if margin:
        return margin
    bold = min(row.stroke for row in block.rows) > BOLD * body_stroke
    if _is_caption(block, page, bold):
        return "figure_title"
    if _is_footnote(block, page):
        return "footnote"
    return _title_label(block, page, body_stroke, bold) or "text"


def _title_label(block: PageBlock, page: Segmentation, body_stroke: float, bold: bool) -> str | None:
    row = max(block.rows, key=lambda row: row.box.height)
    widest = max(other.box.width for other in page.blocks)
    if len(block.rows) > 2 or block.box.width < 2 * page.em:
        return None
    # A formula is tall too, but its strokes are thin.
    large = row.box.height > LARGE * page.em and min(row.stroke for row in block.rows) > 1.1 * body_stroke
    if large and row.box.height > 1.6 * page.em and block.box.y2 < 0.5 * page.shape[0]:
        return "doc_title"
    if large or (bold and row.box.width < 0.75 * widest):
        return "paragraph_title"
    return None


def _margin_label(block: PageBlock, page: Segmentation) -> str | None:
    """Return the label of a head or foot: an outermost row near an edge."""
    height = page.shape[0]
    if len(block.rows) != 1 or block.rows[0].box.height > 1.4 * page.em:
        return None
    others = [other.box for other in page.blocks if other is not block]
    above = block.box.y2 < HEAD * height and not any(box.y2 <= block.box.y1 for box in others)
    below = block.box.y1 > FOOT * height and not any(box.y1 >= block.box.y2 for box in others)
    if not (above or below):
        return None
    if block.box.width < 3 * page.em:
        return "number"
    return "header" if above else "footer"


def _is_caption(block: PageBlock, page: Segmentation, bold: bool) -> bool:
    """Return whether a block is a caption.

    A caption is one or two rows directly above or below a picture or table, bold or on its axis.
    """
    if len(block.rows) > 2:
        return False
    for other in page.blocks:
        if other.kind == "text":
            continue
        gap = max(other.box.y1 - block.box.y2, block.box.y1 - other.box.y2)
        over = min(block.box.x2, other.box.x2) - max(block.box.x1, other.box.x1)
        off_axis = abs(_middle(block.box) - _middle(other.box))
        narrow = block.box.width < 0.9 * max(other.box.width, 10 * page.em)
        if 0 <= gap < 1.6 * page.em and over > 0 and (bold or (off_axis < page.em and narrow)):
            return True
    return False


def _middle(box: Box) -> float:
    return (box.x1 + box.x2) / 2


def _is_footnote(block: PageBlock, page: Segmentation) -> bool:
    """Return whether a block is small print under a short rule, low on the page."""
    small = max(row.box.height for row in block.rows) < 0.92 * page.em
    if not small or block.box.y1 < 0.5 * page.shape[0]:
        return False
    return any(
        rule.y2 <= block.box.y1 + 2 and rule.y1 > 0.5 * page.shape[0] and rule.width < 0.6 * page.shape[1]
        and rule.x1 < block.box.x2 and rule.x2 > block.box.x1
        for rule in page.rules.horizontal
    )  # fmt: skip
