"""A page image: its id, its encoded bytes, its format and size, and its pixels."""

import io
import math
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from PIL.Image import Transpose

from kopub.errors import UndecodableImage, UnreadImage, first_line, is_of_machine, visible
from kopub.processes import give_back

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile
    from PIL.TiffImagePlugin import TiffImageFile
    from pywuffs.aux import ImageDecoderConfig

DPI = 300
"""The usual resolution of scans, which OCR engines expect, and that of the pages of SDS KoPub."""
MAX_ID_BYTES = 200
"""Most UTF-8 bytes of an id. File systems allow names of 255 bytes; the rest is for an index and an extension."""


def problem_with_id(page_id: str) -> str | None:
    """Return why `page_id` cannot be used, as the end of a sentence, else None."""
    tests = (
        (not page_id, "is empty"),
        (len(page_id.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES, f"is longer than {MAX_ID_BYTES} bytes"),
        (not page_id.isprintable(), "has characters that cannot be printed"),
        ("/" in page_id or "\\" in page_id, "has a slash"),
        (page_id in {".", ".."}, "names a folder"),
        (page_id != page_id.strip(), "begins or ends with a blank"),
    )
    for failed, problem in tests:
        if failed:
            return problem
    return None


@dataclass(frozen=True, slots=True)
class Batch:
    """The pages that a shard's table lacks, processed together, one after another."""

    shard: str
    pages: int


LEAST_PACKED = 4_000_000
"""Pixels of a page from which decoding it anew is worth avoiding: A4 at 170 dpi."""


@dataclass(frozen=True, slots=True)
class PackedPixels:
    """The RGB pixels of a page, compressed by LZ4.

    Those of a printed page take 3 ms to unpack, where its PNG takes 40 to decode, and less memory than the PNG.
    """

    width: int
    height: int
    data: bytes

    @classmethod
    def of(cls, pixels: np.ndarray) -> "PackedPixels | None":
        """Pack pixels, unless they are few, or would hardly shrink."""
        import pyarrow as pa

        height, width = pixels.shape[:2]
        data = pa.compress(pixels.data, "lz4_raw", asbytes=True) if height * width >= LEAST_PACKED else None
        return cls(width, height, data) if data and 2 * len(data) <= pixels.nbytes else None

    def unpack(self) -> np.ndarray:
        import pyarrow as pa

        pixels = pa.decompress(self.data, self.width * self.height * 3, "lz4_raw")
        return np.frombuffer(pixels, np.uint8).reshape(self.height, self.width, 3)


Picture = bytes | memoryview | PackedPixels


@dataclass(frozen=True)
class Page:
    """One page image.

    `data` is the encoded file as the source holds it (PNG, JPEG, WebP or TIFF). `batch` describes the pages processed
    together with it, if known, and `packed` are its pixels, if the run has decoded it before.
    """

    page_id: str
    data: bytes | memoryview
    batch: Batch | None = None
    packed: PackedPixels | None = None

    @cached_property
    def image(self) -> np.ndarray:
        """RGB pixels, uint8 (height, width, 3), upright. Raises `UndecodableImage`."""
        return decode(self.packed or self.data)


FORMATS = ("PNG", "JPEG", "WEBP", "TIFF")
MAX_PIXELS = 178_956_970
"""Largest page accepted, in pixels: Pillow's own limit, 540 MB decoded. An A0 sheet at 300 dpi has 139 million."""

_LARGE = 1 << 25
"""Pixels from which on a page is worked on alone."""
_alone = RLock()
_MOST_CLEAR_WEBP = 70_000_000
"""Most pixels of a WebP with transparency, whose decoder takes 28 bytes for each."""

_PLAIN_MODES = frozenset({"RGB", "L", "1"})
_UPRIGHT = 1
_SIDEWAYS = frozenset({5, 6, 7, 8})
_EXIF_ORIENTATION = 0x0112
_TIFF_SUBFILE = 0x00FE
_COPY, _MASK = 0b001, 0b100
"""Bits of the TIFF subfile tag: a smaller copy of another picture, and a mask for one."""
_TIFF_COMPRESSION = 0x0103
_SCAN, _MOST_SCANS = b"\xff\xda", 100
"""The mark of a scan of a JPEG, and the most that are decoded: programs write ten, and each takes all pixels again."""
_MOST_COUNTED = 1000
"""Most pictures of a TIFF that are counted; a hostile one could have millions."""
_MP_ENTRIES = 0xB002
_MULTI_FRAME = "Multi-Frame Image"
"""Pillow's name for further views in a JPEG: parts of a panorama, other angles, the other eye."""
_LONGEST_REASON = 200
_PNG_DEPTH = 24
"""Index of the byte of a PNG that gives the bits per sample."""
_PNG_HEADER = 33
"""Bytes of a PNG before its second chunk: the signature and IHDR."""
_CHUNK_HEADER = 8
"""Bytes of a PNG chunk before its content: length and type."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The size, format and damage of an encoded page.

    `width` and `height` are those of the upright page, in pixels. `damage` is a decoder's message about lost parts.
    """

    format: str
    width: int
    height: int
    damage: str | None = None


def inspect(data: Picture) -> ImageInfo:
    """Check a page, and return its format, size and damage.

    The file must be whole and hold one picture. PNG chunks are checked against their CRCs. A JPEG must have its end
    marker, and is decoded to find damaged parts; so is a TIFF, and one with fax data twice. Raises only
    `UndecodableImage`, with a reason that a person can understand.
    """
    # A search opens no picture.
    from kopub.pages.damage import fax_damage, jpeg_damage

    if isinstance(data, PackedPixels):
        return ImageInfo("", data.width, data.height)
    with _open(data, "the image is damaged: {error}") as image:
        # Pillow has already turned a TIFF.
        is_sideways = image.format != "TIFF" and _orientation(image) in _SIDEWAYS
        width, height = image.size[::-1] if is_sideways else image.size
        info = ImageInfo(_format(image), width, height)
        if info.format == "TIFF":
            image.load()
            if is_fax(image):
                info = replace(info, damage=fax_damage(data))
        else:
            image.verify()
        if info.format == "JPEG":
            info = replace(info, damage=jpeg_damage(data))
    return info


def is_plain(data: bytes | memoryview) -> bool:
    """Return whether all decoders give the same page. Raises `UndecodableImage`.

    They do for an upright page without alpha or a palette.
    """
    with _open(data, "the image is damaged: {error}") as image:
        upright = _orientation(image) == _UPRIGHT
        return image.mode in _PLAIN_MODES and upright and "transparency" not in image.info


def decode(data: Picture) -> np.ndarray:
    """Return RGB pixels, uint8 (height, width, 3), upright, transparency on white.

    Plain 8-bit pages go through OpenCV or, if PNG, libspng, which are faster than Pillow and release the GIL; colour
    PNGs go through Wuffs if pywuffs is installed, which gives the same pixels in half the time. Everything else (alpha,
    palette, CMYK, 16 bit, floats, EXIF rotation) goes through Pillow. A damaged JPEG gives what can be drawn
    (`ImageInfo.damage`). Raises only `UndecodableImage`.
    """
    if isinstance(data, PackedPixels):
        return data.unpack()
    with room_for(data), _open(data, "the image is not decodable: {error}") as image:
        if image.format == "WEBP" and image.mode != "RGB" and math.prod(image.size) > _MOST_CLEAR_WEBP:
            form = "a {format} of more than {pixels:,} pixels needs too much memory: save it as TIFF or PNG"
            raise UndecodableImage(form, format="WEBP", pixels=_MOST_CLEAR_WEBP)
        upright = _orientation(image) == _UPRIGHT
        if image.mode in _PLAIN_MODES and upright and "transparency" not in image.info:
            pixels = _decode_plain(data, image)
            # Boxes refer to the size that `inspect` returns, which is Pillow's.
            if pixels is not None and pixels.shape == (image.height, image.width, 3):
                return pixels
        if image.mode == "P" and image.palette is None:
            raise UndecodableImage("the image is not decodable: {error}", error="its palette is missing")
        page = image if upright else turned(image)
        from kopub.pages.rgb import draw_rgb

        pixels = np.empty((page.height, page.width, 3), np.uint8)
        # Transparency is on white, on black, or opaque: the first that shows something.
        for paper in ("white", "black", None) if page.has_transparency_data else (None,):
            draw_rgb(page, paper, pixels)
            if not page.has_transparency_data or np.ptp(pixels, axis=(0, 1)).any():
                return pixels
        pixels.fill(255)
        return pixels


@contextmanager
def room_for(data: bytes | memoryview) -> Iterator[None]:
    """Let one large page be worked on at a time, for want of memory."""
    is_large = False
    with suppress(Exception), Image.open(io.BytesIO(data), formats=FORMATS) as image:  # whoever decodes it says why not
        is_large = math.prod(image.size) > _LARGE
    with _alone if is_large else nullcontext():
        yield
    if is_large:
        give_back()


def _decode_plain(data: bytes | memoryview, image: "ImageFile") -> np.ndarray | None:
    """Return the RGB pixels of a plain page, or None if Pillow must decode it.

    A plain page is upright and has no alpha or palette. Pillow must also decode pages that other decoders refuse.
    """
    import cv2
    import imagecodecs

    if image.format == "PNG":
        # Pillow's mode is RGB for 16-bit samples too.
        if data[_PNG_DEPTH] == 16:
            return None
        pixels = _decode_by_wuffs(data, image) if image.mode == "RGB" else None
        if pixels is None:
            pixels = imagecodecs.spng_decode(data)  # pyright: ignore[reportArgumentType]
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB) if pixels.ndim == 2 else pixels
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)


