"""Labels of blocks by size, weight and place, from the PP-DocLayout set; what is not sure is `text`. Pure."""

from resources.layout.boxes import Box
from resources.layout.cpu.segmentation import Segmentation
from resources.layout.cpu.xycut import FOOT, HEAD, Block

LARGE = 1.25
"""Height against the body text from which a line is a heading; capitals and brackets stay below."""
BOLD = 1.22
"""Mean ink run against the body text from which a line is bold; regular faces differ by less than a tenth."""


def label_blocks(page: Segmentation) -> list[str]:
    """One label for each block of the page."""
    body = _body_stroke(page)
    return [_label(block, page, body) for block in page.blocks]


def _body_stroke(page: Segmentation) -> float:
    """Median ink run of the lines of body height, weighted by their width."""
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


def _label(block: Block, page: Segmentation, body_stroke: float) -> str:
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


def _title_label(block: Block, page: Segmentation, body_stroke: float, bold: bool) -> str | None:
    row = max(block.rows, key=lambda row: row.box.height)
    widest = max(other.box.width for other in page.blocks)
    if len(block.rows) > 2 or block.box.width < 2 * page.em:
        return None
    # A formula is high too, but thin.
    large = row.box.height > LARGE * page.em and min(row.stroke for row in block.rows) > 1.1 * body_stroke
    if large and row.box.height > 1.6 * page.em and block.box.y2 < 0.5 * page.shape[0]:
        return "doc_title"
    if large or (bold and row.box.width < 0.75 * widest):
        return "paragraph_title"
    return None


def _margin_label(block: Block, page: Segmentation) -> str | None:
    """Running heads and feet: the outermost row, near an edge of the page."""
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


def _is_caption(block: Block, page: Segmentation, bold: bool) -> bool:
    """One or two rows right above or below a picture or table, bold or on its axis."""
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


def _is_footnote(block: Block, page: Segmentation) -> bool:
    """Small print in the lower half of the page, under a short rule or right under other such print."""
    small = max(row.box.height for row in block.rows) < 0.92 * page.em
    if not small or block.box.y1 < 0.5 * page.shape[0]:
        return False
    return any(
        rule.y2 <= block.box.y1 + 2 and rule.y1 > 0.5 * page.shape[0] and rule.width < 0.6 * page.shape[1]
        and rule.x1 < block.box.x2 and rule.x2 > block.box.x1
        for rule in page.rules.horizontal
    )  # fmt: skip
