"""Blocks of a page, labelled by size, weight and position."""

import cv2

from kopub.errors import UndecodableImage
from kopub.layout.cpu.segmentation import FOOT, HEAD, Segment, Segmentation, segment
from kopub.layout.ink import blank_reason, has_writing, readable_grey
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.states import Reason, State

_TASKS = {"table": Task.TABLE, "image": Task.SKIP}
"""Everything else is read as text, even running heads and page numbers, which cost next to nothing on a CPU."""


def detect_page(page: Page, speck: float) -> Layout:
    """Return the layout of one page, whose state says what is wrong with it."""
    try:
        gray, has_ink = readable_grey(page.image, keep_tints=True)
    except UndecodableImage as error:
        return Layout(page.page_id, error.state, str(error))
    if not has_ink or not has_writing(gray, speck):
        return Layout(page.page_id, State.BLANK, blank_reason(gray))
    try:
        page_parts = segment(gray)
    except cv2.error as error:
        return Layout(page.page_id, State.FAILED, Reason("the page cannot be segmented: {error}", error=error.err))
    height, width = gray.shape
    regions: list[Region] = []
    for block, label in zip(page_parts.blocks, label_blocks(page_parts), strict=True):
        # Shrinking cut off the soft edge of the letters; one more pixel on each side brings it back.
        x1, y1, x2, y2 = block.box
        grown = (x1 - 1, y1 - 1, x2 + 1, y2 + 1)
        x1, y1, x2, y2 = (edge / page_parts.scale for edge in grown)
        box = (max(0.0, x1), max(0.0, y1), min(float(width), x2), min(float(height), y2))
        regions.append(Region(len(regions), label, _TASKS.get(label, Task.TEXT), 1.0, box))
    if not regions:
        return Layout(page.page_id, State.FAILED, "the page has ink, but no text, table or picture was found")
    return Layout(page.page_id, State.OK, regions=tuple(regions))


LARGE = 1.25
"""Height relative to the body text from which a line is a heading; capitals and brackets stay below."""
BOLD = 1.22
"""Mean ink run relative to the body text from which a line is bold; regular faces differ by less than a tenth."""


def label_blocks(page: Segmentation) -> list[str]:
    """Return a label for each block; uncertain blocks are `text`."""
    rows: list[tuple[float, int]] = []
    for block in page.blocks:
        for row in block.rows:
            if 0.7 * page.em < row.box.height < 1.4 * page.em:
                rows.append((row.stroke, row.box.width))
    # The median ink run of lines of body height, weighted by their width.
    body_stroke, half = page.em / 8, sum(width for _, width in rows) / 2
    for stroke, width in sorted(rows):
        half -= width
        if half <= 0:
            body_stroke = stroke
            break
    return [_label(block, page, body_stroke) for block in page.blocks]


def _label(block: Segment, page: Segmentation, body_stroke: float) -> str:
    if block.kind != "text":
        return "table" if block.kind == "table" else "image"
    height, width = page.shape

    # A head or foot is an outermost row near an edge.
    if len(block.rows) == 1 and block.rows[0].box.height <= 1.4 * page.em:
        others = [other.box for other in page.blocks if other is not block]
        above = block.box.y2 < HEAD * height and not any(box.y2 <= block.box.y1 for box in others)
        below = block.box.y1 > FOOT * height and not any(box.y1 >= block.box.y2 for box in others)
        if above or below:
            margin = "header" if above else "footer"
            return "number" if block.box.width < 3 * page.em else margin

    # A caption is one or two rows directly above or below a picture or table, bold or on its axis.
    thinnest = min(row.stroke for row in block.rows)
    is_bold = thinnest > BOLD * body_stroke
    for other in page.blocks if len(block.rows) <= 2 else ():
        if other.kind == "text":
            continue
        gap = max(other.box.y1 - block.box.y2, block.box.y1 - other.box.y2)
        over = min(block.box.x2, other.box.x2) - max(block.box.x1, other.box.x1)
        off_axis = abs(block.box.middle[0] - other.box.middle[0])
        narrow = block.box.width < 0.9 * max(other.box.width, 10 * page.em)
        if 0 <= gap < 1.6 * page.em and over > 0 and (is_bold or (off_axis < page.em and narrow)):
            return "figure_title"

    tallest = max(block.rows, key=lambda row: row.box.height)
    if tallest.box.height < 0.92 * page.em and block.box.y1 >= 0.5 * height:
        for rule in page.rules.horizontal:
            # A footnote is small print under a short rule, low on the page.
            is_short = rule.y1 > 0.5 * height and rule.width < 0.6 * width
            if is_short and rule.y2 <= block.box.y1 + 2 and rule.x1 < block.box.x2 and rule.x2 > block.box.x1:
                return "footnote"

    # A formula is tall too, but its strokes are thin.
    is_large = tallest.box.height > LARGE * page.em and thinnest > 1.1 * body_stroke
    widest = max(other.box.width for other in page.blocks)
    is_title = is_large or (is_bold and tallest.box.width < 0.75 * widest)
    if not is_title or len(block.rows) > 2 or block.box.width < 2 * page.em:
        return "text"
    is_main = is_large and tallest.box.height > 1.6 * page.em and block.box.y2 < 0.5 * height
    return "doc_title" if is_main else "paragraph_title"
