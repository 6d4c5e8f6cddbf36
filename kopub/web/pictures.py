"""Pictures of pages for a browser: scaled JPEGs, made on first request."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING

import cv2
from cachetools import LRUCache

from kopub.errors import SourceError, UndecodableImage
from kopub.pages.page import decode
from kopub.parallel import usable_cores

if TYPE_CHECKING:
    import numpy as np

    from kopub import Page
    from kopub.boxes import Box

SIDES = {"thumb": 360, "small": 900, "large": 1800}
"""Lengths of the longer side in pixels: enough to recognize a page, to make out its text, and to read it."""
FULL = "full"
"""The name of the source's own size."""
_QUALITY = 82
_KEPT = 8 * 2**20
"""Bytes of pictures in memory: some 350 thumbnails; browsers cache the pictures that they have shown."""
_DECODED_AT_ONCE = 4
"""Most pages decoded at once: each takes 26 MB at 300 dpi, and more than there are cores would be no faster."""


class NoPicture(SourceError):
    """The error that a page's picture cannot be shown; its text still can."""


@dataclass(frozen=True, slots=True)
class ServedPicture:
    """An encoded picture and its media type."""

    data: bytes
    kind: str


def picture_stamp(page: "Page") -> str:
    """Return a stamp that changes with a page's picture: its bytes or upright transform."""
    if page.upright is None:
        return page.sha256 or ""
    return hashlib.sha256(f"{page.sha256} {page.upright.matrix}".encode()).hexdigest()


class PictureCache:
    """A cache of pictures of pages and of boxes on them, which threads may share.

    A page is given by its stamp, the key of its pictures, and a function that reads its encoded bytes.
    """

    def __init__(self) -> None:
        self._decoding = BoundedSemaphore(min(usable_cores(), _DECODED_AT_ONCE))
        self._kept = LRUCache[tuple[str, str], ServedPicture](_KEPT, getsizeof=lambda picture: len(picture.data))
        self._lock = Lock()

    def page(self, name: str, read: Callable[[], bytes], size: str) -> ServedPicture:
        """Return a page at a size of `SIDES`, or in the source's size. Raises `NoPicture`."""
        if size == FULL:
            data = _read(read)
            # Every browser shows these. They may be large and need no work, so they are not worth caching.
            if data.startswith(b"\x89PNG"):
                return ServedPicture(data, "image/png")
            if data.startswith(b"\xff\xd8"):
                return ServedPicture(data, "image/jpeg")
            if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
                return ServedPicture(data, "image/webp")
        return self._made(name, size, read, lambda image: image, SIDES.get(size))

    def crop(self, name: str, read: Callable[[], bytes], box: "Box[float]") -> ServedPicture:
        """Return a box of the page, as large as `small`. Raises `NoPicture`."""

        def cut(image: "np.ndarray") -> "np.ndarray":
            height, width = image.shape[:2]
            # A region at the edge of the page still has a pixel.
            x1, y1 = max(0, min(int(box.x1), width - 1)), max(0, min(int(box.y1), height - 1))
            x2, y2 = max(x1 + 1, min(round(box.x2), width)), max(y1 + 1, min(round(box.y2), height))
            return image[y1:y2, x1:x2]

        return self._made(name, repr(box), read, cut, SIDES["small"])

    def _made(
        self,
        name: str,
        what: str,
        read: Callable[[], bytes],
        change: "Callable[[np.ndarray], np.ndarray]",
        side: int | None,
    ) -> ServedPicture:
        with self._lock:
            cached = self._kept.get((name, what))
        if cached is not None:
            return cached
        data = _read(read)
        with self._decoding:
            try:
                image = change(decode(data))
            except UndecodableImage as error:
                raise NoPicture(str(error)) from None
            height, width = image.shape[:2]
            scale = min(1.0, (side or max(height, width)) / max(height, width))
            size = max(1, round(width * scale)), max(1, round(height * scale))
            small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
            _, jpeg = cv2.imencode(".jpg", small[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
            picture = ServedPicture(jpeg.tobytes(), "image/jpeg")
        with self._lock:
            if len(picture.data) <= self._kept.maxsize:
                self._kept[name, what] = picture
        return picture


def _read(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except SourceError as error:
        raise NoPicture(str(error)) from None
