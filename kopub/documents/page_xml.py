"""Pages of documents as PAGE XML of 2019-07-15, which editors of transcriptions read."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement

from kopub.boxes import Box
from kopub.documents.archived_regions import (
    Zone,
    archived_regions,
    image_name,
    page_confidence,
    page_end,
    well_formed,
    xml_bytes,
)
from kopub.documents.document import Block, Document
from kopub.layout.regions import Task

_NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
_ROOT = {
    "xmlns": _NAMESPACE,
    "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
    "xsi:schemaLocation": f"{_NAMESPACE} {_NAMESPACE}/pagecontent.xsd",
}
_TYPES = {
    "doc_title": "heading",
    "paragraph_title": "heading",
    "figure_title": "caption",
    "footnote": "footnote",
    "vision_footnote": "footnote",
    "header": "header",
    "footer": "footer",
    "number": "page-number",
    "aside_text": "marginalia",
    "content": "TOC-entry",
    "display_formula": "other",
    "inline_formula": "other",
}
"""The type of each label's text; any other is a `paragraph`."""
_LANGUAGES = {"ko": "Korean", "ja": "Japanese"}
_ESTIMATED = "place {estimated:true;}"
_NO_DATE = "1970-01-01T00:00:00Z"
"""The schema wants a date. This one leaves the file of an unchanged page unchanged."""


def page_xml_files(document: Document, _: Sequence[Block]) -> Iterator[tuple[str, bytes]]:
    """Yield a PAGE XML file for each page.

    `custom` has the label of layout, the origin of the text, and whether a place is estimated; `comments` say what was
    read in doubt, or why it was not read.
    """
    for page in document.pages:
        root = Element("PcGts", _ROOT)
        about = SubElement(root, "Metadata", externalRef=well_formed(page.page_id))
        SubElement(about, "Creator").text = "; ".join(page.made_by) or "kopub"
        for name in ("Created", "LastChange"):
            SubElement(about, name).text = _NO_DATE
        SubElement(about, "Comments").text = page_end(page)
        for maker in page.made_by:
            SubElement(about, "MetadataItem", type="processingStep", name="engine", value=maker)
        size = {"imageWidth": str(page.width), "imageHeight": str(page.height)}
        element = SubElement(root, "Page", {"imageFilename": image_name(document, page, "../"), **size})
        if (sure := page_confidence(page)) is not None:
            element.set("conf", sure)
        regions = [*archived_regions(page)]
        if regions:
            order = SubElement(SubElement(element, "ReadingOrder"), "OrderedGroup", id="order")
            for at, region in enumerate(regions):
                SubElement(order, "RegionRefIndexed", index=str(at), regionRef=region.id)
        for region in regions:
            _add_region(element, region)
        yield f"{page.number}.xml", xml_bytes(root)


def _add_region(page: Element, region: Zone) -> None:
    record = region.record
    values = {"id": region.id, "custom": f"label {{name:{record.label};}}"}
    if record.origin is not None:
        values["custom"] += f" origin {{name:{record.origin};}}"
    if region.estimated:
        values["custom"] += f" {_ESTIMATED}"
    if region.remark:
        values["comments"] = well_formed(region.remark)
    if region.grid is not None:
        size = {"rows": str(region.grid.rows), "columns": str(region.grid.columns)}
        element = _placed(SubElement(page, "TableRegion", values | size), region.box, record.score)
        for at, line in enumerate(region.lines):
            cell = line.cell
            assert cell is not None
            place = {"custom": _ESTIMATED} if line.estimated else {}
            name = {"id": f"{region.id}_c{at}", **place}
            cell_element = _placed(SubElement(element, "TextRegion", name), line.box)
            where = {"rowIndex": str(cell.row), "columnIndex": str(cell.column)}
            spans = {"rowSpan": str(cell.rows), "colSpan": str(cell.columns), "header": str(cell.heading).lower()}
            SubElement(SubElement(cell_element, "Roles"), "TableCellRole", where | spans)
            _say(cell_element, cell.text)
    elif record.task is Task.SKIP:
        kind = "ChartRegion" if record.label == "chart" else "ImageRegion"
        _placed(SubElement(page, kind, values), region.box, record.score)
    else:
        language = _LANGUAGES.get(region.language or "")
        values |= {"type": _TYPES.get(record.label, "paragraph")} | ({"primaryLanguage": language} if language else {})
        element = _placed(SubElement(page, "TextRegion", values), region.box, record.score)
        for at, line in enumerate(region.lines):
            place = {"custom": _ESTIMATED} if line.estimated else {}
            _say(_placed(SubElement(element, "TextLine", {"id": f"{region.id}_l{at}", **place}), line.box), line.text)
        if region.text:
            _say(element, region.text)


def _placed(element: Element, box: Box[int], score: float | None = None) -> Element:
    """Give an element its outline, and return it."""
    x1, y1, x2, y2 = box
    sure = {} if score is None else {"conf": f"{min(max(score, 0.0), 1.0):.3f}"}
    SubElement(element, "Coords", {"points": f"{x1},{y1} {x2},{y1} {x2},{y2} {x1},{y2}", **sure})
    return element


def _say(element: Element, text: str) -> None:
    SubElement(SubElement(element, "TextEquiv"), "Unicode").text = text
