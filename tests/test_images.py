"""Page images: what is taken, what is turned away and why, and what the pixels are."""

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from resources.errors import UndecodableImage
from resources.pages.images import MAX_PIXELS, ImageInfo, decode, inspect
from resources.pages.page import Page
from tests.corpora import page_image

ROTATED = 6
"""EXIF orientation of a page that was scanned on its side."""


def encoded(image: Image.Image, format: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def png_that_declares(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header declares a size, with no pixels behind it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def sideways(size: tuple[int, int], format: str) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = ROTATED
    image = Image.new("RGB", size, "white")
    image.paste("black", (0, 0, size[0] // 2, size[1] // 2))
    return encoded(image, format, exif=exif)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_formats_taken(format: str) -> None:
    data = page_image(size=(50, 70), format=format)
    assert inspect(data) == ImageInfo(format, 50, 70)
    assert inspect(memoryview(data)) == ImageInfo(format, 50, 70)
    assert decode(memoryview(data)).shape == (70, 50, 3)


OTHERS = [page_image(size=(32, 32), format=format) for format in ("GIF", "BMP", "PPM", "ICO")]


@pytest.mark.parametrize("data", [*OTHERS, b"hello", "한글".encode(), b"%PDF-1.7", b"\x89PNG", bytes(100)])
@pytest.mark.parametrize("read", [inspect, decode])
def test_other_formats_are_turned_away(read: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(UndecodableImage, match=r"^not a PNG, JPEG, WEBP, TIFF image"):
        read(data)


def test_no_bytes() -> None:
    for read in (inspect, decode):
        for nothing in (b"", memoryview(b"")):
            with pytest.raises(UndecodableImage, match="has no bytes"):
                read(nothing)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")
@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("PNG", {}),
        ("JPEG", {}),
        ("WEBP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_adobe_deflate"}),
    ],
)
def test_cut_off_images_are_damaged(format: str, options: dict[str, Any]) -> None:
    data = page_image(format=format, **options)
    for size in (len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(UndecodableImage) as caught:
            inspect(data[:size])
        assert "\n" not in str(caught.value)


def test_changed_bytes_of_a_png_are_noticed() -> None:
    data = bytearray(page_image())
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(UndecodableImage, match="damaged"):
        inspect(bytes(data))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_rotated_page_is_upright(format: str) -> None:
    data = sideways((80, 40), format)
    assert inspect(data) == ImageInfo(format, 40, 80)
    pixels = decode(data)
    assert pixels.shape == (80, 40, 3)
    assert pixels[10, 30].max() < 50
    assert pixels[10, 10].min() > 200


def test_one_pixel() -> None:
    data = encoded(Image.new("RGB", (1, 1), (1, 2, 3)))
    assert inspect(data) == ImageInfo("PNG", 1, 1)
    assert decode(data).tolist() == [[[1, 2, 3]]]


def test_a_page_of_20000_px_is_turned_away_before_it_is_decoded() -> None:
    tracemalloc.start()
    try:
        for read in (inspect, decode):
            with pytest.raises(UndecodableImage, match="the page has more than 178,956,970 pixels; scale it down"):
                read(png_that_declares(20_000, 20_000))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_the_largest_pages_are_taken() -> None:
    assert inspect(encoded(Image.new("1", (20_000, 300)))) == ImageInfo("PNG", 20_000, 300)
    assert decode(encoded(Image.new("1", (20_000, 30)))).shape == (30, 20_000, 3)
    assert MAX_PIXELS > 9_933 * 14_043, "an A0 sheet at 300 dpi"


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    gray = Image.new("L", (16, 8), 255)
    gray.paste(0, (0, 0, 8, 8))
    if mode == "I;16":
        image = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    else:
        image = gray.convert("RGB").convert(mode) if mode in {"CMYK", "P"} else gray.convert(mode)
    pixels = decode(encoded(image, "TIFF" if mode == "CMYK" else "PNG"))
    assert (pixels.dtype, pixels.shape) == (np.uint8, (8, 16, 3))
    assert (pixels[:, :8] == 0).all()
    assert (pixels[:, 8:] == 255).all()


def test_colours_keep_their_order() -> None:
    assert decode(encoded(Image.new("RGB", (4, 4), (255, 0, 10))))[0, 0].tolist() == [255, 0, 10]


def test_transparency_is_paper() -> None:
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert (decode(encoded(image)) == 255).all()
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([0, 0, 0])
    assert (decode(encoded(palette, transparency=0)) == 255).all()


def test_a_page_is_decoded_once() -> None:
    page = Page("a_1", page_image())
    assert page.image is page.image
