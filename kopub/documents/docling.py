"""Documents as DoclingDocuments, which docling, LangChain, LlamaIndex and Haystack read."""

import json
import re
from collections.abc import Sequence
from mimetypes import guess_type
from pathlib import Path, PurePosixPath
from typing import Any

from docling_core.types.doc import (
    BoundingBox,
    ContentLayer,
    CoordOrigin,
    DescriptionMetaField,
    DocItemLabel,
    DoclingDocument,
    DocumentOrigin,
    FloatingItem,
    FloatingMeta,
    ImageRef,
    KeywordsMetaField,
    ListGroup,
    ListItem,
    MoleculeMetaField,
    PictureClassificationMetaField,
    PictureClassificationPrediction,
    PictureMeta,
    ProvenanceItem,
    Size,
    TableCell,
    TableData,
    TabularChartMetaField,
)

from kopub.documents.document import Block, BlockKind, BlockPart, Document
from kopub.documents.headings import is_named
from kopub.documents.tables import TableGrid, captions_of, grid_of
from kopub.figures.figure import FigureNote
from kopub.recognition.tables import is_table, tables_and_text
from kopub.states import LOST
from kopub.texts.markup import defuse, inert_latex

# docling-core exports its types from this package without listing them.
# pyright: reportPrivateImportUsage=false


_LABELS = {
    "reference_content": "reference",
    "footnote": "footnote",
    "vision_footnote": "footnote",
    "header": "page_header",
    "header_image": "page_header",
    "footer": "page_footer",
    "footer_image": "page_footer",
    "number": "page_footer",
}
"""docling's label for each layout label; any other text is `text`."""
_DPI = 72
"""docling requires a value, and the page's own is not known."""


def document_json(document: Document, blocks: Sequence[Block]) -> str:
    """Return the blocks as the JSON of a DoclingDocument.

    Every item has the page and box of its region, in pixels from the upper left corner of the upright page; an item
    that spans pages has the places of all its parts. A table is one item per page. A model's note on a picture or
    table is in its `meta`. A list entry in another is in its list; its sign is its `marker`. A link in a text leads to
    the web, or its bracket is escaped; so is the sign before a picture. Running heads, feet and page numbers are in the
    layer `furniture`, and the layer `notes` says what could not be read. The hash of the origin is that of the pages'
    images.
    """
    docling = _Builder(document).build(blocks)
    return json.dumps(docling.export_to_dict(), ensure_ascii=False, indent=1) + "\n"