def _decode_by_wuffs(data: bytes | memoryview, image: "ImageFile") -> np.ndarray | None:
    """Return the RGB pixels of an 8-bit colour PNG, else None.

    Also None without pywuffs, and for pages that libspng must judge, because the result must not depend on whether
    pywuffs is installed. Wuffs is the stricter of the two about the pixels, and libspng about the chunks before them;
    so libspng reads those chunks here, wrapped around a single pixel. Animations are left to libspng, because the two
    may show different pictures.
    """
    import imagecodecs

    wuffs = _wuffs()
    if wuffs is None or not image.tile:
        return None
    config, pixel = wuffs
    chunks = bytes(data[_PNG_HEADER : image.tile[0].offset - _CHUNK_HEADER])
    if b"acTL" in chunks:
        return None
    try:
        imagecodecs.spng_decode(pixel[:_PNG_HEADER] + chunks + pixel[_PNG_HEADER:])
    except imagecodecs.SpngError:
        return None

    from pywuffs.aux import ImageDecoder

    # The decoder takes anything other than bytes for a path.
    page = ImageDecoder(config).decode(bytes(data))
    return None if page.error_message else page.pixbuf


@cache
def _wuffs() -> "tuple[ImageDecoderConfig, bytes] | None":
    """Return Wuffs' configuration, and an 8-bit colour PNG with one pixel.

    None without pywuffs, an extra that must be compiled.
    """
    import imagecodecs

    try:
        from pywuffs import ImageDecoderQuirks, ImageDecoderType, PixelFormat
        from pywuffs.aux import ImageDecoderConfig
    except ModuleNotFoundError:
        return None
    config = ImageDecoderConfig()
    config.enabled_decoders = [ImageDecoderType.PNG]
    config.pixel_format = PixelFormat.RGB
    # By default Wuffs does not verify the checksums of a PNG.
    config.quirks = {ImageDecoderQuirks.IGNORE_CHECKSUM: 0}
    # Signature, IHDR, IDAT and IEND.
    return config, bytes(imagecodecs.spng_encode(np.zeros((1, 1, 3), np.uint8)))


