"""Tables of documents: HTML as cells with spans, and as data."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kopub.boxes import Box
from kopub.documents.document import Block, BlockKind, BlockPart, Document
from kopub.texts.markup import defuse

if TYPE_CHECKING:
    import pandas as pd
    from bs4 import Tag


_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_ROWSPAN = re.compile(r'<t[dh] rowspan="(\d+)"')
_CAPTION = re.compile(r"<caption>.*?</caption>", re.DOTALL)
CONTINUED = re.compile(
    r"[(\[<〈（〔]\s*(?:계속|continued|cont\.?|cont['’]?d\.?)\s*[)\]>〉）〕]|(?:계속|continued)$", re.I
)
"""What a caption says of a table that continues on its page."""
_MOST_SPANNED = 100
"""Most rows or columns that a cell may span; a larger number comes from a model caught in a loop."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell, with the row and column of its upper left corner.

    Both count from 0; a span beyond the table is cut off.
    """

    row: int
    column: int
    rows: int
    columns: int
    text: str
    heading: bool


@dataclass(frozen=True, slots=True)
class TableGrid:
    """A table of `rows` times `columns`.

    A place that no cell covers is a gap.
    """

    rows: int
    columns: int
    cells: tuple[TableCell, ...]
    caption: str

    def row(self, at: int) -> tuple[TableCell, ...]:
        """Return the cells whose first row this is."""
        return tuple(cell for cell in self.cells if cell.row == at)

    @property
    def heading_rows(self) -> int:
        """The number of rows at the top that have headings alone."""
        rows = map(self.row, range(self.rows))
        return len([*takewhile(lambda cells: bool(cells) and all(cell.heading for cell in cells), rows)])


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row as it stands in a table's HTML."""

    html: str
    is_heading: bool
    """True if all of its cells are headings."""
    is_spanned: bool
    """True if a cell of a row above extends into it."""


def table_rows(table: str) -> list[TableRow]:
    """Return the rows of one table from `tables_and_text`, from top to bottom."""
    rows: list[TableRow] = []
    reach = 0
    for at, row in enumerate(_ROW.findall(table)):
        rows.append(TableRow(row, "<th" in row and "<td" not in row, at < reach))
        reach = max(reach, *(at + int(span) for span in _ROWSPAN.findall(row)), 0)
    return rows


def rows_of(table: str) -> str:
    """Return the rows of a table with their tags, without its caption."""
    return _CAPTION.sub("", table.removeprefix("<table>").removesuffix("</table>"))


def caption_of(table: str) -> str:
    """Return the caption of a table as HTML, empty without one."""
    caption = _CAPTION.search(table)
    return caption[0] if caption else ""


def without_rows(table: str, count: int) -> str:
    """Return a table without its first rows, whose cells span no other row."""
    return _ROW.sub("", table, count=count) if count else table


def grid_of(table: str) -> TableGrid:
    """Return the grid of one table from `tables_and_text`."""
    from bs4 import BeautifulSoup

    # An HTML parser resolves entities and spans; the plain one is enough for the form that `clean_tables` writes.
    parsed = BeautifulSoup(table, "html.parser")
    rows = parsed.find_all("tr")
    caption = parsed.find("caption")
    covered: set[tuple[int, int]] = set()
    cells: list[TableCell] = []
    for at, row in enumerate(rows):
        column = 0
        for cell in row.find_all(["td", "th"], recursive=False):
            while (at, column) in covered:
                column += 1
            high, wide = min(_span(cell, "rowspan"), len(rows) - at), _span(cell, "colspan")
            # A cell from a row above may block part of a wide one.
            wide = next((off for off in range(1, wide) if (at, column + off) in covered), wide)
            covered |= {(at + down, column + right) for down in range(high) for right in range(wide)}
            cells.append(TableCell(at, column, high, wide, _text(cell), cell.name == "th"))
            column += wide
    columns = max((cell.column + cell.columns for cell in cells), default=0)
    return TableGrid(len(rows), columns, tuple(cells), "" if caption is None else _text(caption))


def _text(tag: "Tag") -> str:
    for line_break in tag.find_all("br"):
        line_break.replace_with("\n")
    return "\n".join(" ".join(line.split()) for line in tag.get_text().split("\n")).strip()


def _span(cell: "Tag", name: str) -> int:
    """Return a span as `clean_tables` writes it."""
    return min(int(str(cell.get(name) or 1)), _MOST_SPANNED)


_FORMULA = re.compile(r"[=+\-@＝＋－＠\t\r](?![=+\-@]*$)")
"""The beginning of what a spreadsheet computes; signs alone are text to it."""
NUMBER = re.compile(
    r"(?P<sign>[-+−△]?)(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|0|[1-9][0-9]*)(?:\.(?P<part>[0-9]+))?(?P<percent>\s?%)?"
)


