"""Page images: which are accepted, which are refused and why, and their pixels."""

import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cv2
import imagecodecs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import UndecodableImage
from kopub.layout.cpu.engine import CpuLayout
from kopub.pages import page as page_images
from kopub.pages import rgb
from kopub.pages.page import MAX_PIXELS, ImageInfo, Page, decode, inspect, is_plain
from kopub.states import State
from tests.support.harness import Platform
from tests.support.installed import imported
from tests.support.sources.corpora import page_image, pages
from tests.support.sources.pngs import adam7, chunk, header, rows, with_right_checksums


def encoded(image: Image.Image, format: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def png_that_declares(width: int, height: int) -> bytes:
    """Return a small PNG whose header declares a size without pixels behind it."""
    return header(width, height) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND")


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


def _photo(**options: Any) -> bytes:
    """Return a JPEG whose pixels take most of its bytes."""
    noise = np.random.default_rng(0).integers(0, 256, (256, 192, 3), np.uint8)
    return encoded(Image.fromarray(noise), "JPEG", quality=90, **options)


def _ended_early(data: bytes) -> bytes:
    return data[: len(data) * 3 // 10] + b"\xff\xd9"


def _overwritten(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes(200) + data[at + 200 :]


ROTATED = Image.Exif()
ROTATED[0x0112] = 6


@pytest.mark.parametrize("damage", [_ended_early, _overwritten])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"exif": ROTATED}], ids=["plain", "progressive", "turned"]
)
def test_what_a_decoder_says_of_a_damaged_jpeg_is_kept(
    damage: Callable[[bytes], bytes], options: dict[str, Any]
) -> None:
    whole = _photo(**options)
    assert inspect(whole).damage is None
    info = inspect(damage(whole))
    assert info == replace(inspect(whole), damage=info.damage)
    assert "Corrupt JPEG data" in (info.damage or "")


@pytest.mark.parametrize("rest", [b"film" * 1000, bytes(5000)], ids=["film", "zeros"])
def test_what_comes_after_a_jpeg_is_no_damage(rest: bytes) -> None:
    whole = _photo()
    assert inspect(whole + rest) == inspect(whole)


def test_zeros_before_the_end_of_a_jpeg_are_no_damage() -> None:
    whole = _photo()
    assert inspect(whole[:-2] + bytes(64) + whole[-2:]).damage is None


def test_a_jpeg_in_four_inks_is_inspected() -> None:
    whole = encoded(Image.effect_noise((64, 64), 80).convert("CMYK"), "JPEG")
    assert inspect(whole).damage is None
    assert inspect(_ended_early(whole)).damage


