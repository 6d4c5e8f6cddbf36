"""Regions, lines and cells of pages as formats of archives have them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from xml.etree import ElementTree

from kopub.boxes import Box
from kopub.documents.document import Document, DocumentPage
from kopub.documents.searchable_pdf import placed_lines
from kopub.documents.tables import TableCell, TableGrid, grid_of
from kopub.recognition.content import main_script, strip_fences
from kopub.recognition.regions import TextOrigin, pixel_box
from kopub.recognition.tables import is_table, tables_and_text
from kopub.states import State
from kopub.texts.markdown import TABLE_LABELS
from kopub.texts.markup import printable
from kopub.texts.regions import Region

_LANGUAGES = {"HANGUL": "ko", "HIRAGANA": "ja", "KATAKANA": "ja"}
"""The language of each script that only one language has."""


@dataclass(frozen=True, slots=True)
class ArchivedLine:
    """A line of a text, or a cell of a table if `cell` is set.

    The box is `estimated` unless it is that of the whole region: no reader gives places of lines.
    """

    text: str
    box: Box[int]
    estimated: bool
    cell: TableCell | None = None


@dataclass(frozen=True)
class Zone:
    """A region, or a table or the text beside it.

    `id` is unique on the page, `box` is in pixels; `grid` is set for a table, `box` estimated for a part.
    """

    id: str
    record: Region
    page: DocumentPage
    text: str
    box: Box[int]
    estimated: bool = False
    grid: TableGrid | None = None

    @property
    def language(self) -> str | None:
        """The language that the script of most letters tells, None if several have it."""
        return _LANGUAGES.get(main_script(self.text) or "")

    @property
    def remark(self) -> str:
        """Why it could not be read, or was read in doubt."""
        if self.record.state is State.FAILED:
            return f"could not be read: {self.record.reason}"
        return self.record.reason or ("not printed" if self.record.origin is TextOrigin.UNPRINTED else "")

    @cached_property
    def lines(self) -> list[ArchivedLine]:
        """The lines from top to bottom, or the cells of a table by row."""
        if self.grid is None:
            placed = placed_lines(self.text, self.box)
            guessed = self.estimated or len(placed) > 1
            return [ArchivedLine(line.text, _pixels(line.box, self.page), guessed) for line in placed]
        wide, high = self.box.width / self.grid.columns, self.box.height / self.grid.rows
        cells = []
        for cell in self.grid.cells:
            left, top = self.box.x1 + cell.column * wide, self.box.y1 + cell.row * high
            box = _pixels((left, top, left + cell.columns * wide, top + cell.rows * high), self.page)
            cells.append(ArchivedLine(cell.text, box, self.estimated or len(self.grid.cells) > 1, cell))
        return cells


def archived_regions(page: DocumentPage) -> Iterator[Zone]:
    """Yield the regions of a page in reading order."""
    for record in page.regions:
        content = "" if record.state is State.FAILED else well_formed(record.content or "").strip()
        box, name = _pixels(record.box, page), f"r{record.index}"
        if record.label not in TABLE_LABELS or "<table" not in content.lower():
            yield Zone(name, record, page, strip_fences(content), box)
            continue
        pieces: list[TableGrid | str] = []
        for piece in tables_and_text(content):
            if not is_table(piece):
                pieces.append(piece)
                continue
            grid = grid_of(piece)
            if grid.caption:
                pieces.append(grid.caption)
            if grid.cells:
                pieces.append(grid)
        pieces = pieces or [""]
        heights = [piece.rows if isinstance(piece, TableGrid) else piece.count("\n") + 1 for piece in pieces]
        step, above = record.box.height / sum(heights), 0
        for at, (piece, height) in enumerate(zip(pieces, heights, strict=True)):
            top = record.box.y1 + above * step
            above += height
            place = _pixels((record.box.x1, top, record.box.x2, top + height * step), page)
            grid = piece if isinstance(piece, TableGrid) else None
            text = "\n".join(cell.text for cell in grid.cells) if grid else str(piece)
            yield Zone(f"{name}_{at}" if at else name, record, page, text, place, len(pieces) > 1, grid)


def _pixels(box: tuple[float, float, float, float], page: DocumentPage) -> Box[int]:
    return pixel_box(box, max(page.width, 1), max(page.height, 1))


def well_formed(text: str) -> str:
    """Return a text of characters that XML allows."""
    return printable(text).encode("utf-8", "replace").decode()


def page_end(page: DocumentPage) -> str:
    """Return the state of a page, with its reason and doubts."""
    reasons = "; ".join([*([page.reason] if page.reason else []), *page.review.doubts])
    return well_formed(f"{page.state}: {reasons}" if reasons else page.state.value)


def page_confidence(page: DocumentPage) -> str | None:
    """Return the probability that the page's text is sound, None if nobody judged it."""
    return None if page.review.doubt is None else f"{1 - page.review.doubt:.3f}"


def image_name(document: Document, page: DocumentPage, folder: str = "") -> str:
    """Return the path of a page's picture from `folder`, or its id without one."""
    return well_formed(page.page_id) if page.image is None else f"{folder}{page.image.path}"


def xml_bytes(root: ElementTree.Element) -> bytes:
    ElementTree.indent(root)
    return ElementTree.tostring(root, "utf-8", xml_declaration=True) + b"\n"
