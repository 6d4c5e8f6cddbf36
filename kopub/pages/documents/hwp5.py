"""The paragraphs of HWP 5 documents, which are compound files with streams of records.

The numbers are those of Hancom's published format.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kopub.errors import UndecodableImage
from kopub.pages.documents.archives import LOCKED, MOST_TEXT, too_large
from kopub.pages.documents.hwp_pieces import HwpBox, HwpCell, HwpFormula, HwpParagraph, HwpTable
from kopub.pages.documents.pieces import BLANK

_HEADER_SIZE = 40
_COMPRESSED, _PASSWORD, _DISTRIBUTION, _DRM = 1, 2, 4, 16
"""Bits of the properties of a file."""
_PARA_SHAPE, _PARAGRAPH, _TEXT, _CONTROL, _LIST, _TABLE, _EQUATION = 25, 66, 67, 71, 72, 77, 88
"""Tags of records."""
_TABLES, _HIDDEN = b" lbt", b"tmct"
"""Kinds of controls, in reverse byte order as they are stored."""
_LABELS = {b"  nf": "footnote", b"  ne": "footnote", b"daeh": "header", b"toof": "footer", b"dces": "header"}
"""Labels of the paragraphs of notes, heads and feet, and those of a section, which are behind each page."""
_ONE_UNIT = frozenset({0, 10, 13, *range(24, 32)})
"""Control characters of one UTF-16 unit; all others below a blank take eight units."""
_SIGNS = {9: " ", 10: "\n", 24: "-", 30: " ", 31: " "}
"""What control characters stand for."""
_WITH_CONTROL = frozenset({1, 2, 3, *range(11, 13), *range(14, 19), *range(21, 24)})
"""Control characters each of which has a control among the paragraph's records, in their order."""
_EQUATIONS, _NUMBERS = b"deqe", b"onta"
_LONG = 0xFFF
"""The size in the head of a record whose true size follows."""
_DEEPEST = 100
"""Most levels of records."""


@dataclass
class _Record:
    """A record with those below it."""

    tag: int
    content: bytes
    below: "list[_Record]" = field(default_factory=list)


def paragraphs(file: Any) -> Iterator[HwpParagraph]:
    """Yield the paragraphs of an open compound file. Raises `UndecodableImage` or what parsers raise."""
    header = _stream(file, ["FileHeader"])
    if len(header) < _HEADER_SIZE or not header.startswith(b"HWP Document File"):
        raise UndecodableImage("the file is damaged or no HWP document: it has no header")
    (flags,) = struct.unpack_from("<I", header, 36)
    if flags & _PASSWORD:
        raise UndecodableImage(LOCKED)
    if flags & _DISTRIBUTION:
        raise UndecodableImage("it is a document for distribution (배포용 문서): ask its author for an open copy")
    if flags & _DRM:
        raise UndecodableImage("it is locked by DRM: save it without")
    names = [name for name in file.listdir() if len(name) == 2 and name[0] == "BodyText"]
    if not names:
        raise UndecodableImage("the file is damaged or no HWP document: it has no text")
    left = MOST_TEXT
    levels: list[int] = []
    """The level in the outline of each kind of paragraph, 0 for none."""
    for name in (["DocInfo"], *sorted(names, key=lambda name: (len(name[1]), name[1]))):
        stream = _stream(file, name)
        if flags & _COMPRESSED:
            stream = zlib.decompressobj(-zlib.MAX_WBITS).decompress(stream, left + 1)
        left -= len(stream)
        if left < 0:
            raise too_large()
        root, *records = _records(stream)
        if name != ["DocInfo"]:
            yield from _paragraphs(root.below, levels)
            continue
        for record in records:
            if record.tag == _PARA_SHAPE:
                (properties,) = struct.unpack_from("<I", record.content)
                # Two bits say whether such a paragraph is in the outline, the next three its level.
                levels.append((properties >> 25 & 7) + 1 if properties >> 23 & 3 == 1 else 0)


def _stream(file: Any, name: list[str]) -> bytes:
    if file.get_size(name) > os.fstat(file.fp.fileno()).st_size:
        raise UndecodableImage("the file is damaged or no HWP document: a stream is larger than the file")
    with file.openstream(name) as stream:
        return stream.read(MOST_TEXT)


