"""Page pictures for a browser: scaled JPEGs of the source, made at the first request."""

import os
from functools import lru_cache
from threading import BoundedSemaphore

from resources.errors import SourceError, UndecodableImage
from resources.pages.corpus import Corpus
from resources.pages.images import decode
from resources.search.page_view import PageView

SIDES = {"small": 900, "large": 1800}
"""Lengths of the longer side in pixels: text can be made out, and can be read."""
_QUALITY = 80
_KEPT = 64
"""Pictures kept in memory, some 150 KB each; the browser keeps those that it has seen."""


class NoPicture(SourceError):
    """A page whose picture cannot be shown; its text still can."""


class Pictures:
    """The pictures of a corpus's pages; threads may share it."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        # A decoded page takes 26 MB at 300 dpi, so no more of them at once than can be worked on.
        self._decoding = BoundedSemaphore(os.cpu_count() or 1)
        self._made = lru_cache(_KEPT)(self._make)

    def problem(self, page: PageView) -> str | None:
        """Why a page's picture cannot be shown, in words for a person; None when it can."""
        try:
            self._bytes(page)
        except NoPicture as error:
            return str(error)
        return None

    def jpeg(self, page: PageView, size: str) -> bytes:
        """The page at a size of `SIDES`. Raises `NoPicture`."""
        self._bytes(page)
        return self._made(page, SIDES[size])

    def _make(self, page: PageView, side: int) -> bytes:
        import cv2

        with self._decoding:
            try:
                image = decode(self._bytes(page))
            except UndecodableImage as error:
                raise NoPicture(str(error)) from None
            height, width = image.shape[:2]
            scale = min(1.0, side / max(height, width))
            size = max(1, round(width * scale)), max(1, round(height * scale))
            small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
            encoded = cv2.imencode(".jpg", small[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1]
        return encoded.tobytes()

    def _bytes(self, page: PageView) -> bytes | memoryview:
        """The page's bytes, if they are those that its texts and vectors were made from."""
        if page.page_idx is None:
            raise NoPicture(f"{page.page_id} is not among the pages of {page.shard} any more")
        try:
            with self._corpus.reader(page.shard) as source:
                return source.page(page.page_id, page.page_idx, page.sha256).data
        except SourceError as error:
            raise NoPicture(str(error)) from None
