"""PNGs built by hand, chunk by chunk."""

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def header(width: int, height: int, depth: int = 8, colour: int = 2, interlaced: int = 0) -> bytes:
    return SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))


def rows(pixels: np.ndarray, filter: int = 0) -> bytes:
    """Return the scan lines of a PNG before compression; filter 0 changes nothing."""
    return b"".join(bytes([filter]) + row.tobytes() for row in pixels)


def adam7(pixels: np.ndarray) -> bytes:
    """Return the scan lines of the seven passes of an interlaced PNG."""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    return b"".join(rows(pixels[row::down, column::across]) for row, column, down, across in passes)


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return kind and content of every complete chunk, without a look at its checksum."""
    found, at = [], len(SIGNATURE)
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def with_right_checksums(data: bytes) -> bytes:
    """Return the complete chunks of a PNG with correct checksums."""
    return data[: len(SIGNATURE)] + b"".join(chunk(kind, content) for kind, content in chunks(data))
