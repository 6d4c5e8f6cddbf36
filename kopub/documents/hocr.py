"""Documents as hOCR 1.2, in HTML that is also XML."""

from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kopub.documents.archived_regions import (
    Zone,
    archived_regions,
    image_name,
    page_confidence,
    page_end,
    well_formed,
)
from kopub.documents.document import Document, DocumentPage
from kopub.layout.regions import PICTURES, Task

_CLASSES = {
    "doc_title": "ocr_title",
    "figure_title": "ocr_caption",
    "header": "ocr_header",
    "footer": "ocr_footer",
    "number": "ocr_pageno",
}
"""The class of each layout label; any other region of text is an `ocr_carea`."""
_CAPABILITIES = (
    "ocr_page", "ocr_carea", "ocr_title", "ocr_caption", "ocr_header", "ocr_footer", "ocr_pageno", "ocr_table",
    "ocr_image", "ocr_line", "ocrx_line", "ocrp_lang",
)  # fmt: skip


def document_hocr(document: Document) -> str:
    """Return a document as hOCR, with regions in reading order.

    A line is an `ocr_line` if its box is that of its region, an `ocrx_line` if its place is estimated. Properties
    have to be ASCII, so what was read in doubt, or why it was not read, is in `data-` attributes.
    """
    pages: list[tuple[DocumentPage, list[Zone]]] = []
    makers: list[str] = []
    languages: set[str | None] = set()
    for page in document.pages:
        regions = [*archived_regions(page)]
        pages.append((page, regions))
        makers += page.made_by
        languages |= {region.language for region in regions}
    root = Element("html", {"xmlns": "http://www.w3.org/1999/xhtml"})
    head, body = SubElement(root, "head"), SubElement(root, "body")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "title").text = well_formed(document.doc_id)
    for name, content in {
        "ocr-system": "; ".join(dict.fromkeys(makers)) or "kopub",
        "ocr-capabilities": " ".join(_CAPABILITIES),
        "ocr-number-of-pages": str(len(pages)),
        "ocr-langs": " ".join(sorted(filter(None, languages))) or "unknown",
    }.items():
        SubElement(head, "meta", {"name": name, "content": content})
    for page, regions in pages:
        image = quote(image_name(document, page))
        title = f'image "{image}"; bbox 0 0 {page.width} {page.height}; ppageno {page.number}'
        if (sure := page_confidence(page)) is not None:
            title += f"; x_textconf {sure}"
        element = SubElement(body, "div", {"class": "ocr_page", "id": f"page_{page.number}", "title": title})
        element.set("data-page-id", well_formed(page.page_id))
        element.set("data-state", page_end(page))
        for region in regions:
            _add_region(element, region, f"page_{page.number}_")
    indent(root)
    # An HTML parser takes an element that ends in its own tag for an open one.
    return f"<!DOCTYPE html>\n{tostring(root, 'unicode', short_empty_elements=False)}\n"


def _add_region(page: Element, region: Zone, prefix: str) -> None:
    label, tag, kind = region.record.label, "div", _CLASSES.get(region.record.label, "ocr_carea")
    if region.grid is not None:
        tag, kind = "table", "ocr_table"
    elif label in PICTURES and region.record.task is Task.SKIP:
        kind = "ocr_image"
    element = SubElement(page, tag, {"class": kind, "id": prefix + region.id, "data-label": label})
    element.set("title", f"bbox {' '.join(map(str, region.box))}; x_layoutconf {region.record.score:.3f}")
    if region.record.origin is not None:
        element.set("data-origin", region.record.origin.value)
    if region.estimated:
        element.set("data-estimated", "true")
    if region.remark:
        element.set("data-remark", well_formed(region.remark))
    if region.language:
        element.set("lang", region.language)
    if region.grid is not None:
        for at in range(region.grid.rows):
            row = SubElement(element, "tr")
            for cell in region.grid.row(at):
                spans = {"rowspan": cell.rows, "colspan": cell.columns}
                placed = {name: str(span) for name, span in spans.items() if span > 1}
                SubElement(row, "th" if cell.heading else "td", placed).text = cell.text
        return
    for line in region.lines:
        kind = "ocrx_line" if line.estimated else "ocr_line"
        title = f"bbox {' '.join(map(str, line.box))}"
        SubElement(element, "span", {"class": kind, "title": title}).text = line.text
