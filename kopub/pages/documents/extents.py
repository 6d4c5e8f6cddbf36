"""The size of a document by its XML, which may be far beyond its bytes."""

import zipfile
from collections.abc import Mapping
from typing import IO
from xml.parsers import expat

from kopub.errors import UndecodableImage

_MOST_CELLS = 5_000_000
"""Most cells to the last row and column of a sheet or table, empty ones among them."""
_MOST_LETTERS = 1 << 26
"""Most letters of a part, enough for more than 10,000 printed pages."""
_MOST_NESTED = 256
"""Most elements within one another; documents that people write have fewer than 60."""
_PIECE = 1 << 20
_MARKS = b"\xef\xbb\xbf\xfe\xff \t\r\n"
"""Bytes that may come before XML: blanks, and what says its charset."""


def require_small(archive: zipfile.ZipFile) -> None:
    """Raise a one-line `UndecodableImage` for what a converter would take hours to lay out."""
    for entry in archive.infolist():
        with archive.open(entry) as part:
            start = part.read(_PIECE)
            if start.replace(b"\0", b"").lstrip(_MARKS).startswith(b"<"):
                _XmlPart().read(start, part)


class _XmlPart:
    """An XML part while it is read, of Open XML, OpenDocument or HWPX."""

    def __init__(self) -> None:
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.buffer_size = 1 << 16
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = lambda text: self._add_letters(len(text))
        parser.EntityDeclHandler = self._refuse_entity
        self._depth = self._letters = 0
        self._row = self._column = self._last_row = self._last_column = 0
        self._has_empty_cells = True

    def read(self, start: bytes, rest: IO[bytes]) -> None:
        """Go through the part, up to where it is not well-formed: converters read no further."""
        try:
            while start:
                self._parser.Parse(start)
                start = rest.read(_PIECE)
        except expat.ExpatError:
            return

    def _start(self, tag: str, values: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise UndecodableImage("it nests more than {count} elements: no document needs that", count=_MOST_NESTED)
        match tag.rpartition(":")[2]:
            # Open XML
            case "row":
                self._row, self._column = _number(values, "r", self._row + 1), 0
            case "c":
                self._open_cell(values.get("r", ""))
            # OpenDocument
            case "spreadsheet":
                self._has_empty_cells = False  # they are repeated up to the end of each sheet
            case "table":
                self._row = self._column = self._last_row = self._last_column = 0
            case "table-row":
                self._row += _number(values, "table:number-rows-repeated", 1)
                self._column = 0
            case "table-cell" | "covered-table-cell":
                self._column += _number(values, "table:number-columns-repeated", 1)
                if self._has_empty_cells or "office:value-type" in values or "table:formula" in values:
                    self._reach(self._row, self._column)
            case "p":
                self._reach(self._row, self._column)
            case "s":
                self._add_letters(_number(values, "text:c", 0))
            # HWPX
            case "tbl":
                self._reach(_number(values, "rowCnt", 0), _number(values, "colCnt", 0))
            case "cellAddr":
                self._reach(_number(values, "rowAddr", 0) + 1, _number(values, "colAddr", 0) + 1)

    def _end(self, _: str) -> None:
        self._depth -= 1

    def _open_cell(self, place: str) -> None:
        """Note a cell of a sheet, which has a place or follows the last."""
        letters = place.rstrip("0123456789")
        column = 0
        for letter in letters[:3].upper():
            column = column * 26 + ord(letter) - ord("A") + 1
        self._column = column or self._column + 1
        self._reach(_number({"": place[len(letters) :]}, "", self._row), self._column)

    def _reach(self, row: int, column: int) -> None:
        self._last_row, self._last_column = max(self._last_row, row), max(self._last_column, column)
        if self._last_row * self._last_column > _MOST_CELLS:
            form = "a sheet or table reaches to row {row:,} and column {column:,}: clear its last cells, or divide it"
            raise UndecodableImage(form, row=self._last_row, column=self._last_column)

    def _add_letters(self, count: int) -> None:
        self._letters += count
        if self._letters > _MOST_LETTERS:
            raise UndecodableImage("it has more than {count:,} letters: divide it", count=_MOST_LETTERS)

    def _refuse_entity(self, *_: object) -> None:
        raise UndecodableImage("the file is damaged or no office document: its XML declares entities")


def _number(values: Mapping[str, str], name: str, otherwise: int) -> int:
    """Return an attribute as a number, of at most twelve digits."""
    text = values.get(name, "").strip()
    return int(text[:12]) if text.isascii() and text.isdecimal() else otherwise
