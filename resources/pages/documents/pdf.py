"""Pages of a PDF as PNGs, rendered by PDFium, which only one thread of a process may use."""

import math
import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from resources.code_version import CodeVersion
from resources.errors import UndecodableImage, is_of_machine
from resources.pages.documents.made_page import MadePage, PageCount
from resources.pages.pixels.images import MAX_PIXELS, jpeg_damage
from resources.printable import first_line

if TYPE_CHECKING:
    import numpy as np
    from pypdfium2 import PdfDocument, PdfPage

    from resources.pages.places.object_paths import SourcePath

SUFFIX = ".pdf"
DPI = 300
"""The usual resolution of scans, which OCR engines expect; the pages of SDS KoPub have it too."""
_POINTS = 72
"""Units of a PDF to the inch."""
_MAX_SIDE = 1_000_000
"""Longest side of a PNG in pixels that libpng takes."""

_JPEG = "DCTDecode"
_APART = 61
"""Pixels between two that are looked at first: less than a line of text is high at 300 dpi."""
_MOST_PICTURES = 100
"""Pictures of a page that are looked at: a scan has one or a few, a drawing thousands of tiles."""

CODE = CodeVersion("pages.pdf", {1: "the first release", 2: "damaged pictures of a page are said"})
"""A new version renders every page again."""


def version() -> str:
    """What the pixels of a page depend on, besides its PDF, the resolution, and fonts that the PDF does not embed."""
    from pypdfium2 import PDFIUM_INFO, PYPDFIUM_INFO

    return f"pypdfium2 {PYPDFIUM_INFO}, PDFium {PDFIUM_INFO}, {CODE.number}"


def is_pdf(path: "SourcePath") -> bool:
    """Whether a path is that of a PDF, by its suffix."""
    return path.suffix.lower() == SUFFIX


