"""DOCX files as they are printed: with accepted changes and the marks of notes."""

from io import BytesIO
from typing import Any

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_TELLING = ("{*}ins", "{*}del", "{*}moveTo", "{*}moveFrom", "{*}footnoteReference")
"""Elements without which a file is already as it is printed."""


def as_printed(content: bytes) -> bytes:
    """Return a DOCX file as it is printed. Raises what python-docx raises."""
    import docx

    file = docx.Document(BytesIO(content))
    package: Any = file.part.package
    telling: list[Any] = []
    for part in package.iter_parts():
        if hasattr(part, "element"):
            telling += part.element.iter(*_TELLING)
    if not telling:
        return content
    number = 0
    for element in telling:
        around = element.getparent()
        name, place = element.tag.rpartition("}")[2], around.tag.rpartition("}")[2]
        if name == "footnoteReference":
            number += 1
            mark = element.makeelement(element.tag.replace(name, "t"))
            mark.text = str(number).translate(_RAISED)
            element.addnext(mark)
        elif place == "trPr" and name == "del":
            row = around.getparent()
            row.getparent().remove(row)
        elif place in ("trPr", "rPr"):
            continue  # the mark of a whole row or of the end of a paragraph
        else:
            if name in ("ins", "moveTo"):
                for child in list(element):
                    element.addprevious(child)
            around.remove(element)
    written = BytesIO()
    file.save(written)
    return written.getvalue()
