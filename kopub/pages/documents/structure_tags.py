"""Reads what a tagged PDF says about the structure of a page.

The module does not load a PDF library by itself.
"""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import isfinite
from typing import Any

from pypdfium2 import PdfPage, raw

from kopub.pages.documents.text_layer import Tag

_MOST_ELEMENTS, _DEEPEST = 20_000, 60
"""Elements of a page, and their depth, up to which its structure is read."""
_LONGEST_ROLE = 64
"""Bytes of the name of a role, in UTF-16."""
_MOST_SPANNED = 1_000
_CELLS = frozenset({"TD", "TH"})
_ENTRY = "LI"
_WHOLE = frozenset({*_CELLS, _ENTRY, "Code", "Caption"})
"""Roles whose parts are no blocks of their own."""
_BLOCKS = frozenset({*_WHOLE, "Title", "H", "H1", "H2", "H3", "H4", "H5", "H6", "P", "Note", "FENote", "BlockQuote"})


@dataclass(slots=True)
class _Grid:
    """A table whose rows are being counted."""

    number: int
    row: int = -1
    covered: set[tuple[int, int]] = field(default_factory=set)


class StructureTags:
    """The tags of a page, in their order, and the tag of each marked content."""

    def __init__(self, page: PdfPage) -> None:
        self.tags: list[Tag] = []
        self.by_content: dict[int, int] = {}
        self._tables = 0
        self._left = _MOST_ELEMENTS
        tree = raw.FPDF_StructTree_GetForPage(page.raw)
        if not tree:
            return
        try:
            for at in range(raw.FPDF_StructTree_CountChildren(tree)):
                if child := raw.FPDF_StructTree_GetChildAtIndex(tree, at):
                    self._read(child, -1, None, 0)
        finally:
            raw.FPDF_StructTree_Close(tree)
        if self._left < 0:
            # A part of the tags would tear what they hold together.
            self.tags, self.by_content = [], {}

    def _read(self, element: Any, tag: int, grid: _Grid | None, depth: int) -> None:
        """Read an element below the tag of its block, and its table."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return
        name = ctypes.create_string_buffer(_LONGEST_ROLE)
        size = raw.FPDF_StructElement_GetType(element, name, _LONGEST_ROLE)
        role = name.raw[: max(0, size - 2)].decode("utf-16-le", "replace") if size <= _LONGEST_ROLE else ""
        is_inner = tag >= 0 and self.tags[tag].role in _WHOLE
        in_cell = is_inner and self.tags[tag].role in _CELLS
        if role == "Table" and not in_cell:
            grid = _Grid(self._tables)
            self._tables += 1
        elif role == "TR" and grid is not None and not in_cell:
            grid.row += 1
        elif role in _BLOCKS and (not is_inner or (role == _ENTRY and not in_cell)):
            block = Tag(role)
            if role in _CELLS and grid is not None:
                # A cell has the next place of its row that no cell above or before it covers.
                rows, columns = map(int, _spans(element))
                column = 0
                while (grid.row, column) in grid.covered:
                    column += 1
                grid.covered.update(product(range(grid.row, grid.row + rows), range(column, column + columns)))
                block = Tag(role, grid.number, max(0, grid.row), column, rows, columns)
            tag = len(self.tags)
            self.tags.append(block)
        for at in range(raw.FPDF_StructElement_CountChildren(element)):
            content = raw.FPDF_StructElement_GetChildMarkedContentID(element, at)
            if content >= 0:
                self.by_content[content] = tag
            elif self._left > 0 and (child := raw.FPDF_StructElement_GetChildAtIndex(element, at)):
                self._read(child, tag, grid, depth + 1)

    def of(self, drawn: ctypes.c_void_p) -> int:
        """Return the number of the tag of an object of the page, or -1."""
        return self.by_content.get(raw.FPDFPageObj_GetMarkedContentID(drawn), -1) if self.by_content else -1


def _spans(element: Any) -> Iterator[float]:
    """Yield the rows and the columns that a cell spans."""
    number = ctypes.c_float()
    for name in (b"RowSpan", b"ColSpan"):
        span = 1.0
        for at in range(min(_MOST_SPANNED, raw.FPDF_StructElement_GetAttributeCount(element))):
            attribute = raw.FPDF_StructElement_GetAttributeAtIndex(element, at)
            value = raw.FPDF_StructElement_Attr_GetValue(attribute, name) if attribute else None
            if value and raw.FPDF_StructElement_Attr_GetNumberValue(value, number):
                span = number.value
        yield min(max(1.0, span), _MOST_SPANNED) if isfinite(span) else 1.0
