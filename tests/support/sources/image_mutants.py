"""Forty encoded pages and their mutants, which are reproducible by number."""

import io
import struct
import zlib
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from tests.support.sources.pngs import SIGNATURE, adam7, chunk, chunks, header, rows, with_right_checksums

WIDTH, HEIGHT = 44, 30
_NUMBERS = (0, 1, 2, 3, 7, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
"""Integers that often break parsers."""
_HEAD = 220
"""Size of the beginning of a file, where most of its structure is."""


@cache
def seeds() -> dict[str, bytes]:
    """Return forty pages by name, which cover the modes, compressions and orientations of four formats."""
    noise = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    noise[4:12, 6:30] = 255
    rgb = Image.fromarray(noise)
    alpha = rgb.convert("RGBA")
    alpha.putalpha(rgb.convert("L"))
    deep = Image.fromarray(np.asarray(rgb.convert("L")).astype(np.uint16) * 257)
    other = Image.new("RGB", (WIDTH, HEIGHT), "blue")
    several = {"save_all": True, "append_images": [other, rgb]}
    wide = zlib.compress(rows((noise.astype(np.uint16) * 257).astype(">u2")))
    return {
        "PNG 1": _encoded(rgb.convert("1"), "PNG"),
        "PNG L": _encoded(rgb.convert("L"), "PNG"),
        "PNG LA": _encoded(alpha.convert("LA"), "PNG"),
        "PNG P": _encoded(rgb.convert("P"), "PNG"),
        "PNG P transparent": _encoded(rgb.convert("P"), "PNG", transparency=3),
        "PNG RGB": _encoded(rgb, "PNG", dpi=(300, 300)),
        "PNG RGB transparent": _encoded(rgb, "PNG", transparency=(255, 255, 255)),
        "PNG RGBA": _encoded(alpha, "PNG"),
        "PNG I;16": _encoded(deep, "PNG"),
        "PNG RGB 16 bit": header(WIDTH, HEIGHT, depth=16) + chunk(b"IDAT", wide) + chunk(b"IEND"),
        "PNG interlaced": header(WIDTH, HEIGHT, interlaced=1)
        + chunk(b"IDAT", zlib.compress(adam7(noise)))
        + chunk(b"IEND"),
        "PNG turned": _encoded(rgb, "PNG", exif=_exif(6)),
        "PNG animated": _encoded(rgb, "PNG", **several),
        "JPEG L": _encoded(rgb.convert("L"), "JPEG"),
        "JPEG RGB": _encoded(rgb, "JPEG", dpi=(300, 300)),
        "JPEG progressive": _encoded(rgb, "JPEG", progressive=True, subsampling=0),
        "JPEG CMYK": _encoded(rgb.convert("CMYK"), "JPEG"),
        "JPEG with restarts": _encoded(rgb, "JPEG", restart_marker_blocks=2, comment=b"a page"),
        "JPEG turned": _encoded(rgb, "JPEG", exif=_exif(6)),
        "JPEG of several": _encoded(rgb, "MPO", **several),
        "WEBP lossy": _encoded(rgb, "WEBP"),
        "WEBP lossless": _encoded(rgb, "WEBP", lossless=True),
        "WEBP RGBA": _encoded(alpha, "WEBP", lossless=True),
        "WEBP turned": _encoded(rgb, "WEBP", exif=_exif(8)),
        "WEBP animated": _encoded(rgb, "WEBP", **several),
        "TIFF 1": _encoded(rgb.convert("1"), "TIFF"),
        "TIFF 1 group 3": _encoded(rgb.convert("1"), "TIFF", compression="group3"),
        "TIFF 1 group 4": _encoded(rgb.convert("1"), "TIFF", compression="group4"),
        "TIFF L": _encoded(rgb.convert("L"), "TIFF"),
        "TIFF LA": _encoded(alpha.convert("LA"), "TIFF"),
        "TIFF P": _encoded(rgb.convert("P"), "TIFF", compression="packbits"),
        "TIFF RGB": _encoded(rgb, "TIFF", dpi=(300, 300)),
        "TIFF RGB LZW": _encoded(rgb, "TIFF", compression="tiff_lzw"),
        "TIFF RGB deflate": _encoded(rgb, "TIFF", compression="tiff_adobe_deflate"),
        "TIFF RGB JPEG": _encoded(rgb, "TIFF", compression="jpeg"),
        "TIFF RGBA": _encoded(alpha, "TIFF", compression="tiff_lzw"),
        "TIFF I;16": _encoded(deep, "TIFF"),
        "TIFF CMYK": _encoded(rgb.convert("CMYK"), "TIFF", compression="tiff_lzw"),
        "TIFF turned": _encoded(rgb, "TIFF", exif=_exif(5)),
        "TIFF of several": _encoded(rgb, "TIFF", **several),
    }


def mutant(number: int) -> tuple[str, bytes]:
    """Return a seed's name and its mutant; half of the PNG ones get correct checksums."""
    chance = Random(number)
    name = list(seeds())[number % len(seeds())]
    data = seeds()[name]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        data = chance.choice((*_ANY, *_IN_FORMAT[name.split()[0]]))(data, chance)
    return name, with_right_checksums(data) if data.startswith(SIGNATURE) and chance.random() < 0.5 else data


Mutation = Callable[[bytes, Random], bytes]


def _flip(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        if changed:
            changed[_place(data, chance)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _number(data: bytes, chance: Random) -> bytes:
    at, size = _place(data, chance), chance.choice((1, 2, 4))
    value = chance.choice(_NUMBERS) % 256**size
    return data[:at] + value.to_bytes(size, chance.choice(("big", "little"))) + data[at + size :]


def _truncate(data: bytes, chance: Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _drop(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + data[at + chance.choice((1, 2, 4, 12, 100)) :]


def _repeat(data: bytes, chance: Random) -> bytes:
    at, size = _place(data, chance), chance.choice((1, 2, 4, 12, 100))
    return data[: at + size] + data[at:]


def _splice(data: bytes, chance: Random) -> bytes:
    other = chance.choice(list(seeds().values()))
    return data[: _place(data, chance)] + other[_place(other, chance) :]


def _png(data: bytes, chance: Random) -> bytes:
    """Drop, repeat, rename, swap or shorten a chunk, with correct checksums."""
    found = chunks(data)
    if not found:
        return data
    at, other = chance.randrange(len(found)), chance.randrange(len(found))
    kind, content = found[at]
    kinds = (b"IHDR", b"PLTE", b"IDAT", b"tRNS", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"iCCP", b"zTXt", b"gAMA", b"pHYs")
    edit = chance.randrange(5)
    if edit == 0:
        del found[at]
    elif edit == 1:
        found.insert(other, found[at])
    elif edit == 2:
        found[at] = chance.choice(kinds), content
    elif edit == 3:
        found[at], found[other] = found[other], found[at]
    else:
        found[at] = kind, content[: chance.randrange(len(content) + 1)]
    return SIGNATURE + b"".join(chunk(*each) for each in found)


def _tiff(data: bytes, chance: Random) -> bytes:
    """Change a field of the first directory, or the offset of the next one."""
    if data[:2] not in (b"II", b"MM") or len(data) < 8:
        return data
    order = "<" if data[:2] == b"II" else ">"
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    if start + 2 > len(data):
        return data
    (entries,) = struct.unpack_from(f"{order}H", data, start)
    at = start + 2 + 12 * chance.randrange(entries + 1)
    offset, size = chance.choice(((0, 2), (2, 2), (4, 4), (8, 4), (8, 2), (0, 4)))
    value = chance.choice((*_NUMBERS, chance.randrange(254, 350), start, chance.randrange(14)))
    number = (value % 256**size).to_bytes(size, "little" if order == "<" else "big")
    return data[: at + offset] + number + data[at + offset + size :]


def _jpeg(data: bytes, chance: Random) -> bytes:
    """Drop, repeat, rename or shorten a segment before the scan."""
    found, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        (length,) = struct.unpack_from(">H", data, at + 2)
        found.append((at, at + 2 + length))
        at += 2 + length
    if not found:
        return data
    begin, end = chance.choice(found)
    edit = chance.randrange(4)
    if edit == 0:
        return data[:begin] + data[end:]
    if edit == 1:
        return data[:end] + data[begin:]
    if edit == 2:
        return data[: begin + 1] + bytes([chance.randrange(0xC0, 0x100)]) + data[begin + 2 :]
    return data[: begin + 2] + struct.pack(">H", chance.choice(_NUMBERS) % 65536) + data[begin + 4 :]


def _webp(data: bytes, chance: Random) -> bytes:
    """Drop, repeat, rename or resize a chunk of the RIFF container, whose length stays correct."""
    found, at = [], 12
    while at + 8 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 4)
        found.append(data[at : at + 8 + length + length % 2])
        at += 8 + length + length % 2
    if not found:
        return data
    at = chance.randrange(len(found))
    edit = chance.randrange(4)
    if edit == 0:
        del found[at]
    elif edit == 1:
        found.insert(chance.randrange(len(found) + 1), found[at])
    elif edit == 2:
        kinds = (b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"EXIF", b"ICCP")
        found[at] = chance.choice(kinds) + found[at][4:]
    else:
        found[at] = found[at][:4] + struct.pack("<I", chance.choice(_NUMBERS)) + found[at][8:]
    body = b"WEBP" + b"".join(found)
    return b"RIFF" + struct.pack("<I", len(body)) + body


_ANY: tuple[Mutation, ...] = (_flip, _flip, _number, _number, _truncate, _drop, _repeat, _splice)
_IN_FORMAT: dict[str, tuple[Mutation, ...]] = {
    "PNG": (_png,) * 4,
    "TIFF": (_tiff,) * 4,
    "JPEG": (_jpeg,) * 4,
    "WEBP": (_webp,) * 4,
}


def _place(data: bytes, chance: Random) -> int:
    """Choose a position, half of the time in the head of the file."""
    return chance.randrange(max(1, min(len(data), _HEAD) if chance.random() < 0.5 else len(data)))


def _encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    # Saving leaves options of the format on an image, which would confuse the next format.
    if "append_images" in options:
        options["append_images"] = [other.copy() for other in options["append_images"]]
    image.copy().save(file, format, **options)
    return file.getvalue()


def _exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif
