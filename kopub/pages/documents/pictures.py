"""Pages of image files: the file's own bytes if it is one page, else PNGs."""

import io
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from kopub.errors import UndecodableImage, first_line, is_of_machine, visible
from kopub.fingerprints import CodeVersion
from kopub.pages.damage import fax_damage
from kopub.pages.documents.text_layer import Extent, RenderedImage
from kopub.pages.page import is_fax, tiff_frames, turned
from kopub.pages.rgb import is_deep, to_8_bits

CODE = CodeVersion(
    "pages.pictures",
    {
        1: "the first release",
        2: "damaged faxes are said, and pages of a TIFF that only say that they are smaller copies are pages",
        3: "pages of a TIFF with greys of 32 bits are not black or white; photos with damaged metadata are read",
    },
)
"""A new version takes every image in again."""

AS_THEY_ARE = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp"})
"""Suffixes of files whose bytes are taken as a page."""
TIFF = frozenset({".tif", ".tiff"})
HEIF = "HEIF"
_JPEG2000 = "JPEG2000"
CONVERTED = {
    ".bmp": "BMP",
    ".gif": "GIF",
    ".jp2": _JPEG2000,
    ".j2k": _JPEG2000,
    ".jpx": _JPEG2000,
    ".avif": "AVIF",
    ".heic": HEIF,
    ".heif": HEIF,
}
"""Suffixes of files that become PNGs of the same pixels, with Pillow's name for their format."""
SUFFIXES = AS_THEY_ARE | TIFF | CONVERTED.keys()

_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA"})
"""Pixel modes that a PNG can hold unchanged."""
_MOST_JPEG2000 = 70_000_000
"""Most pixels of a JPEG 2000, whose decoder takes 19 bytes for each in colour."""
_LONGEST_REASON = 200


class Pictures:
    """Image files as documents.

    The last TIFF stays open, because its pages are read one after another. All methods raise `OSError` for a file that
    cannot be read now, and `MemoryError`. `open_file` opens one.
    """

    def __init__(self, open_file: Callable[[Path], BinaryIO] = io.FileIO) -> None:
        self._open_file = open_file
        # Pillow warns about large pages that are allowed here.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        self._path: Path | None = None
        self._image: TiffImageFile | None = None
        self._frames: list[int] = []

    def pages(self, path: Path) -> int:
        """Count a TIFF's pages, or 1 for others. Raises `UndecodableImage` for a damaged TIFF."""
        if path.suffix.lower() not in TIFF:
            return 1
        if self._path == path:
            return len(self._frames)
        if self._image is not None:
            self._image.close()
            self._path = self._image = None
        try:
            image = Image.open(self._open_file(path), formats=["TIFF"])
            assert isinstance(image, TiffImageFile)
            self._frames = tiff_frames(image)
        except Exception as error:
            if is_of_machine(error):
                raise
            raise _unusable(error) from None
        self._path, self._image = path, image
        return len(self._frames)

    def count(self, path: Path) -> Extent:
        """Return the count of `pages`; an image has no attachments."""
        return Extent(self.pages(path))

    def render(self, path: Path, page: int, dpi: int) -> bytes:
        """Return the page, counted from 0, encoded; `dpi` has no effect. Raises `UndecodableImage`.

        `raw_pages` finds out whether bytes that are taken unchanged can be decoded.
        """
        suffix = path.suffix.lower()
        try:
            if suffix in TIFF:
                if self.pages(path) == 1:
                    return self._bytes(path)
                assert self._image is not None
                self._image.seek(self._frames[page])
                return _png(self._image)
            if suffix in CONVERTED:
                format = CONVERTED[suffix]
                if format == HEIF and not heif_installed():
                    raise UndecodableImage("HEIC needs an extra: install kopub[heic], or save it as JPEG")
                with self._open_file(path) as file, Image.open(file, formats=[format]) as image:
                    if (pictures := getattr(image, "n_frames", 1)) > 1:
                        form = "the {format} holds {count:,} pictures and a page is one: save each as a file of its own"
                        raise UndecodableImage(form, format=format, count=pictures)
                    if format == _JPEG2000 and math.prod(image.size) > _MOST_JPEG2000:
                        form = "a {format} of more than {pixels:,} pixels needs too much memory: save it as TIFF or PNG"
                        raise UndecodableImage(form, format=format, pixels=_MOST_JPEG2000)
                    return _png(turned(image))
            return self._bytes(path)
        except UndecodableImage:
            raise
        # Pillow and its plugins raise many kinds of exceptions for hostile bytes.
        except Exception as error:
            if is_of_machine(error):
                raise
            raise _unusable(error) from None

    def make(self, path: Path, page: int, dpi: int) -> RenderedImage:
        """Return the page as `render` does, without a text layer. Raises `UndecodableImage`."""
        rendering = RenderedImage(self.render(path, page, dpi))
        if len(self._frames) > 1 and path == self._path and self._image is not None and is_fax(self._image):
            # The damage no longer shows in the page's PNG.
            return replace(rendering, damage=fax_damage(self._bytes(path), self._frames[page]))
        return rendering

    def _bytes(self, path: Path) -> bytes:
        with self._open_file(path) as file:
            return file.read()


def heif_installed() -> bool:
    """Return whether HEIC files can be read, which needs the extra `heic`."""
    try:
        import pillow_heif
    except ModuleNotFoundError:
        return False
    pillow_heif.register_heif_opener()
    return True


def _png(image: Image.Image) -> bytes:
    encoded = io.BytesIO()
    page = image
    if image.mode.startswith("I;16"):
        page = Image.fromarray(np.asarray(image).astype("<u2"))
    elif is_deep(image):
        page = Image.fromarray(to_8_bits(np.asarray(image)))
    elif image.mode not in _PNG_MODES:
        page = image.convert("RGBA" if image.has_transparency_data else "RGB")
    page.save(encoded, "PNG", compress_level=1, exif=b"")
    return encoded.getvalue()


def _unusable(error: Exception) -> UndecodableImage:
    return UndecodableImage("the image cannot be read: {error}", error=visible(first_line(error), _LONGEST_REASON))