class _Builder:
    """A builder that adds a document's blocks to a DoclingDocument one by one."""

    def __init__(self, document: Document) -> None:
        self._document = document
        suffix = PurePosixPath(document.doc_id).suffix.lower()
        origin = DocumentOrigin(
            mimetype="application/pdf" if suffix == ".pdf" else "image/png",
            binary_hash=document.fingerprint,
            filename=document.name + (suffix if suffix == ".pdf" else ""),
        )
        self._docling: DoclingDocument = DoclingDocument(name=document.name, origin=origin)
        for page in document.pages:
            size = Size(width=page.width, height=page.height)
            image = None
            if page.image is not None:
                mimetype = guess_type(page.image.path)[0] or "image/png"
                image = ImageRef(mimetype=mimetype, dpi=_DPI, size=size, uri=Path(page.image.path))
            self._docling.add_page(page.number, size, image)
        self._lists: list[tuple[int, ListGroup, ListItem]] = []
        """The list of each level that the next entry may belong to, and its last entry."""
        self._is_titled = False

    def build(self, blocks: Sequence[Block]) -> DoclingDocument:
        captions = captions_of(blocks)
        linked = set(captions.values())
        first = next((block for block in blocks if block.kind is BlockKind.TITLE), None)
        self._is_titled = first is not None and is_named(blocks, first)
        for at, block in enumerate(blocks):
            if block.kind not in (BlockKind.ITEM, BlockKind.FURNITURE):
                self._lists.clear()
            if at in linked:
                continue
            texts, tables = len(self._docling.texts), len(self._docling.tables)
            floating = self._add(block)
            if not block.is_printed:
                for item in (*self._docling.texts[texts:], *self._docling.tables[tables:]):
                    item.content_layer = ContentLayer.NOTES
            if at in captions:
                caption = blocks[captions[at]]
                self._caption(floating[0], caption.text, self._provs(caption)[0])
        for page in self._document.pages:
            if page.state in LOST:
                whole = self._place(page.number, (0, 0, page.width, page.height), (0, 0))
                line = f"Page {page.number} could not be read ({page.state}): {page.reason}"
                self._docling.add_text(DocItemLabel.TEXT, line, prov=whole, content_layer=ContentLayer.NOTES)
        return self._docling

    def _add(self, block: Block) -> list[FloatingItem]:
        """Add a block, and return the items that a caption may belong to."""
        docling, text, prov = self._docling, defuse(block.text), self._provs(block)
        match block.kind:
            case BlockKind.TITLE if block.level == 1 and self._is_titled:
                item = docling.add_title(text, prov=prov[0])
            case BlockKind.TITLE:
                item = docling.add_heading(text, level=max(1, block.level - self._is_titled), prov=prov[0])
            case BlockKind.ITEM:
                item = self._entry(block, prov[0])
            case BlockKind.CODE:
                item = docling.add_code(text, prov=prov[0])
            case BlockKind.FORMULA:
                item = docling.add_formula(inert_latex(block.text), prov=prov[0])
            case BlockKind.PICTURE if block.picture is not None:
                return [self._picture(block, prov[0])]
            case BlockKind.TABLE:
                return [self._table(part) for part in block.parts]
            case BlockKind.LOST:
                region = block.parts[0].region
                line = f"Region {region.index} ({region.label}) could not be read: {region.reason}"
                docling.add_text(DocItemLabel.TEXT, line, prov=prov[0], content_layer=ContentLayer.NOTES)
                return []
            case BlockKind.FURNITURE:
                label = DocItemLabel(_LABELS.get(block.label, "page_header"))
                item = docling.add_text(label, text, prov=prov[0], content_layer=ContentLayer.FURNITURE)
            case BlockKind.CAPTION:
                item = docling.add_text(DocItemLabel.CAPTION, text, prov=prov[0])
            case _:
                item = docling.add_text(DocItemLabel(_LABELS.get(block.label, "text")), text, prov=prov[0])
        item.prov.extend(prov[1:])
        if block.number is not None:
            docling.add_text(DocItemLabel.TEXT, defuse(block.number.text), prov=self._prov(block.number, 0))
        return []

    def _entry(self, block: Block, prov: ProvenanceItem) -> ListItem:
        """Add an entry to the list of its level, inside that of the level above."""
        while self._lists and self._lists[-1][0] > block.level:
            self._lists.pop()
        if self._lists and self._lists[-1][0] == block.level:
            _, group, _ = self._lists.pop()
        else:
            group = self._docling.add_list_group(parent=self._lists[-1][2] if self._lists else None)
        is_number = block.sign[:-1].isdecimal()
        item = self._docling.add_list_item(defuse(block.text), is_number, block.sign, prov=prov, parent=group)
        self._lists.append((block.level, group, item))
        return item

    def _picture(self, block: Block, prov: ProvenanceItem) -> FloatingItem:
        picture = block.picture
        assert picture is not None
        size = Size(width=picture.width, height=picture.height)
        image = ImageRef(mimetype="image/jpeg", dpi=_DPI, size=size, uri=Path(picture.path))
        item = self._docling.add_picture(image=image, prov=prov)
        if block.label == "chart":
            item.label = DocItemLabel.CHART
        if note := block.parts[0].note:
            item.meta = PictureMeta(**_meta(note, of_picture=True))
        return item

    def _table(self, part: BlockPart) -> FloatingItem:
        grid = grid_of(part.text)
        item = self._docling.add_table(_table_data(grid), prov=self._prov(part, 0))
        if part.note:
            item.meta = FloatingMeta(**_meta(part.note, of_picture=False))
        if grid.caption:
            self._caption(item, grid.caption, self._prov(part, 0))
        return item

    def _caption(self, item: FloatingItem, text: str, prov: ProvenanceItem) -> None:
        caption = self._docling.add_text(DocItemLabel.CAPTION, defuse(text), prov=prov, parent=item)
        item.captions.append(caption.get_ref())

    def _provs(self, block: Block) -> list[ProvenanceItem]:
        """Return each part's place on its page and its span of the block's text."""
        provs, begin = [], 0
        for part in block.parts:
            begin += len(part.joint)
            provs.append(self._prov(part, begin))
            begin += len(part.text)
        return provs

    def _prov(self, part: BlockPart, begin: int) -> ProvenanceItem:
        return self._place(part.page, part.region.box, (begin, begin + len(part.text)))

    @staticmethod
    def _place(page: int, box: Sequence[float], characters: tuple[int, int]) -> ProvenanceItem:
        left, top, right, bottom = box
        bbox = BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=CoordOrigin.TOPLEFT)
        return ProvenanceItem(page_no=page, bbox=bbox, charspan=characters)


def _meta(note: FigureNote, of_picture: bool) -> dict[str, Any]:
    """Return the fields of docling's `meta` for a note.

    Only pictures have the fields kind, data and molecule.
    """
    fields: dict[str, Any] = {}
    if note.description:
        fields["description"] = DescriptionMetaField(text=defuse(note.description))
    if note.keywords:
        fields["keywords"] = KeywordsMetaField(values=[defuse(word) for word in dict.fromkeys(note.keywords)])
    if not of_picture:
        return fields
    if note.kind:
        kinds = [PictureClassificationPrediction(class_name=note.kind)]
        fields["classification"] = PictureClassificationMetaField(predictions=kinds)
    if note.smiles:
        fields["molecule"] = MoleculeMetaField(smi=note.smiles)
    data = next(filter(is_table, tables_and_text(note.data_html or "")), None)
    if data:
        fields["tabular_chart"] = TabularChartMetaField(chart_data=_table_data(grid_of(data)))
    return fields


def _table_data(grid: TableGrid) -> TableData:
    # A heading in the first row is that of its column even beside cells that are none.
    head = max(1, grid.heading_rows)
    return TableData(
        num_rows=grid.rows,
        num_cols=grid.columns,
        table_cells=[
            TableCell(
                # docling writes a cell into its markdown as it is.
                text=re.sub(r"<(?=[A-Za-z/!?])", "< ", defuse(cell.text)),
                row_span=cell.rows,
                col_span=cell.columns,
                start_row_offset_idx=cell.row,
                end_row_offset_idx=cell.row + cell.rows,
                start_col_offset_idx=cell.column,
                end_col_offset_idx=cell.column + cell.columns,
                column_header=cell.heading and cell.row < head,
                row_header=cell.heading and cell.row >= head,
            )
            for cell in grid.cells
        ],
    )
