"""Tesseract 5 on the CPU: Korean and English, or other languages that it has data of; tables cell by cell."""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field, field_validator

from resources.code_version import CodeVersion
from resources.errors import UndecodableImage
from resources.layout.ink import PRINT_CONTRAST, ink_mask, paper_level
from resources.layout.lighting import readable_grey
from resources.layout.regions import Region, Task
from resources.layout.working_copy import working_scale
from resources.pages.page import Page
from resources.parallel import bounded_map, of_two_cores
from resources.recognition.base import Recognizer
from resources.recognition.crops import cut_pictures, region_pixels
from resources.recognition.readings import PageReading, RegionText, page_reading, skipped
from resources.recognition.step_times import timed
from resources.recognition.tesseract.bilingual import CERTAIN, Word, mean_confidence
from resources.recognition.tesseract.reader import BlockText, Reader
from resources.recognition.tesseract.tessdata import (
    LANGUAGES,
    data_files,
    identity,
    no_data,
    scripts_of,
    tessdata_folder,
)
from resources.states import State

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UNSURE = 60
"""Mean confidence of a page below which its text is in doubt: upright pages have 70 and more, turned ones below 55."""
_FEWEST_LETTERS = 20
"""Letters and digits of a page whose confidence says something."""
_DATA_NAME = re.compile(r"[A-Za-z][A-Za-z_]*")


class TesseractRecognizer(Recognizer):
    """Reads regions with Tesseract; ruled tables become `<table>` HTML, pictures are kept as crops."""

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "recognition.tesseract",
        {1: "the first release", 2: "faint print is read; regions that Tesseract is unsure of say so"},
    )
    typical_seconds: ClassVar[float] = 0.03
    typical_seconds_per_megabyte: ClassVar[float] = 0.84
    speed_only: ClassVar[frozenset[str]] = frozenset({"threads", "page_seconds"})
    limits: ClassVar[tuple[str, ...]] = (
        "Formulas are plain text as Tesseract read it, not LaTeX; `$$` marks where one stands.",
    )

    languages: list[str] = Field(
        default=list(LANGUAGES),
        min_length=1,
        description="Languages of the pages by the names of Tesseract's data (kor, eng, jpn, chi_sim ...), the main "
        "one first. Korean and English are read by an engine each, line by line; others by one engine of them all.",
    )
    threads: int = Field(default=0, ge=0, description="Pages read at once; 0 means one per core.")
    page_seconds: float = Field(
        default=120.0,
        gt=0,
        description="Seconds that the reading of a page may take; its other regions fail, and the next run reads it "
        "again. A page of text takes 1 to 6.",
    )

    @field_validator("languages")
    @classmethod
    def _named_as_data(cls, languages: list[str]) -> list[str]:
        for name in languages:
            if not _DATA_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of Tesseract's data; write one such as kor, eng, jpn or chi_sim")
        return list(dict.fromkeys(languages))

    @property
    def expected_scripts(self) -> frozenset[str]:
        return scripts_of(self.languages)

    def weights(self) -> dict[str, str]:
        return identity(self.languages)

    def expected_seconds(self, megabytes: float) -> float:
        return super().expected_seconds(megabytes) * of_two_cores(self.threads)

    def lacks(self) -> list[str]:
        missing = [name for name, path in data_files(self.languages).items() if path is None]
        return [no_data(missing)] if missing else []

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        folder = tessdata_folder(self.languages)
        local = threading.local()
        readers: list[Reader] = []

        def work(item: tuple[Page, Sequence[Region]]) -> PageReading:
            if not hasattr(local, "reader"):
                local.reader = Reader(folder, self.languages)
                readers.append(local.reader)
            local.reader.limit(self.page_seconds)
            return read_page(local.reader, *item)

        try:
            yield from bounded_map(work, pages, self.threads)
        finally:
            for reader in readers:
                reader.close()


def read_page(reader: Reader, page: Page, regions: Sequence[Region]) -> PageReading:
    """The texts of a page's regions; one that fails leaves the others.

    A region in which Tesseract finds no text is `ok` and empty: no second reading would confirm that it is blank.
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
    return page_reading(page.page_id, _doubted([_read_region(reader, gray, region) for region in regions]), crops)


def _doubted(read: Sequence[tuple[RegionText, Sequence[Word]]]) -> list[RegionText]:
    """The texts of a page's regions; where Tesseract is unsure of the page, those it is unsure of say so.

    A turned or mirrored page, or one that is out of focus, gives words of which it is unsure.
    """
    words = [[word for word in words if any(map(str.isalnum, word.text))] for _, words in read]
    on_page = [word for some in words for word in some if word.confidence < CERTAIN]
    letters = sum(len(word.text) for word in on_page)
    texts = [text for text, _ in read]
    if letters < _FEWEST_LETTERS or mean_confidence(on_page) >= _UNSURE:
        return texts
    return [
        replace(text, reason=f"Tesseract is {sure:.0f} % sure of these words")
        if some and text.state is State.OK and (sure := mean_confidence(some)) < _UNSURE
        else text
        for text, some in zip(texts, words, strict=True)
    ]


def _read_region(reader: Reader, gray: "NDArray[np.uint8]", region: Region) -> tuple[RegionText, Sequence[Word]]:
    if region.task in (Task.SKIP, Task.ABANDON):
        return skipped(region.index, region.label), ()
    start = time.perf_counter()
    try:
        with timed("crop"):
            crop = region_pixels(gray, region)
        with timed("read"):
            read = _reading(reader, crop, region.task, working_scale(*gray.shape))
    except RuntimeError as error:
        # What tesserocr raises when Tesseract refuses an image.
        seconds = time.perf_counter() - start
        return RegionText(region.index, region.label, "", State.FAILED, str(error), "error", seconds=seconds), ()
    return RegionText(region.index, region.label, read.text, seconds=time.perf_counter() - start), read.words


def _reading(reader: Reader, crop: "NDArray[np.uint8]", task: Task, scale: float) -> BlockText:
    if task is Task.TABLE:
        return reader.table(crop, scale)
    return _read_formula(reader, crop) if task is Task.FORMULA else reader.block(crop)


def _read_formula(reader: Reader, gray: "NDArray[np.uint8]") -> BlockText:
    """Read a formula as plain text, row by row: Tesseract knows no LaTeX."""
    read = reader.block(gray)
    return read if read.text else reader.block(_without_tall_signs(gray))


def _without_tall_signs(gray: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """A formula without the brackets, sums and roots that span several of its rows and make one of them."""
    import cv2

    plain = gray.copy()
    ink = ink_mask(gray, PRINT_CONTRAST).astype(np.uint8)
    _, shapes, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    heights = stats[1:, cv2.CC_STAT_HEIGHT]
    if heights.size:
        # Letters differ by a factor of two; what is three times as high as most of the signs spans rows.
        tall = np.flatnonzero(heights > 3 * np.median(heights)) + 1
        plain[cv2.dilate(np.isin(shapes, tall).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0] = paper_level(gray)
    return plain
