"""The regions of a page, read line by line, and their doubts."""

import time
from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from kopub.errors import UndecodableImage
from kopub.layout.ink import PRINT_CONTRAST, ink_mask, paper_level, readable_grey, working_scale
from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition.print_reader import CERTAIN, OcrWord, PrintReader, mean_confidence
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
from kopub.states import Reason, State

_FEWEST_LETTERS = 20
"""Fewest letters and digits of a page whose confidence is meaningful."""


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
    texts: list[RegionText] = []
    words: list[list[OcrWord]] = []
    on_page: list[OcrWord] = []
    for region in regions:
        text, read = _read_region(reader, gray, region)
        texts.append(text)
        words.append([word for word in read if any(map(str.isalnum, word.text))])
        on_page += [word for word in words[-1] if word.confidence < CERTAIN]
    letters = sum(len(word.text) for word in on_page)
    # A reader is unsure of a page that is turned, mirrored or out of focus.
    if letters >= _FEWEST_LETTERS and mean_confidence(on_page) < reader.unsure:
        for at, (text, some) in enumerate(zip(texts, words, strict=True)):
            sure = mean_confidence(some)
            if some and text.state is State.OK and sure < reader.unsure:
                reason = Reason("{reader} is {sure:.0f} % sure of these words", reader=reader.name, sure=sure)
                texts[at] = replace(text, reason=reason)
    return page_reading(page.page_id, texts, crops)


def _read_region(reader: PrintReader, gray: NDArray[np.uint8], region: Region) -> tuple[RegionText, Sequence[OcrWord]]:
    if region.task in (Task.SKIP, Task.ABANDON):
        return skipped(region.index, region.label), ()
    start = time.perf_counter()
    try:
        with timed("crop"):
            crop = region_pixels(gray, region)
        with timed("read"):
            is_table = region.task is Task.TABLE
            block = reader.table(crop, working_scale(*gray.shape)) if is_table else reader.block(crop)
            if region.task is Task.FORMULA and not block.text:
                # Such readers have no LaTeX: a formula is plain text, row by row.
                block = reader.block(_erase_tall_signs(crop))
    except RuntimeError as error:
        # Tesseract refuses an image, or the page took too long.
        seconds = time.perf_counter() - start
        return RegionText(region.index, region.label, "", State.FAILED, str(error), "error", seconds=seconds), ()
    reason = Reason(TWO_WAYS, figures="; ".join(block.doubted)) if block.doubted else None
    seconds = time.perf_counter() - start
    return RegionText(region.index, region.label, block.text, reason=reason, seconds=seconds), block.words


def _erase_tall_signs(gray: NDArray[np.uint8]) -> NDArray[np.uint8]:
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
