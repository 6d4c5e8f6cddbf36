"""Pages of documents as ALTO 4.4, the XML of libraries for layout and text."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement

from kopub.boxes import Box
from kopub.documents.archived_regions import (
    ArchivedLine,
    Zone,
    archived_regions,
    image_name,
    page_confidence,
    page_end,
    well_formed,
    xml_bytes,
)
from kopub.documents.document import Block, Document, DocumentPage
from kopub.layout.regions import PICTURES, Task
from kopub.recognition.regions import TextOrigin

_NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"
_ROOT = {
    "xmlns": _NAMESPACE,
    "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
    "xsi:schemaLocation": f"{_NAMESPACE} http://www.loc.gov/standards/alto/v4/alto-4-4.xsd",
    "SCHEMAVERSION": "4.4",
}
_ESTIMATED = "estimated"


def alto_files(document: Document, _: Sequence[Block]) -> Iterator[tuple[str, bytes]]:
    """Yield an ALTO file for each page.

    Tags name the labels of layout, what was read in doubt or not at all, and places that are estimated.
    """
    for page in document.pages:
        yield f"{page.number}.xml", xml_bytes(_AltoWriter(document, page).root)


class _AltoWriter:
    """A writer of a page, one region after the other."""

    def __init__(self, document: Document, page: DocumentPage) -> None:
        self.root = Element("alto", _ROOT)
        described = SubElement(self.root, "Description")
        SubElement(described, "MeasurementUnit").text = "pixel"
        source = SubElement(described, "sourceImageInformation")
        SubElement(source, "fileName").text = image_name(document, page, "../")
        SubElement(source, "fileIdentifier").text = well_formed(page.page_id)
        SubElement(source, "documentIdentifier").text = well_formed(document.doc_id)
        for at, maker in enumerate(page.made_by):
            name, _, version = maker.rpartition(" ")
            software = SubElement(SubElement(described, "Processing", ID=f"made_{at}"), "processingSoftware")
            SubElement(software, "softwareName").text = name
            SubElement(software, "softwareVersion").text = version
        self._tags = SubElement(self.root, "Tags")
        self._tag("OtherTag", _ESTIMATED, "estimated", "the place is computed from the text and the region's box")
        self._labels: set[str] = set()
        regions = [*archived_regions(page)]
        if regions:
            order = SubElement(SubElement(self.root, "ReadingOrder"), "OrderedGroup", ID="order")
            for region in regions:
                SubElement(order, "ElementRef", ID=f"order_{region.id}", REF=region.id)
        values = {"ID": "page", "PHYSICAL_IMG_NR": str(page.number), "QUALITY_DETAIL": page_end(page)}
        if (sure := page_confidence(page)) is not None:
            values["PC"] = sure
        whole = {"HEIGHT": str(page.height), "WIDTH": str(page.width)}
        page_element = SubElement(SubElement(self.root, "Layout"), "Page", values | whole)
        space = SubElement(page_element, "PrintSpace", whole | {"HPOS": "0", "VPOS": "0"})
        for region in regions:
            self._add(space, region)

    def _add(self, space: Element, region: Zone) -> None:
        label, tags = region.record.label, [f"label_{region.record.label}"]
        if label not in self._labels:
            self._labels.add(label)
            self._tag("LayoutTag", tags[0], label)
        if region.estimated:
            tags.append(_ESTIMATED)
        if region.remark:
            tags.append(f"remark_{region.id}")
            self._tag("OtherTag", tags[-1], "remark", well_formed(region.remark))
        values = {"ID": region.id, "TAGREFS": " ".join(tags), **_placed(region.box)}
        if region.record.origin is TextOrigin.PERSON:
            values["CS"] = "true"
        if region.grid is not None:
            table = SubElement(space, "ComposedBlock", values, TYPE="table")
            for at, cell in enumerate(region.lines):
                place = {"TAGREFS": _ESTIMATED} if cell.estimated else {}
                block = SubElement(table, "TextBlock", {"ID": f"{region.id}_c{at}", **place, **_placed(cell.box)})
                for text in filter(str.strip, cell.text.split("\n")):
                    _add_line(block, ArchivedLine(text, cell.box, cell.estimated))
        elif label in PICTURES and region.record.task is Task.SKIP:
            SubElement(space, "Illustration", values, TYPE=label)
        else:
            block = SubElement(space, "TextBlock", values, **({"LANG": region.language} if region.language else {}))
            for line in region.lines:
                _add_line(block, line)

    def _tag(self, kind: str, name: str, label: str, description: str = "") -> None:
        described = {"DESCRIPTION": description} if description else {}
        SubElement(self._tags, kind, {"ID": name, "LABEL": label, **described})


def _add_line(block: Element, line: ArchivedLine) -> None:
    """Add a line with its words, of which only their order is known."""
    place = {"TAGREFS": _ESTIMATED} if line.estimated else {}
    element = SubElement(block, "TextLine", {**place, **_placed(line.box)})
    for at, word in enumerate(line.text.split()):
        if at:
            SubElement(element, "SP")
        SubElement(element, "String", CONTENT=word)


def _placed(box: Box[int]) -> dict[str, str]:
    return {"HPOS": str(box.x1), "VPOS": str(box.y1), "WIDTH": str(box.width), "HEIGHT": str(box.height)}