@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
def test_a_png_that_ends_between_two_rows_is_none(mode: str) -> None:
    whole = encoded(Image.new(mode, (64, 64), 1))
    raw = zlib.decompress(whole[whole.index(b"IDAT") + 4 : whole.index(b"IEND") - 8])
    short = whole[:33] + chunk(b"IDAT", zlib.compress(raw[: len(raw) // 2])) + chunk(b"IEND")
    with pytest.raises(UndecodableImage, match="not decodable"):
        decode(short)


@pytest.mark.parametrize(
    ("samples", "format"),
    [
        (np.array([[0, 4095]], np.uint16), "PNG"),
        (np.array([[0, 4095]], np.uint16), "TIFF"),
        (np.array([[0, 65535]], np.uint16), "PNG"),
        (np.array([[0, 1.0]], np.float32), "TIFF"),
        (np.array([[0, 255.0]], np.float32), "TIFF"),
        (np.array([[0, 9000.0]], np.float32), "TIFF"),
    ],
)
def test_greys_of_more_than_8_bits_reach_white(samples: np.ndarray, format: str) -> None:
    assert decode(encoded(Image.fromarray(samples), format)).tolist() == [[[0] * 3, [255] * 3]]


def test_a_transparent_grey_of_16_bits_is_paper() -> None:
    data = encoded(Image.fromarray(np.array([[9, 30000, 65535]], np.uint16)), "PNG")
    at = data.index(b"IDAT") - 4
    clear = data[:at] + chunk(b"tRNS", struct.pack(">H", 9)) + data[at:]
    assert decode(clear)[0, :, 0].tolist() == [255, 117, 255]


@pytest.mark.parametrize("alpha", [(0, 255), (0, 0)], ids=["white print", "all transparent"])
def test_print_that_white_paper_hides_is_shown(alpha: tuple[int, int]) -> None:
    ground = 255 if alpha[1] else 0
    page = Image.new("RGBA", (2, 1), (ground, ground, ground, alpha[0]))
    page.putpixel((1, 0), (255, 255, 255, alpha[1]))
    assert decode(encoded(page))[0, :, 0].tolist() == [0, 255]


def test_changed_bytes_of_a_png_are_noticed() -> None:
    data = bytearray(page_image())
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(UndecodableImage, match="damaged"):
        inspect(bytes(data))


TURNS = [
    lambda pixels: pixels,
    np.fliplr,
    lambda pixels: np.rot90(pixels, 2),
    np.flipud,
    lambda pixels: pixels.transpose(1, 0, 2),
    lambda pixels: np.rot90(pixels, -1),
    lambda pixels: np.rot90(pixels, 2).transpose(1, 0, 2),
    np.rot90,
]
"""What EXIF orientations 1 to 8 ask for."""


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("JPEG", {}),
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
def test_a_rotated_page_is_upright(format: str, options: dict[str, Any], orientation: int) -> None:
    image = Image.new("L", (80, 40), "white")
    image.paste("black", (0, 0, 40, 24))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(image, format, exif=exif, **options)
    expected = TURNS[orientation - 1](np.asarray(image.convert("RGB")))
    height, width, _ = expected.shape
    assert inspect(data) == ImageInfo(format, width, height)
    assert np.array_equal(decode(data) > 127, expected > 127)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_turned_photo_with_a_tag_of_a_wrong_type_is_a_page(format: str) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "Camera"
    # Pillow reads a width in words, and fails to write it.
    tags = exif.tobytes().replace(struct.pack(">HH", 0x010F, 2), struct.pack(">HH", 0x0100, 2))
    data = encoded(Image.new("RGB", (80, 40), "white"), format, exif=tags)
    assert inspect(data) == ImageInfo(format, 40, 80)
    assert decode(data).shape == (80, 40, 3)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("tags", [b"Exif\0\0no tags", b"II*\0"])
def test_a_picture_whose_metadata_is_damaged_is_a_page_as_it_lies(format: str, tags: bytes) -> None:
    data = encoded(Image.new("RGB", (80, 40), "white"), format, exif=tags)
    assert inspect(data) == ImageInfo(format, 80, 40)
    assert is_plain(data)
    assert decode(data).shape == (40, 80, 3)


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


@pytest.mark.parametrize("kind", ["F", "RGBA"])
def test_a_large_page_is_made_in_strips(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rgb, "_STRIP", 1 << 16, raising=False)
    page = Image.new(kind, (1500, 1000), 0.5 if kind == "F" else (9, 9, 9, 255))
    page.paste(1 if kind == "F" else (1, 2, 3, 255), (0, 950, 1500, 1000))
    data = encoded(page, "TIFF")
    tracemalloc.start()
    try:
        pixels = decode(data)
        assert tracemalloc.get_traced_memory()[1] < 5 * 1500 * 1000
    finally:
        tracemalloc.stop()
    assert pixels[::500, 0].tolist() == ([[127] * 3] * 2 if kind == "F" else [[9] * 3] * 2)
    assert pixels[-1, -1].tolist() == ([255] * 3 if kind == "F" else [1, 2, 3])


def test_one_large_page_is_decoded_at_a_time() -> None:
    large = encoded(Image.new("1", (8_200, 4_100), 1))
    with ThreadPoolExecutor(1) as thread, page_images._alone:
        waiting = thread.submit(decode, large)
        assert decode(encoded(Image.new("1", (1, 1)))).shape == (1, 1, 3)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
    assert waiting.result(10).shape == (4_100, 8_200, 3)


def test_a_transparent_webp_that_would_take_all_memory_is_one_line() -> None:
    # 38 bytes: the header of a lossless WebP of 16,000 by 11,000 pixels with transparency, all of one colour.
    data = encoded(Image.new("RGBA", (8, 8), (1, 2, 3, 4)), "WEBP", lossless=True)
    at = data.index(b"VP8L") + 9
    sides = (16_000 - 1) | (11_000 - 1) << 14 | 1 << 28
    with pytest.raises(UndecodableImage, match=r"a WEBP of more than 70,000,000 pixels needs too much"):
        decode(data[:at] + sides.to_bytes(4, "little") + data[at + 4 :])


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


SIDE = 24
PIXELS = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), np.uint8)
"""No pixel is white."""
START, END = header(SIDE, SIDE), chunk(b"IEND")


STREAM = zlib.compress(rows(PIXELS))
IDAT = chunk(b"IDAT", STREAM)


def frame(number: int) -> bytes:
    return chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, SIDE, SIDE, 0, 0, 1, 1, 0, 0))


