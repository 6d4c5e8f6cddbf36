"""Tesseract 5 on the CPU: Korean and English, tables cell by cell."""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from resources.errors import UndecodableImage
from resources.layout.base import Region, Task
from resources.layout.segmentation import WORKING_SIDE
from resources.pages.page import Page
from resources.parallel import bounded_map
from resources.recognition.base import PageReading, Recognizer, RegionText
from resources.recognition.crops import cut_pictures, pixel_box
from resources.recognition.reader import Reader
from resources.recognition.tessdata import identity, tessdata_folder
from resources.states import State

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TesseractRecognizer(Recognizer):
    """Reads regions with Tesseract; ruled tables become `<table>` HTML, pictures are kept as crops."""

    code: ClassVar[tuple[str, ...]] = (
        "resources.layout.boxes",
        "resources.layout.ink",
        "resources.layout.lines",
        "resources.layout.rules",
        "resources.recognition.crops",
        "resources.recognition.korean",
        "resources.recognition.leaders",
        "resources.recognition.reader",
        "resources.recognition.rows",
        "resources.recognition.table_cells",
        "resources.recognition.tesseract",
    )
    speed_only: ClassVar[frozenset[str]] = frozenset({"threads"})

    threads: int = Field(default=0, ge=0, description="Pages read at once; 0 means one per core.")

    def weights(self) -> dict[str, str]:
        return identity()

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        folder = tessdata_folder()
        local = threading.local()
        readers: list[Reader] = []

        def work(item: tuple[Page, Sequence[Region]]) -> PageReading:
            if not hasattr(local, "reader"):
                local.reader = Reader(folder)
                readers.append(local.reader)
            return read_page(local.reader, *item)

        try:
            yield from bounded_map(work, pages, self.threads or os.cpu_count() or 1)
        finally:
            for reader in readers:
                reader.close()


def read_page(reader: Reader, page: Page, regions: Sequence[Region]) -> PageReading:
    """The texts of a page's regions; one that fails leaves the others."""
    import cv2

    try:
        gray = np.asarray(cv2.cvtColor(page.image, cv2.COLOR_RGB2GRAY), np.uint8)
        crops = cut_pictures(page, regions)
    except UndecodableImage as error:
        return PageReading(page.page_id, State.QUARANTINED, str(error))
    if not regions:
        return PageReading(page.page_id, State.BLANK)
    texts = tuple(_read_region(reader, gray, region) for region in regions)
    failed = [text for text in texts if text.state is State.FAILED]
    if failed:
        reason = f"{len(failed)} of {len(texts)} regions failed; region {failed[0].index}: {failed[0].reason}"
        return PageReading(page.page_id, State.FAILED, reason, texts, crops)
    return PageReading(page.page_id, State.OK, None, texts, crops)


def _read_region(reader: Reader, gray: "NDArray[np.uint8]", region: Region) -> RegionText:
    if region.task in (Task.SKIP, Task.ABANDON):
        return RegionText(region.index, region.label, "", finish_reason="skipped", attempts=0)
    height, width = gray.shape
    x1, y1, x2, y2 = pixel_box(region.bbox, width, height)
    start = time.perf_counter()
    try:
        crop = gray[y1:y2, x1:x2]
        if region.task is Task.TABLE:
            content = reader.table(crop, min(1.0, WORKING_SIDE / min(height, width)))
        else:
            content = reader.block(crop)
    except RuntimeError as error:
        # What tesserocr raises when Tesseract refuses an image.
        seconds = time.perf_counter() - start
        return RegionText(region.index, region.label, "", State.FAILED, str(error), "error", seconds=seconds)
    return RegionText(region.index, region.label, content, seconds=time.perf_counter() - start)
