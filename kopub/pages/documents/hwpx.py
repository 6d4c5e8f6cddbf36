"""The paragraphs of HWPX documents, which are archives of XML."""

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from kopub.errors import UndecodableImage
from kopub.pages.documents.archives import MOST_TEXT, require_usable, too_large
from kopub.pages.documents.extents import require_small
from kopub.pages.documents.hwp_pieces import HwpBox, HwpCell, HwpFormula, HwpParagraph, HwpTable
from kopub.pages.documents.pieces import BLANK

_SECTION = re.compile(r"(?:.*/)?section(\d+)\.xml", re.IGNORECASE)
_HEADER = re.compile(r"(?:.*/)?header\.xml", re.IGNORECASE)
_SIGNS = {"tab": " ", "lineBreak": "\n", "nbSpace": " ", "fwSpace": " ", "hyphen": "-"}
"""What the elements within a text stand for."""
_NOTES = frozenset({"footNote", "endNote"})
_LABELS = {"footNote": "footnote", "endNote": "footnote", "header": "header", "footer": "footer"}
_UNPRINTED = frozenset({"hiddenComment", "memo", "parameters", "default"})
"""Elements that are not printed, and what stands for another element in older programs."""
_NUMBERED = frozenset({"TABLE", "PICTURE", "EQUATION", "FOOTNOTE", "ENDNOTE"})
"""Kinds of numbers that are the same in the file and in print; that of a page is not."""


def paragraphs(archive: zipfile.ZipFile) -> Iterator[HwpParagraph]:
    """Yield the paragraphs of a document. Raises `UndecodableImage` or what parsers raise."""
    require_usable(archive)
    require_small(archive)
    names = archive.namelist()
    sections = sorted((int(section[1]), name) for name in names if (section := _SECTION.fullmatch(name)))
    if not sections:
        raise UndecodableImage("the file is damaged or no HWP document: it has no text")
    headers = list(filter(_HEADER.fullmatch, names))
    with_text = headers + [name for _, name in sections]
    if sum(archive.getinfo(name).file_size for name in with_text) > MOST_TEXT:
        raise too_large()
    levels: dict[str, int] = {}
    """The level in the outline of each kind of paragraph that is in it, from 1."""
    for name in headers:
        for kind in _parsed(archive.open(name)).iter("{*}paraPr"):
            for heading in kind.iter("{*}heading"):
                if heading.get("type") == "OUTLINE":
                    levels[kind.get("id")] = int(heading.get("level") or 0) + 1
    for _, name in sections:
        section = _parsed(archive.open(name))
        _accept_changes(section)
        yield from _Section(levels).paragraphs(section)


def accept_changes(content: bytes) -> bytes:
    """Return a document without the text that tracked changes have deleted."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        changed: dict[str, bytes] = {}
        for name in filter(_SECTION.fullmatch, archive.namelist()):
            section = _parsed(archive.open(name))
            if _accept_changes(section):
                changed[name] = etree.tostring(section, xml_declaration=True, encoding="UTF-8", standalone=True)
        if not changed:
            return content
        copy = io.BytesIO()
        with zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as written:
            for name in archive.namelist():
                written.writestr(name, changed.get(name) or archive.read(name))
    return copy.getvalue()


def _accept_changes(section: Any) -> bool:
    """Remove from a section what was deleted, and return whether anything was."""
    was_deleted = is_deleted = False
    for element in section.iter():
        name = _name(element)
        if name in ("deleteBegin", "deleteEnd"):
            is_deleted = name == "deleteBegin"
            was_deleted |= is_deleted
        if is_deleted and name == "t":
            element.text = None
        if is_deleted and _name(element.getparent()) == "t":
            element.tail = None
    return was_deleted


def _parsed(xml: IO[bytes]) -> Any:
    """Return an XML file's root, without resolving or fetching."""
    options: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
    with xml:
        return etree.parse(xml, etree.XMLParser(**options, remove_comments=True, remove_pis=True)).getroot()


def _name(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


@dataclass(frozen=True)
class _Section:
    """A reader of a section's elements."""

    levels: dict[str, int]

    def paragraphs(self, around: Any) -> list[HwpParagraph]:
        """Return the paragraphs among some elements, or directly below one."""
        paragraphs: list[HwpParagraph] = []
        for element in around:
            if _name(element) != "p":
                continue
            texts: list[str] = []
            tied: list[HwpTable | HwpBox | HwpFormula] = []
            for run in element:
                for child in run:
                    self._add(child, texts, tied)
            level = self.levels.get(element.get("paraPrIDRef"), 0)
            paragraphs.append(HwpParagraph("".join(texts), level, tied))
        return paragraphs

    def _add(self, element: Any, texts: list[str], tied: list[HwpTable | HwpBox | HwpFormula]) -> None:
        """Add the text of an element of a run, or the object that it is."""
        name = _name(element)
        if name in _UNPRINTED:
            return
        if name == "t":
            texts.append(element.text or "")
            for sign in element:
                texts += [_SIGNS.get(_name(sign), ""), sign.tail or ""]
        elif name == "tbl":
            tied.append(self._table(element))
        elif name == "equation":
            texts.append(BLANK)
            tied += (HwpFormula("".join(script.itertext())) for script in element.iterfind("{*}script"))
        elif name in ("compose", "textart"):
            texts.append(element.get("composeText") or element.get("text") or "")
        elif name == "autoNum" and element.get("numType") in _NUMBERED:
            texts.append(_number(element))
        elif name in _LABELS:
            number = next(element.iter("{*}autoNum"), None)
            own = f"{element.get('number')})" if element.get("number") else ""
            # The number of a note is printed where it is referred to as well.
            texts += [own if number is None else _number(number)] if name in _NOTES else []
            tied += (HwpBox(self.paragraphs(within), _LABELS[name]) for within in element)
        elif name in ("mainText", "subText"):
            texts.append(element.text or "")
        elif name == "subList":
            label = "figure_title" if _name(element.getparent()) == "caption" else "text"
            tied.append(HwpBox(self.paragraphs(element), label))
        else:
            for child in element:
                self._add(child, texts, tied)

    def _table(self, table: Any) -> HwpTable:
        cells = []
        for cell in table.iterfind("{*}tr/{*}tc"):
            address, span = cell.find("{*}cellAddr"), cell.find("{*}cellSpan")
            row, column = int(address.get("rowAddr")), int(address.get("colAddr"))
            row_span, column_span = max(1, int(span.get("rowSpan"))), max(1, int(span.get("colSpan")))
            content = self.paragraphs(cell.iterfind("{*}subList/{*}p"))
            cells.append(HwpCell(row, column, row_span, column_span, content))
        return HwpTable(cells, self.paragraphs(table.iterfind("{*}caption/{*}subList/{*}p")))


def _number(element: Any) -> str:
    """Return an automatic number as it is printed."""
    form = element.find("{*}autoNumFormat")
    if form is None or form.get("type") not in (None, "DIGIT"):
        return BLANK
    return f"{form.get('prefixChar') or ''}{element.get('num') or ''}{form.get('suffixChar') or ''}"
