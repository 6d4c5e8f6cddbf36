"""The fields of a PDF form: what was typed, and which boxes are ticked."""

import ctypes
from collections.abc import Iterator

from pypdfium2 import PdfPage, raw

from kopub.boxes import Box
from kopub.pages.documents.drawn_objects import Placement

_PASSWORD = 1 << 13
_MOST = 10_000
"""Most characters of a value, and most annotations of a page: more than either has room for in print."""


def field_texts(page: PdfPage, placement: Placement) -> Iterator[tuple[str, Box]]:
    """Yield the text of each field that is shown, and its box in pixels.

    A ticked box is ☑, another one ☐; a chosen button is ◉, another one ○. What is typed is in no text of the page.
    """
    form = page.formenv
    if form is None:
        return
    for at in range(min(raw.FPDFPage_GetAnnotCount(page), _MOST)):
        annotation = raw.FPDFPage_GetAnnot(page, at)
        try:
            hidden = raw.FPDFAnnot_GetFlags(annotation) & (raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW)
            if raw.FPDFAnnot_GetSubtype(annotation) != raw.FPDF_ANNOT_WIDGET or hidden:
                continue
            text, flags = "", raw.FPDFAnnot_GetFormFieldFlags(form, annotation)
            match raw.FPDFAnnot_GetFormFieldType(form, annotation):
                case raw.FPDF_FORMFIELD_CHECKBOX:
                    text = "☑" if raw.FPDFAnnot_IsChecked(form, annotation) else "☐"
                case raw.FPDF_FORMFIELD_RADIOBUTTON:
                    text = "◉" if raw.FPDFAnnot_IsChecked(form, annotation) else "○"
                case raw.FPDF_FORMFIELD_TEXTFIELD | raw.FPDF_FORMFIELD_COMBOBOX if not flags & _PASSWORD:
                    letters = (ctypes.c_ushort * _MOST)()
                    size = raw.FPDFAnnot_GetFormFieldValue(form, annotation, letters, ctypes.sizeof(letters))
                    if size <= ctypes.sizeof(letters):
                        text = " ".join(bytes(letters)[: size - 2].decode("utf-16-le", "ignore").split())
            box = raw.FS_RECTF()
            if text and raw.FPDFAnnot_GetRect(annotation, box):
                edges = placement.box(box.left, box.bottom, box.right, box.top)
                yield text, Box._make(map(round, edges))
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