def black(number: int) -> bytes:
    return chunk(b"fdAT", struct.pack(">I", number) + zlib.compress(rows(np.zeros_like(PIXELS))))


TWO_FRAMES = chunk(b"acTL", struct.pack(">II", 2, 0))
ONE_FRAME = chunk(b"acTL", struct.pack(">II", 1, 0))


PLAIN = {
    "nothing more": START + IDAT + END,
    **{
        f"filter {filter}": cv2.imencode(".png", PIXELS[..., ::-1], [cv2.IMWRITE_PNG_FILTER, 8 << filter])[1].tobytes()
        for filter in range(5)
    },
    "stored": START + chunk(b"IDAT", zlib.compress(rows(PIXELS), 0)) + END,
    "many parts": START + b"".join(chunk(b"IDAT", STREAM[at : at + 7]) for at in range(0, len(STREAM), 7)) + END,
    "interlaced": header(SIDE, SIDE, interlaced=1) + chunk(b"IDAT", zlib.compress(adam7(PIXELS))) + END,
    "resolution, text": encoded(Image.fromarray(PIXELS), dpi=(300, 300)).replace(
        IDAT, chunk(b"tEXt", b"Title\0IDAT") + IDAT
    ),
    "gamma": START + chunk(b"gAMA", struct.pack(">I", 100_000)) + IDAT + END,
    "primaries": START
    + chunk(b"cHRM", struct.pack(">8I", 31270, 32900, 30000, 60000, 15000, 6000, 64000, 33000))
    + IDAT
    + END,
    "sRGB": START + chunk(b"sRGB", b"\0") + IDAT + END,
    "background": START + chunk(b"bKGD", struct.pack(">3H", 255, 0, 0)) + IDAT + END,
    "suggested palette": START + chunk(b"PLTE", bytes(9)) + IDAT + END,
    "upright": START + chunk(b"eXIf", b"II*\0\x08\0\0\0\x01\0\x12\1\3\0\1\0\0\0\1\0\0\0\0\0\0\0") + IDAT + END,
}
"""PNGs of `PIXELS` that both decoders read; OpenCV numbers filters as bits of a mask, 8 being the first."""
ODD = {
    "16 bit": header(SIDE, SIDE, depth=16)
    + chunk(b"IDAT", zlib.compress(rows((PIXELS * 256.0 + 7).astype(">u2"))))
    + END,
    "transparent colour": START + chunk(b"tRNS", struct.pack(">3H", 255, 255, 255)) + IDAT + END,
    "animated, but still": START + ONE_FRAME + frame(0) + IDAT + END,
    "animated before this": START + frame(0) + black(1) + IDAT + END,
    "wrong checksum of the last part": START + IDAT[:-1] + bytes([IDAT[-1] ^ 1]) + END,
    "no end": START + IDAT,
    "bytes behind the end": START + IDAT + END + b"more",
    "bytes behind the stream": START + chunk(b"IDAT", STREAM + b"more") + END,
    "too many rows": START + chunk(b"IDAT", zlib.compress(rows(PIXELS) + bytes(300))) + END,
    "wrong checksum of the end": START + IDAT + END[:-1] + b"?",
}
"""PNGs of `PIXELS` that are not given to Wuffs, or that it refuses."""
DAMAGED = {
    "cut off": START + IDAT[: len(IDAT) // 2],
    "no pixels": START + END,
    "too few rows": START + chunk(b"IDAT", zlib.compress(rows(PIXELS[:-1]))) + END,
    "wrong checksum of a part": START + chunk(b"IDAT", STREAM[:9])[:-1] + b"?" + chunk(b"IDAT", STREAM[9:]) + END,
    "wrong checksum of the stream": START + chunk(b"IDAT", STREAM[:-1] + bytes([STREAM[-1] ^ 1])) + END,
    "unknown filter": START + chunk(b"IDAT", zlib.compress(rows(PIXELS, filter=5))) + END,
    "unknown method": START + chunk(b"IDAT", b"\x79" + STREAM[1:]) + END,
    "palette of half a colour": START + chunk(b"PLTE", bytes(5)) + IDAT + END,
    "background before the palette": START + chunk(b"bKGD", bytes(6)) + chunk(b"PLTE", bytes(6)) + IDAT + END,
    "background before the palette, unknown interlacing": header(SIDE, SIDE, interlaced=2)
    + chunk(b"bKGD", bytes(6))
    + chunk(b"PLTE", bytes(6))
    + IDAT
    + END,
    "unknown chunk that matters": START + chunk(b"ABCD") + IDAT + END,
}


@pytest.fixture(params=["libspng", "Wuffs"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make PNG pages decode with libspng, then with Wuffs where it is installed."""
    if request.param == "libspng":
        monkeypatch.setattr(page_images, "_wuffs", lambda: None)
    else:
        imported("pywuffs")
    return request.param


@pytest.mark.parametrize("name", PLAIN)
def test_plain_pngs(name: str, decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, spng_decode, seen = PLAIN[name], imagecodecs.spng_decode, []
    monkeypatch.setattr(imagecodecs, "spng_decode", lambda data: seen.append(bytes(data)) or spng_decode(data))
    assert np.array_equal(decode(memoryview(data)), PIXELS)
    assert (data in seen) == (decoder == "libspng")


@pytest.mark.parametrize("name", ODD)
@pytest.mark.usefixtures("decoder")
def test_odd_pngs(name: str) -> None:
    assert np.array_equal(decode(ODD[name]), PIXELS)


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.usefixtures("decoder")
def test_damaged_pngs(name: str) -> None:
    with pytest.raises(UndecodableImage, match=r"^the image is not decodable: [^\n]+$") as caught:
        decode(DAMAGED[name])
    assert str(caught.value) == by_libspng(DAMAGED[name])


@pytest.mark.usefixtures("decoder")
def test_the_samples_are_as_pillow_reads_them() -> None:
    corpus = Path(__file__).resolve().parents[2] / "samples" / "corpus"
    for shard in sorted(corpus.glob("*.arrow")):
        page = pa.ipc.open_stream(shard).read_next_batch()["image"][0].as_py()["bytes"]
        with Image.open(io.BytesIO(page)) as image:
            assert np.array_equal(decode(page), np.asarray(image.convert("RGB")))


def outcome(data: bytes) -> object:
    """Return the pixels of a page, or why there are none."""
    try:
        return decode(data).tolist()
    except UndecodableImage as error:
        return str(error)


def by_libspng(data: bytes) -> object:
    with patch.object(page_images, "_wuffs", lambda: None):
        return outcome(data)


@given(
    st.sampled_from([*PLAIN.values(), *ODD.values(), *DAMAGED.values()]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3),
    st.booleans(),
)
def test_a_changed_png_becomes_the_same_through_both(
    data: bytes, changes: list[tuple[float, int]], checksums_too: bool
) -> None:
    imported("pywuffs")
    changed = bytearray(data)
    for place, bits in changes:
        # The first 24 bytes stay: the signature, and the sizes, which could ask for gigabytes.
        changed[24 + int(place * (len(data) - 24))] ^= bits
    page = with_right_checksums(bytes(changed)) if checksums_too else bytes(changed)
    assert outcome(page) == by_libspng(page)


def several(format: str, **options: Any) -> bytes:
    """Return a file of three pictures."""
    others = [Image.new("RGB", (30, 20), colour) for colour in ("red", "blue")]
    return encoded(Image.new("RGB", (30, 20), "white"), format, save_all=True, append_images=others, **options)


def jpeg_with(kind: int) -> bytes:
    """Return a JPEG of three pictures, the second of this kind (number of CIPA DC-007)."""
    data = several("MPO")
    # A TIFF header of 8 bytes and a directory of three tags precede the entries of 16 bytes each.
    second = data.index(b"MPF\0") + 4 + 8 + (2 + 3 * 12 + 4) + 16
    return data[:second] + struct.pack("<I", kind) + data[second + 4 :]


def tiff_with(subfile: int) -> bytes:
    """Return a TIFF of two pictures, the second with this subfile type."""
    other = Image.new("RGB", (15, 10), "red")
    other.encoderinfo = {"tiffinfo": {254: subfile}}
    page = Image.new("RGB", (30, 20), "white")
    return encoded(page, "TIFF", save_all=True, append_images=[other], compression="tiff_lzw")


SEVERAL = {
    "animated PNG": (several("PNG"), "the PNG holds 3 pictures and a page is one: save that one alone"),
    "PNG before an animation": (START + ONE_FRAME + IDAT + frame(0) + black(1) + END, "the PNG holds 2 pictures"),
    "animated PNG of two": (START + TWO_FRAMES + frame(0) + IDAT + frame(1) + black(2) + END, "the PNG holds 2"),
    "animated WebP": (several("WEBP"), "the WEBP holds 3 pictures"),
    "two views in a JPEG": (jpeg_with(0x020003), "the JPEG holds 2 pictures"),
    "TIFF of three pages": (several("TIFF"), "the TIFF holds 3 pages: save each as a file and a row of its own"),
    "compressed TIFF": (several("TIFF", compression="tiff_lzw"), "the TIFF holds 3 pages"),
}


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("read", [inspect, decode])
def test_a_file_of_several_pictures_is_no_page(read: Callable[[bytes], object], name: str) -> None:
    data, reason = SEVERAL[name]
    with pytest.raises(UndecodableImage, match=f"^{reason}"):
        read(data)


BESIDE_A_PAGE = {
    "thumbnail in a JPEG": jpeg_with(0x010001),
    "depth map in a JPEG": jpeg_with(0),
    "thumbnail in a TIFF": tiff_with(1),
    "mask in a TIFF": tiff_with(4),
}


@pytest.mark.parametrize("name", BESIDE_A_PAGE)
def test_what_lies_beside_a_picture_is_no_page(name: str) -> None:
    data = BESIDE_A_PAGE[name]
    assert inspect(data) == ImageInfo(name[-4:], 30, 20)
    assert (decode(data) == 255).all()


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_tiff_whose_second_page_is_cut_off_is_no_page() -> None:
    data = several("TIFF")
    with pytest.raises(UndecodableImage, match="damaged"):
        inspect(data[: len(data) // 2])


@pytest.mark.parametrize("read", [inspect, decode])
def test_a_png_without_pixels(read: Callable[[bytes], object]) -> None:
    with pytest.raises(UndecodableImage, match=r"the PNG has no pixels$"):
        read(START + END)


def test_pages_of_a_tiff_are_counted_up_to_a_thousand() -> None:
    data = encoded(Image.new("L", (4, 4)), "TIFF")
    (start,) = struct.unpack_from("<I", data, 4)
    (tags,) = struct.unpack_from("<H", data, start)
    directory = data[start : start + 2 + 12 * tags]
    following = range(len(data), len(data) + 2000 * (len(directory) + 4), len(directory) + 4)
    chain = b"".join(directory + struct.pack("<I", at + len(directory) + 4) for at in following)
    endless = data[: start + len(directory)] + struct.pack("<I", len(data)) + data[start + len(directory) + 4 :] + chain
    with pytest.raises(UndecodableImage, match="the TIFF holds 1,000 or more pages"):
        inspect(endless)


def test_a_palette_that_is_missing() -> None:
    with pytest.raises(UndecodableImage, match=r"^the image is not decodable: its palette is missing$"):
        decode(header(SIDE, SIDE, colour=3) + chunk(b"IDAT", zlib.compress(bytes(SIDE * (SIDE + 1)))) + END)


# Pages for which memory is short


def without_memory(*_: object) -> None:
    raise MemoryError("Unable to allocate 412. MiB for an array")


def test_a_page_for_which_memory_is_short_is_failed_and_made_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform.of(tmp_path, [pages("a_1", "a_2")])
    platform.engines["embedding"] = HashedEmbedder()
    with monkeypatch.context() as patch:
        patch.setattr(page_images, "_decode_plain", without_memory)
        platform.run("raw_pages,corpus_image_embeddings")
        ended = {(row["state"], row["reason"]) for row in platform.rows("corpus_image_embeddings").values()}
        assert ended == {("failed", "the image was not read: Unable to allocate 412. MiB for an array")}
    platform.run("raw_pages,corpus_image_embeddings")
    assert platform.states("corpus_image_embeddings") == {"a_1": State.OK, "a_2": State.OK}


def test_a_jpeg_of_more_scans_than_programs_write_is_not_decoded() -> None:
    """Each scan takes all pixels again: 125 kB of them kept a process for half an hour."""
    whole = page_image(format="JPEG", progressive=True)
    assert inspect(whole).damage is None
    last = whole[whole.rindex(b"\xff\xda") : -2]
    with pytest.raises(UndecodableImage, match="the JPEG is drawn in more than 100 scans: save it anew"):
        inspect(whole[:-2] + last * 100 + whole[-2:])


def test_a_layout_for_which_memory_is_short_is_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_images, "_decode_plain", without_memory)
    (found,) = CpuLayout().detect([Page("a_1", page_image())])
    assert found.state is State.FAILED


def test_a_header_for_which_memory_is_short_is_failed_and_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform.of(tmp_path, [pages("a_1")])
    with monkeypatch.context() as patch:
        patch.setattr(page_images, "_refuse_several", without_memory)
        platform.run("raw_pages")
        assert platform.states("raw_pages") == {"a_1": State.FAILED}
    platform.run("raw_pages")
    assert platform.states("raw_pages") == {"a_1": State.OK}