class Pdfs:
    """PDFs as documents. Keeps the last one open, because its pages come one after another.

    All methods raise `OSError` for a file that cannot be read now, and `MemoryError`.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._document: PdfDocument | None = None

    def pages(self, path: Path) -> int:
        """The number of pages of a PDF. Raises `UndecodableImage` when it cannot be opened or has none."""
        if count := len(self._opened(path)):
            return count
        raise UndecodableImage("the PDF has no pages")

    def count(self, path: Path) -> PageCount:
        """The number of pages, and of attached files. Raises `UndecodableImage`."""
        return PageCount(self.pages(path), self._opened(path).count_attachments())

    def render(self, path: Path, page: int, dpi: int) -> bytes:
        """The page, counted from 0, as a PNG in grey or RGB: its crop box, upright, with annotations and form fields.

        `dpi` is lowered for a page that would have more than `MAX_PIXELS`. Raises `UndecodableImage`.
        """
        return self._made(path, page, dpi, with_text=False).data

    def make(self, path: Path, page: int, dpi: int) -> MadePage:
        """The page as `render` draws it, with its text layer. Raises `UndecodableImage`."""
        return self._made(path, page, dpi, with_text=True)

    def _made(self, path: Path, page: int, dpi: int, with_text: bool) -> MadePage:
        import cv2
        from pypdfium2 import PdfiumError

        try:
            opened = self._opened(path)[page]
            scale = _scale(*opened.get_size(), dpi)
            pixels = opened.render(scale=scale).to_numpy()  # pyright: ignore[reportArgumentType]
            layer = _stored_layer(opened, pixels) if with_text else None
            damage = _damage(opened, pixels) if with_text else None
            opened.close()
            return MadePage(_png(pixels), layer, damage)
        except (PdfiumError, cv2.error) as error:
            if is_of_machine(error):
                raise MemoryError(str(error)) from None
            _require_readable(path)
            raise UndecodableImage(f"the page cannot be drawn: {error}") from None

    def _opened(self, path: Path) -> "PdfDocument":
        from pypdfium2 import PdfDocument, PdfiumError, raw

        if self._document is not None and self._path == path:
            return self._document
        if self._document is not None:
            self._document.close()
            self._path = self._document = None
        # PdfDocument(path) reports a PDF without pages with the error of the PDF before it.
        handle = raw.FPDF_LoadDocument(os.fsencode(path) + b"\0", None)
        if not handle:
            error = raw.FPDF_GetLastError()
            _require_readable(path)
            reasons = {
                raw.FPDF_ERR_PASSWORD: "the PDF wants a password: save it without one",
                raw.FPDF_ERR_SECURITY: "the PDF is locked in a way that PDFium does not know",
            }
            raise UndecodableImage(reasons.get(error, "the file is damaged or no PDF"))
        try:
            document = PdfDocument(handle)
            # PDFium renders form fields only when this is called before the first page is opened.
            document.init_forms()
        except PdfiumError as error:
            raise UndecodableImage(f"the PDF cannot be opened: {error}") from None
        self._path, self._document = path, document
        return document


def _require_readable(path: Path) -> None:
    """Read a file of which PDFium could make nothing. Raises `OSError`: then it is not the bytes that are to blame."""
    from resources.files import file_sha256

    file_sha256(path)


def _damage(page: "PdfPage", pixels: "np.ndarray") -> str | None:
    """Return what is wrong with the first damaged picture of a page, which PDFium leaves out or draws in part.

    A JPEG says it itself. Other pictures are tried where nothing of the page was drawn.
    """
    from pypdfium2 import PdfImage, PdfiumError, raw

    for picture in islice(page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE]), _MOST_PICTURES):
        assert isinstance(picture, PdfImage)
        kind = (picture.get_filters() or ["no filter"])[-1]
        try:
            damage = jpeg_damage(bytes(picture.get_data(decode_simple=True))) if kind == _JPEG else None
            if kind != _JPEG and _is_empty(pixels):
                picture.get_bitmap()
        except (PdfiumError, ValueError) as error:
            return f"a picture of the page cannot be drawn ({kind}: {first_line(error)})"
        if damage:
            return f"a picture of the page is damaged: {damage}"
    return None


def _is_empty(pixels: "np.ndarray") -> bool:
    """Whether all pixels are of one colour; a few tell of nearly every page that they are not."""
    return all(bool((some == pixels[0, 0]).all()) for some in (pixels[::_APART, ::_APART], pixels))


def _stored_layer(page: "PdfPage", pixels: "np.ndarray") -> str | None:
    from resources.pages.documents.pdf_text import read_layer
    from resources.pages.documents.text_layer import TextLayer

    try:
        layer = read_layer(page, pixels)
    # Hostile text may raise anything; the page is drawn all the same, and its layer says that it failed.
    except Exception as error:
        layer = TextLayer.failed(first_line(error) or type(error).__name__)
    return None if layer is None else layer.to_json()


def _scale(width: float, height: float, dpi: int) -> float:
    """Pixels to the point: those of `dpi`, or as many as fit into `MAX_PIXELS` with both sides rounded up.

    Raises `UndecodableImage` for a page so long that no PNG holds it.
    """
    scale = _largest_scale(width, height, dpi)
    if max(width, height) * scale > _MAX_SIDE:
        raise UndecodableImage(
            f"the page is {width:,.0f} by {height:,.0f} points: at {dpi} dpi it is longer than {_MAX_SIDE:,} pixels"
        )
    return scale


def _largest_scale(width: float, height: float, dpi: int) -> float:
    scale = dpi / _POINTS
    if math.ceil(width * scale) * math.ceil(height * scale) <= MAX_PIXELS:
        return scale
    # Of (width·s + 1)(height·s + 1) = MAX_PIXELS, the positive root.
    area, half = width * height, (width + height) / 2
    return (math.sqrt(half * half + area * (MAX_PIXELS - 1)) - half) / area


def _png(page: "np.ndarray") -> bytes:
    """BGR pixels as a PNG, of one channel when all three are equal: it decodes to the same page.

    OpenCV is the fastest of the installed encoders for rendered pages, which are no larger unfiltered.
    Raises `UndecodableImage`.
    """
    import cv2
    import numpy as np

    blue, green, red = (page[..., channel] for channel in range(3))
    grey = np.array_equal(blue, green) and np.array_equal(green, red)
    options = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_DEFAULT]
    options += [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE]
    encoded, data = cv2.imencode(".png", np.ascontiguousarray(blue) if grey else page, options)
    if not encoded:
        raise UndecodableImage(f"the page of {page.shape[1]:,} by {page.shape[0]:,} pixels cannot be encoded as a PNG")
    return data.tobytes()
