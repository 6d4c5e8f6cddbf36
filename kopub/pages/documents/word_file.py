"""DOCX files as they are printed: with accepted changes and the marks of notes."""

from io import BytesIO
from typing import Any

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_TELLING = frozenset({"ins", "del", "moveTo", "moveFrom", "footnoteReference"})
"""Elements without which a file is already as it is printed."""


def as_printed(content: bytes) -> bytes:
    """Return a DOCX file as it is printed. Raises what python-docx raises."""
    import docx

    file = docx.Document(BytesIO(content))
    package: Any = file.part.package
    telling: list[Any] = []
    for part in package.iter_parts():
        if hasattr(part, "element"):
            telling += (element for element in part.element.iter() if _name(element) in _TELLING)
    if not telling:
        return content
    number = 0
    for element in telling:
        name, around = _name(element), element.getparent()
        if name == "footnoteReference":
            number += 1
            mark = element.makeelement(element.tag.replace(name, "t"))
            mark.text = str(number).translate(_RAISED)
            element.addnext(mark)
        elif _name(around) == "trPr" and name == "del":
            row = around.getparent()
            row.getparent().remove(row)
        elif _name(around) in ("trPr", "rPr"):
            continue  # the mark of a whole row or of the end of a paragraph
        else:
            if name in ("ins", "moveTo"):
                for child in list(element):
                    element.addprevious(child)
            around.remove(element)
    written = BytesIO()
    file.save(written)
    return written.getvalue()


def _name(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
