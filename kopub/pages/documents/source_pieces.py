"""The pieces of office files, as docling's readers and LibreOffice's cells give them.

The readers are used directly: docling's own converter loads models.
"""

import os
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from kopub.pages.documents.pieces import BLANK, CHART, TABLE, Piece, PieceCell
from kopub.pages.documents.word_file import as_printed

if TYPE_CHECKING:
    from docling_core.types.doc.document import DoclingDocument
    from docling_core.types.doc.items.table.table_data import TableData

_LABELS = {
    "title": "doc_title",
    "section_header": "paragraph_title",
    "caption": "figure_title",
    "footnote": "footnote",
}
"""Labels of regions by docling's; all others are text."""
_CODE, _NOTE = "algorithm", "aside_text"
_MODELS = ("torch", "transformers")


def read_pieces(name: str, content: bytes) -> list[Piece]:
    """Return the pieces of a DOCX, PPTX or HTML file, in order.

    Hidden text, comments and formulas are left out, and so is a paragraph with a formula, which is printed in other
    signs. Raises what docling raises.
    """
    # docling loads models' libraries if they are installed, and starts LibreOffice for some pictures if it finds it.
    loaded = {model: sys.modules[model] for model in _MODELS if model in sys.modules}
    sys.modules.update(dict.fromkeys(_MODELS))  # pyright: ignore[reportArgumentType, reportCallIssue]
    path, os.environ["PATH"] = os.environ.get("PATH", os.defpath), ""
    try:
        from docling.backend.html_backend import HTMLDocumentBackend
        from docling.backend.mspowerpoint_backend import MsPowerpointDocumentBackend
        from docling.backend.msword_backend import MsWordDocumentBackend
        from docling.datamodel.base_models import InputFormat
        from docling.datamodel.document import InputDocument

        kind, reader = {
            ".docx": (InputFormat.DOCX, MsWordDocumentBackend),
            ".pptx": (InputFormat.PPTX, MsPowerpointDocumentBackend),
        }.get(PurePath(name).suffix, (InputFormat.HTML, HTMLDocumentBackend))
        if kind is InputFormat.DOCX:
            content = as_printed(content)
        opened = InputDocument(BytesIO(content), kind, reader, filename=name)
        document: DoclingDocument = opened._backend.convert()  # pyright: ignore[reportAttributeAccessIssue]
        if kind is InputFormat.HTML:
            # A web page prints its head and foot once; docling takes all before the first title for a head.
            for item in (*document.groups, *document.texts, *document.tables):
                if item.content_layer == "furniture":
                    item.content_layer = document.body.content_layer
        return list(_Pieces(document))
    finally:
        # Whatever else runs in this process may need them.
        for model in _MODELS:
            del sys.modules[model]
        sys.modules.update(loaded)
        os.environ["PATH"] = path


class _Pieces:
    """The pieces of a docling document, in order."""

    def __init__(self, document: "DoclingDocument") -> None:
        self._document = document
        self._slides: dict[int, int] = {}
        """The numbers of the slides that are shown, by docling's numbers of pages."""
        self._running: dict[str, str] = {}
        """The labels of running heads and feet, by docling's references."""
        for group in document.groups:
            if group.name.startswith("slide-") and _is_shown(group):
                self._slides[int(group.name.removeprefix("slide-")) + 1] = len(self._slides)
            if group.content_layer == "furniture":
                label = "footer" if "footer" in group.name else "header"
                self._running |= {child.cref: label for child in group.children}

    def __iter__(self) -> Iterator[Piece]:
        for item in self._below(self._document.body):
            page = item.prov[0].page_no if getattr(item, "prov", None) else 0
            if self._slides and page not in self._slides:
                continue
            yield from self._of(item, self._slides.get(page))

    def _below(self, node: Any) -> Iterator[Any]:
        """Yield the items below a node, except those within tables and running texts."""
        for child in node.children:
            item = child.resolve(self._document)
            if item.label == "comment_section":
                continue
            is_whole = item.label in ("table", "inline")
            is_kept = _is_shown(item) or item.content_layer == "notes" or item.self_ref in self._running
            is_kept |= item.label == "footnote"
            if is_whole or (hasattr(item, "prov") and is_kept):
                yield item
            if not is_whole:
                yield from self._below(item)

    def _of(self, item: Any, slide: int | None) -> Iterator[Piece]:
        for caption in getattr(item, "captions", ()):
            if caption.resolve(self._document).parent.cref == item.self_ref:
                yield Piece.of("figure_title", caption.resolve(self._document).text, slide)
        if item.self_ref in self._running:
            is_table = item.label == "table"
            texts = [cell.text for cell in item.data.table_cells] if is_table else [getattr(item, "text", "")]
            yield from (Piece.of(self._running[item.self_ref], text) for text in texts if text.strip())
        elif item.label == "table":
            yield Piece(TABLE, self._cells(item.data), slide)
        elif item.label == "inline":
            parts = [part for part in self._below(item) if _is_shown(part)]
            if parts and all(part.label != "formula" for part in parts):
                yield Piece.of("text", BLANK.join(part.text for part in parts), slide)
        elif item.label in ("picture", "chart"):
            chart = item.meta and item.meta.tabular_chart
            if chart:
                box = None
                if item.prov:
                    # The place on the slide, in shares of it from the top.
                    size = self._document.pages[item.prov[0].page_no].size
                    place = item.prov[0].bbox.to_top_left_origin(size.height)
                    top, bottom = sorted((place.t, place.b))
                    box = place.l / size.width, top / size.height, place.r / size.width, bottom / size.height
                yield Piece(CHART, self._cells(chart.chart_data), slide, box, printed=False)
        elif item.label == "code":
            yield Piece.of(_CODE, item.text, slide)
        elif item.content_layer == "notes":
            yield Piece(_NOTE, (PieceCell(0, 0, 1, 1, item.text),), slide, printed=False)
        elif item.label != "formula" and item.text.strip():
            yield Piece.of(_LABELS.get(item.label, "text"), item.text, slide, getattr(item, "level", 1))

    def _cells(self, data: "TableData") -> tuple[PieceCell, ...]:
        cells = [
            PieceCell(
                cell.start_row_offset_idx,
                cell.start_col_offset_idx,
                cell.end_row_offset_idx - cell.start_row_offset_idx,
                cell.end_col_offset_idx - cell.start_col_offset_idx,
                self._text(cell),
            )
            for cell in data.table_cells
        ]
        return tuple(sorted(cells, key=lambda cell: (cell.row, cell.column)))

    def _text(self, cell: Any) -> str:
        """Return the text of a cell, and that of the tables in it."""
        inner = cell.ref.resolve(self._document) if getattr(cell, "ref", None) else None
        texts: list[str] = [cell.text.strip()]
        for item in self._below(inner) if inner is not None else ():
            if item.label == "table":
                texts += map(self._text, item.data.table_cells)
        return "\n".join(filter(None, texts))


def _is_shown(item: Any) -> bool:
    return item.content_layer == "body"