def _records(stream: bytes) -> list[_Record]:
    """Return the records of a stream in order, behind one above the uppermost."""
    records = [_Record(0, b"")]
    open_records = records.copy()
    at = 0
    while at + 4 <= len(stream):
        (head,) = struct.unpack_from("<I", stream, at)
        at += 4
        # Records are read by recursion, which a hostile level would exhaust.
        tag, level, size = head & 0x3FF, min(head >> 10 & 0x3FF, _DEEPEST), head >> 20
        if size == _LONG:
            if at + 4 > len(stream):
                break
            (size,) = struct.unpack_from("<I", stream, at)
            at += 4
        record = _Record(tag, stream[at : at + size])
        at += size
        del open_records[level + 1 :]
        open_records[-1].below.append(record)
        open_records.append(record)
        records.append(record)
    return records


def _paragraphs(records: Sequence[_Record], levels: Sequence[int]) -> list[HwpParagraph]:
    """Return the paragraphs among some records."""
    paragraphs: list[HwpParagraph] = []
    for record in records:
        if record.tag != _PARAGRAPH:
            continue
        tied: list[HwpTable | HwpBox | HwpFormula] = []
        numbers: list[str] = []
        text = ""
        for control in record.below:
            if control.tag == _CONTROL:
                number, objects = _control(control, levels)
                numbers.append(number)
                tied += objects
        # The controls of a text stand behind it.
        for part in record.below:
            if part.tag == _TEXT:
                text += _text(part.content, iter(numbers))
        (shape,) = struct.unpack_from("<H", record.content, 8)
        paragraphs.append(HwpParagraph(text, levels[shape] if shape < len(levels) else 0, tied))
    return paragraphs


def _text(content: bytes, controls: Iterator[str]) -> str:
    """Return a paragraph's text, with what its controls print."""
    units = struct.unpack(f"<{len(content) // 2}H", content[: len(content) // 2 * 2])
    letters: list[str] = []
    at = 0
    while at < len(units):
        unit = units[at]
        if unit >= 32:
            letters.append(chr(unit))
        elif unit in _WITH_CONTROL:
            letters.append(next(controls, ""))
        else:
            letters.append(_SIGNS.get(unit, ""))
        at += 1 if unit in _ONE_UNIT or unit >= 32 else 8
    # A letter beyond the first 65,536 is in two units, which become one here.
    return "".join(letters).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _control(control: _Record, levels: Sequence[int]) -> tuple[str, list[HwpTable | HwpBox | HwpFormula]]:
    """Return the number that a control prints within the text, and its objects."""
    kind, content = control.content[:4], control.content
    number: list[str | int] = []
    if kind == _EQUATIONS:
        number = [BLANK]
    elif _LABELS.get(kind) == "footnote" and len(content) >= 12:
        value, before, after = struct.unpack_from("<I2H", content, 4)
        number = [chr(before) if before else "", value, chr(after) if after else ""]
    elif kind == _NUMBERS and len(content) >= 16 and content[4] & 15 and not content[5]:
        value, _, before, after = struct.unpack_from("<4H", content, 8)
        number = [chr(before) if before else "", value, chr(after) if after else ""]
    objects: list[HwpTable | HwpBox | HwpFormula] = []
    if kind == _TABLES:
        objects.append(_table(control, levels))
    elif kind != _HIDDEN:
        for part in control.below:
            if part.tag == _EQUATION and len(part.content) >= 6:
                (length,) = struct.unpack_from("<H", part.content, 4)
                objects.append(HwpFormula(part.content[6 : 6 + 2 * length].decode("utf-16-le", "replace")))
        for box in _boxes(control.below, levels):
            objects.append(HwpBox(box, _LABELS.get(kind, "text")))
    return "".join(map(str, number)), objects


def _boxes(records: Sequence[_Record], levels: Sequence[int]) -> Iterator[list[HwpParagraph]]:
    """Yield the paragraphs of each box, which stand directly below one record."""
    if paragraphs_of_box := _paragraphs(records, levels):
        yield paragraphs_of_box
    for record in records:
        if record.tag != _PARAGRAPH:
            yield from _boxes(record.below, levels)


def _table(control: _Record, levels: Sequence[int]) -> HwpTable:
    """Return a table.

    A list before its own record is the caption, and each one after it a cell.
    """
    cells: list[HwpCell] = []
    caption: list[HwpParagraph] = []
    is_within = False
    content = caption
    for part in control.below:
        if part.tag == _TABLE:
            is_within = True
        elif part.tag == _LIST and is_within:
            column, row, column_span, row_span = struct.unpack_from("<4H", part.content, 8)
            content = []
            cells.append(HwpCell(row, column, max(1, row_span), max(1, column_span), content))
        elif part.tag == _PARAGRAPH:
            content += _paragraphs([part], levels)
    return HwpTable(cells, caption)