@contextmanager
def _open(data: bytes | memoryview, form: str) -> "Iterator[ImageFile]":
    """Yield the image with its header read; turn any fault into `UndecodableImage`."""
    if not data:
        raise UndecodableImage("the image has no bytes")
    # Pillow warns about large pages that are allowed here. The filter stays set, as resetting it is not thread-safe.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.format == "PNG" and not image.tile:
                raise UndecodableImage(form, error="the PNG has no pixels")
            _refuse_several(image)
            if _format(image) == "JPEG" and bytes(data).count(_SCAN) > _MOST_SCANS:
                raise UndecodableImage("the JPEG is drawn in more than {most} scans: save it anew", most=_MOST_SCANS)
            yield image
    except UndecodableImage:
        raise
    except Image.UnidentifiedImageError:
        start = bytes(data[:8])
        form = "not a {formats} image (it starts with {start})"
        raise UndecodableImage(form, formats=", ".join(FORMATS), start=repr(start)) from None
    except Image.DecompressionBombError:
        raise UndecodableImage("the page has more than {pixels:,} pixels; scale it down", pixels=MAX_PIXELS) from None
    # Pillow and the decoders raise many kinds of exceptions for hostile bytes, and one page must not end a shard.
    except Exception as error:
        reason = visible(first_line(error), _LONGEST_REASON)
        if is_of_machine(error):
            raise UnreadImage("the image was not read: {error}", error=reason) from None
        raise UndecodableImage(form, error=reason) from None


