"""Pages of a PDF as PNGs, drawn by PDFium, which only one thread of a process may use."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from resources.errors import UndecodableImage
from resources.pages.images import MAX_PIXELS

if TYPE_CHECKING:
    import numpy as np
    from pypdfium2 import PdfDocument

DPI = 300
"""What scanners and OCR engines take for granted, and what the pages of SDS KoPub have."""
_POINTS = 72
"""Units of a PDF to the inch."""
_MANNER = 1
"""Goes up when a page comes out otherwise than before, so that it is drawn again."""


def version() -> str:
    """What the pixels of a page depend on, besides its PDF, the resolution and fonts that the PDF leaves out."""
    from pypdfium2 import PDFIUM_INFO, PYPDFIUM_INFO

    return f"pypdfium2 {PYPDFIUM_INFO}, PDFium {PDFIUM_INFO}, {_MANNER}"


class Renderer:
    """Keeps the PDF open that it had last: its pages come one after another."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._document: PdfDocument | None = None

    def pages(self, path: Path) -> int:
        """How many pages a PDF has. Raises `UndecodableImage` when it cannot be opened or has none."""
        if count := len(self._opened(path)):
            return count
        raise UndecodableImage("the PDF has no pages")

    def draw(self, path: Path, page: int, dpi: int) -> bytes:
        """The page, counted from 0, as a PNG in grey or RGB: its crop box, upright, with annotations and form fields.

        `dpi` is lowered for a page that would have more than `MAX_PIXELS`. Raises `UndecodableImage`.
        """
        import cv2
        from pypdfium2 import PdfiumError

        try:
            drawn = self._opened(path)[page]
            scale = _scale(*drawn.get_size(), dpi)
            pixels = drawn.render(scale=scale).to_numpy()  # pyright: ignore[reportArgumentType]
            drawn.close()
            return _png(pixels)
        except (PdfiumError, cv2.error, MemoryError) as error:
            raise UndecodableImage(f"the page cannot be drawn: {error}") from None

    def _opened(self, path: Path) -> "PdfDocument":
        from pypdfium2 import PdfDocument, PdfiumError, raw

        if self._document is not None and self._path == path:
            return self._document
        if self._document is not None:
            self._document.close()
            self._path = self._document = None
        # PdfDocument(path) takes a PDF without pages for one with the fault of the PDF before.
        handle = raw.FPDF_LoadDocument(os.fsencode(path) + b"\0", None)
        if not handle:
            reasons = {
                raw.FPDF_ERR_FILE: "the PDF cannot be read",
                raw.FPDF_ERR_PASSWORD: "the PDF wants a password: save it without one",
                raw.FPDF_ERR_SECURITY: "the PDF is locked in a way that PDFium does not know",
            }
            raise UndecodableImage(reasons.get(raw.FPDF_GetLastError(), "the file is damaged or no PDF"))
        try:
            document = PdfDocument(handle)
            # PDFium draws form fields only where this came before the first page.
            document.init_forms()
        except PdfiumError as error:
            raise UndecodableImage(f"the PDF cannot be opened: {error}") from None
        self._path, self._document = path, document
        return document


def _scale(width: float, height: float, dpi: int) -> float:
    """Pixels to the point: `dpi`, or the most at which both sides, rounded up, make no more than `MAX_PIXELS`."""
    scale = dpi / _POINTS
    if math.ceil(width * scale) * math.ceil(height * scale) <= MAX_PIXELS:
        return scale
    # Of (width·s + 1)(height·s + 1) = MAX_PIXELS, the positive root.
    area, half = width * height, (width + height) / 2
    return (math.sqrt(half * half + area * (MAX_PIXELS - 1)) - half) / area


def _png(page: "np.ndarray") -> bytes:
    """BGR pixels as a PNG, of one channel when all three are the same: it decodes to the same page.

    Of the encoders at hand this is the fastest for drawn pages, and they take no more room unfiltered.
    """
    import cv2
    import numpy as np

    blue, green, red = (page[..., channel] for channel in range(3))
    grey = np.array_equal(blue, green) and np.array_equal(green, red)
    manner = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_DEFAULT]
    manner += [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE]
    _, data = cv2.imencode(".png", np.ascontiguousarray(blue) if grey else page, manner)
    return data.tobytes()