@dataclass(frozen=True, slots=True)
class DataTable:
    """A table of a document as data, whole where it spans pages.

    A cell's text is in every place that it spans. `columns` are the texts of the heading rows, one unique name for each
    column, or numbers from 1 if no row is marked as a heading. `number` counts from 1 in the document, `headings` are
    the titles above, `places` the regions that it was read from, in order. `grid` has the cells once each, those of the
    heading rows first.
    """

    doc_id: str
    number: int
    caption: str
    headings: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    places: tuple["RegionPlace", ...]
    grid: TableGrid

    @property
    def heading_rows(self) -> int:
        """The number of rows of the grid that name the columns."""
        return self.grid.heading_rows

    def to_csv(self) -> str:
        """Return the column names, if there are any, and the rows as CSV.

        It is that of RFC 4180, but with line feeds. A text that a spreadsheet would compute gets an apostrophe before
        it; numbers stay as they are.
        """
        lines = io.StringIO()
        head = [self.columns] if self.heading_rows else []
        writer = csv.writer(lines, lineterminator="\n")
        for row in [*head, *self.rows]:
            writer.writerow(
                [f"'{text}" if _FORMULA.match(text) and not NUMBER.fullmatch(text) else text for text in row]
            )
        return lines.getvalue()

    def to_parquet(self) -> bytes:
        """Return a Parquet file in which all values are texts."""
        values = [*zip(*self.rows, strict=True)] or [()] * len(self.columns)
        columns = [pa.array(column, pa.string()) for column in values]
        file = io.BytesIO()
        pq.write_table(pa.table(columns, names=list(self.columns)), file)
        return file.getvalue()

    def to_pandas(self) -> "pd.DataFrame":
        """Return a DataFrame in which all values are texts."""
        import pandas as pd

        return pd.DataFrame([list(row) for row in self.rows], columns=list(self.columns), dtype=str)


@dataclass(frozen=True, slots=True)
class RegionPlace:
    """A region that a text comes from: its page, index and box.

    The box is in parts of 1,000 of the upright page.
    """

    page_id: str
    page: int
    region: int
    bbox_2d: Box[int]


def places_of(document: Document, parts: Sequence[BlockPart]) -> tuple[RegionPlace, ...]:
    """Return the regions of the parts, each once, in order."""
    page_ids = {page.number: page.page_id for page in document.pages}
    regions = {(part.page, part.region.index): part for part in parts}.values()
    return tuple(RegionPlace(page_ids[part.page], part.page, part.region.index, part.region.box_2d) for part in regions)


def document_tables(document: Document, blocks: Sequence[Block]) -> Iterator[DataTable]:
    """Yield the tables of a document in order. `blocks` come from `structure_document`."""
    captions = captions_of(blocks)
    number = 0
    for at, (block, headings) in enumerate(zip(blocks, titles_above(blocks), strict=True)):
        if block.kind is not BlockKind.TABLE:
            continue
        number += 1
        # The parts of a table may be on several pages.
        first, *others = [grid_of(without_rows(part.text, part.repeated)) for part in block.parts]
        cells, height, width = [*first.cells], first.rows, first.columns
        for part in others:
            # A heading below the first part names no columns.
            cells += [replace(cell, row=cell.row + height, heading=False) for cell in part.cells]
            height += part.rows
            width = max(width, part.columns)
        grid = TableGrid(height, width, tuple(cells), first.caption)
        caption = blocks[captions[at]].text if not grid.caption and at in captions else grid.caption
        rows = [[""] * grid.columns for _ in range(grid.rows)]
        for cell in grid.cells:
            for down in range(cell.rows):
                for right in range(cell.columns):
                    rows[cell.row + down][cell.column + right] = cell.text
        names = zip(*rows[: grid.heading_rows], strict=True) if grid.heading_rows else [()] * grid.columns
        # Names of columns are made unique: an empty one becomes a number, and a repeated one gets `(2)`.
        columns: list[str] = []
        uses: Counter[str] = Counter()
        for place, name in enumerate(names, 1):
            chosen = base = " / ".join(dict.fromkeys(filter(None, name))) or str(place)
            while uses[chosen]:
                uses[base] += 1
                chosen = f"{base} ({uses[base]})"
            uses[chosen] += 1
            columns.append(chosen)
        data = tuple(map(tuple, rows[grid.heading_rows :]))
        places = places_of(document, block.parts)
        yield DataTable(document.doc_id, number, caption, headings, tuple(columns), data, places, grid)


def titles_above(blocks: Sequence[Block]) -> list[tuple[str, ...]]:
    """Return the titles above each block, the uppermost first.

    A title is not above itself.
    """
    above: list[tuple[int, str]] = []
    headings: list[tuple[str, ...]] = []
    for block in blocks:
        if block.kind is BlockKind.TITLE:
            above = [title for title in above if title[0] < block.level]
        headings.append(tuple(title for _, title in above))
        if block.kind is BlockKind.TITLE:
            above.append((block.level, defuse(" ".join(block.text.split()))))
    return headings


_REACH = 150
"""Greatest distance of a caption from its picture or table, in parts of 1,000 of the page."""
_NEIGHBOURS = 4
"""Most blocks between a caption and its picture or table."""


def captions_of(blocks: Sequence[Block]) -> dict[int, int]:
    """Map the position of each picture and table to that of its caption.

    The caption is the nearest one above or below, one that says `(continued)` last.
    """
    near: list[tuple[bool, float, int, int]] = []
    for at, block in enumerate(blocks):
        if block.kind is not BlockKind.CAPTION:
            continue
        own = block.parts[0].region.box_2d
        for other in range(max(0, at - _NEIGHBOURS), min(len(blocks), at + _NEIGHBOURS + 1)):
            if blocks[other].kind not in (BlockKind.PICTURE, BlockKind.TABLE):
                continue
            for part in blocks[other].parts:
                box = part.region.box_2d
                is_beside = part.page == block.page and min(own.x2, box.x2) > max(own.x1, box.x1)
                if is_beside and (distance := own.apart(box)[1]) <= _REACH:
                    near.append((CONTINUED.search(block.text) is not None, distance, other, at))
    captions: dict[int, int] = {}
    for _, _, floating, caption in sorted(near):
        if floating not in captions and caption not in captions.values():
            captions[floating] = caption
    return captions