def _format(image: "ImageFile") -> str:
    """Return one of `FORMATS`; Pillow calls a JPEG with further pictures MPO."""
    return "JPEG" if image.format == "MPO" else image.format or ""


def _refuse_several(image: "ImageFile") -> None:
    """Raise `UndecodableImage` for several pictures, of which all but one would be lost."""
    name = _format(image)
    if name == "TIFF":
        # Pillow sets `is_animated` after reading the first directory; `n_frames` would read them all.
        pages = len(tiff_frames(image, _MOST_COUNTED)) if image.is_animated else 1  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
        if pages > 1:
            count = f"{pages:,}" if pages < _MOST_COUNTED else f"{_MOST_COUNTED:,} or more"
            form = "the TIFF holds {count} pages: save each as a file and a row of its own"
            raise UndecodableImage(form, count=count)
        return
    pictures = getattr(image, "n_frames", 1)
    if name == "JPEG":
        # Thumbnails, and a phone's depth and gain maps, are no further views.
        entries = getattr(image, "mpinfo", {}).get(_MP_ENTRIES, ())
        pictures = 1 + sum(entry["Attribute"]["MPType"].startswith(_MULTI_FRAME) for entry in entries[1:])
    if pictures > 1:
        form = "the {format} holds {count:,} pictures and a page is one: save that one alone"
        raise UndecodableImage(form, format=name, count=pictures)


def tiff_frames(image: "TiffImageFile", most: int | None = None) -> list[int]:
    """Return the numbers of a TIFF's pictures that are pages.

    These are the first picture and all others except masks and smaller copies. A picture that is marked as a smaller
    copy but has more than half of the pixels is a page. At most `most` pictures are examined. Raises what Pillow raises
    for a damaged file.
    """
    pages, at, largest = [0], 1, math.prod(image.size)
    while most is None or at < most:
        try:
            image.seek(at)
        except EOFError:
            break
        kind, size = int(image.tag_v2.get(_TIFF_SUBFILE, 0)), math.prod(image.size)
        if not kind & _MASK and not (kind & _COPY and size < largest / 2):
            pages.append(at)
            largest = max(largest, size)
        at += 1
    image.seek(0)
    return pages


def is_fax(image: "ImageFile") -> bool:
    """Return whether a TIFF's current picture is fax data of Group 4."""
    from kopub.pages.damage import GROUP_4

    return image.tag_v2.get(_TIFF_COMPRESSION) == GROUP_4  # pyright: ignore[reportAttributeAccessIssue]


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; for a PNG, from chunks before the pixels only.

    To read later chunks, Pillow would decode the whole PNG.
    """
    if image.format == "PNG" and "exif" not in image.info:
        return _UPRIGHT
    try:
        return image.getexif().get(_EXIF_ORIENTATION, _UPRIGHT)
    except (SyntaxError, struct.error):
        # Damaged metadata makes no page unreadable; Pillow itself ignores it in a JPEG.
        return _UPRIGHT


def turned(image: "ImageFile") -> Image.Image:
    """Return the page as its EXIF orientation turns it.

    Pillow's own function also writes the metadata anew, which fails if a tag has a value of a wrong type.
    """
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    # A TIFF is turned when it is loaded, and then has no orientation.
    image.load()
    turn = turns.get(_orientation(image))
    return image if turn is None else image.transpose(turn)
