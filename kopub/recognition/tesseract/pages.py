"""The regions of a page, read line by line, and their doubts."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import cv2
import numpy as np

from kopub.errors import UndecodableImage
from kopub.layout.ink import PRINT_CONTRAST, ink_mask, paper_level, readable_grey, working_scale
from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition.regions import (
    TWO_WAYS,
    PageReading,
    RegionText,
    cut_pictures,
    page_reading,
    region_pixels,
    skipped,
)
from kopub.recognition.step_times import timed
from kopub.recognition.tesseract.reader import BlockText
from kopub.recognition.tesseract.words import CERTAIN, OcrWord, mean_confidence
from kopub.states import Reason, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FEWEST_LETTERS = 20
"""Fewest letters and digits of a page whose confidence is meaningful."""


class PrintReader(Protocol):
    """A reader of text blocks and tables, such as Tesseract's.

    Below a mean confidence of `unsure` on a page, its texts are in doubt. What it refuses raises `RuntimeError`.
    """

    name: ClassVar[str]
    unsure: ClassVar[float]

    def block(self, gray: "NDArray[np.uint8]") -> BlockText:
        """Read one block, uint8 (height, width), by its printed lines."""
        ...

    def table(self, gray: "NDArray[np.uint8]", scale: float) -> BlockText:
        """Read a table as `<table>` HTML, or as a block without a grid."""
        ...


def read_page(reader: PrintReader, page: Page, regions: Sequence[Region]) -> PageReading:
    """Read the regions of a page; a failed region does not affect the others.

    A region in which the reader finds no text is `ok` and empty, because no second reading could confirm that it is
    blank.
    """
    try:
        with timed("decode"):
            gray, _ = readable_grey(page.image)
        with timed("crop"):
            crops = cut_pictures(page, regions)
    except UndecodableImage as error:
        return PageReading(page.page_id, error.state, str(error))
    if not regions:
        return PageReading(page.page_id, State.BLANK)
    return page_reading(
        page.page_id, _mark_doubts(reader, [_read_region(reader, gray, region) for region in regions]), crops
    )


def _mark_doubts(reader: PrintReader, read: Sequence[tuple[RegionText, Sequence[OcrWord]]]) -> list[RegionText]:
    """Mark the texts of which the reader is unsure, on a page with little confidence.

    This happens on a page that is turned, mirrored or out of focus.
    """
    words = [[word for word in words if any(map(str.isalnum, word.text))] for _, words in read]
    on_page = [word for some in words for word in some if word.confidence < CERTAIN]
    letters = sum(len(word.text) for word in on_page)
    texts = [text for text, _ in read]
    if letters < _FEWEST_LETTERS or mean_confidence(on_page) >= reader.unsure:
        return texts
    return [
        replace(text, reason=Reason("{reader} is {sure:.0f} % sure of these words", reader=reader.name, sure=sure))
        if some and text.state is State.OK and (sure := mean_confidence(some)) < reader.unsure
        else text
        for text, some in zip(texts, words, strict=True)
    ]


def _read_region(
    reader: PrintReader, gray: "NDArray[np.uint8]", region: Region
) -> tuple[RegionText, Sequence[OcrWord]]:
    if region.task in (Task.SKIP, Task.ABANDON):
        return skipped(region.index, region.label), ()
    start = time.perf_counter()
    try:
        with timed("crop"):
            crop = region_pixels(gray, region)
        with timed("read"):
            read = _reading(reader, crop, region.task, working_scale(*gray.shape))
    except RuntimeError as error:
        # Tesseract refuses an image, or the page took too long.
        seconds = time.perf_counter() - start
        return RegionText(region.index, region.label, "", State.FAILED, str(error), "error", seconds=seconds), ()
    reason = Reason(TWO_WAYS, figures="; ".join(read.doubted)) if read.doubted else None
    seconds = time.perf_counter() - start
    return RegionText(region.index, region.label, read.text, reason=reason, seconds=seconds), read.words


def _reading(reader: PrintReader, crop: "NDArray[np.uint8]", task: Task, scale: float) -> BlockText:
    if task is Task.TABLE:
        return reader.table(crop, scale)
    return _read_formula(reader, crop) if task is Task.FORMULA else reader.block(crop)


def _read_formula(reader: PrintReader, gray: "NDArray[np.uint8]") -> BlockText:
    """Read a formula as plain text, row by row, because such readers have no LaTeX."""
    read = reader.block(gray)
    return read if read.text else reader.block(_erase_tall_signs(gray))


def _erase_tall_signs(gray: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """Erase tall brackets, sums and roots, which join several rows into one."""
    plain = gray.copy()
    ink = ink_mask(gray, PRINT_CONTRAST).astype(np.uint8)
    _, shapes, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    heights = stats[1:, cv2.CC_STAT_HEIGHT]
    if heights.size:
        # Letters differ in height by a factor of two; a sign three times as high as most others spans rows.
        tall = np.flatnonzero(heights > 3 * np.median(heights)) + 1
        plain[cv2.dilate(np.isin(shapes, tall).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0] = paper_level(gray)
    return plain
