"""Tables of documents as CSV and XLSX, in which no text is a formula."""

import codecs
import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from openpyxl import Workbook
from openpyxl.styles import Alignment, Font
from openpyxl.utils import get_column_letter

from kopub.documents.joins import columns
from kopub.documents.tables import NUMBER, DataTable

CSV_START = codecs.BOM_UTF8
"""The beginning of a CSV file that spreadsheets read as UTF-8."""
_MOST_DIGITS = 15
"""Digits of a number that a spreadsheet keeps."""
_LONGEST_CELL, _LONGEST_NAME, _WIDEST = 32_767, 31, 60
_UNNAMED = re.compile(r"[\[\]:*?/\\]|^'+|'+$")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True, slots=True)
class SheetNumber:
    """A number as a spreadsheet holds it, and the format that shows it as printed."""

    value: float
    number_format: str


def number_of(text: str) -> SheetNumber | None:
    """Return the number that a cell's text is beyond doubt, or None.

    Numbers in brackets, with `▲`, with leading zeros or too many digits are texts.
    """
    number = NUMBER.fullmatch(text)
    if number is None:
        return None
    whole, part = number["whole"].replace(",", ""), number["part"] or ""
    if len(whole + part) > _MOST_DIGITS:
        return None
    value = Decimal(f"{whole}.{part}" if part else whole) / (100 if number["percent"] else 1)
    shown = ("#,##0" if "," in number["whole"] else "0") + (f".{'0' * len(part)}" if part else "")
    if number["percent"]:
        shown += number["percent"]
    match number["sign"]:
        case "":
            return SheetNumber(float(value), shown)
        case "+":
            return SheetNumber(float(value), f"+{shown};-{shown}")
        case sign:
            return SheetNumber(-float(value), f'{shown};"{sign}"{shown}')


def tables_workbook(tables: Sequence[DataTable]) -> bytes:
    """Return an XLSX file with a sheet for each table, equal for equal tables.

    Merged cells are merged; numbers are numbers, shown as they were printed.
    """
    book = Workbook()
    book.remove(book.worksheets[0])
    for table, name in zip(tables, sheet_names(tables), strict=True):
        sheet = book.create_sheet(name)
        widths = [0] * table.grid.columns
        for cell in table.grid.cells:
            text = cell.text.encode("utf-8", "replace").decode()
            number = None if cell.row < table.heading_rows else number_of(text)
            place = sheet.cell(cell.row + 1, cell.column + 1)
            place.value = number.value if number else text[:_LONGEST_CELL]
            if number:
                place.number_format = number.number_format
            else:
                place.data_type = "s"
            if cell.row < table.heading_rows:
                place.font = Font(bold=True)
            place.alignment = Alignment(wrap_text="\n" in text or columns(text) > _WIDEST, vertical="top")
            if cell.rows > 1 or cell.columns > 1:
                sheet.merge_cells(
                    start_row=place.row,
                    start_column=place.column,
                    end_row=cell.row + cell.rows,
                    end_column=cell.column + cell.columns,
                )
            if cell.columns == 1:
                widths[cell.column] = max(widths[cell.column], *map(columns, text.split("\n")))
        for at, width in enumerate(widths, 1):
            sheet.column_dimensions[get_column_letter(at)].width = min(width, _WIDEST) + 2
    file = io.BytesIO()
    book.save(file)
    # Without the time at which they were made, equal tables are equal files.
    undated = io.BytesIO()
    with zipfile.ZipFile(file) as dated, zipfile.ZipFile(undated, "w") as archive:
        for name in dated.namelist():
            data = dated.read(name)
            data = _TIME.sub(b"2000-01-01T00:00:00Z", data) if name == "docProps/core.xml" else data
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return undated.getvalue()


def sheet_names(tables: Sequence[DataTable]) -> list[str]:
    """Return the captions as names of sheets, all different."""
    names: list[str] = []
    for table in tables:
        base = _UNNAMED.sub("", " ".join(table.caption.split())).strip()[:_LONGEST_NAME].rstrip("' ")
        name = base = base if base and base.lower() != "history" else f"Table {table.number}"
        number = 1
        while name.lower() in map(str.lower, names):
            number += 1
            name = f"{base[: _LONGEST_NAME - len(f' ({number})')]} ({number})"
        names.append(name)
    return names
