"""Engine doubles that find and read the regions that a test gives each page."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import DEFAULT_TASKS, Layout, Region
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText, cut_pictures, page_reading
from kopub.states import State

Print = tuple[str, str, tuple[int, int, int, int]]
"""A region: its label, its text, and its box in thousandths of the page."""


class PrintedLayout(LayoutDetector):
    """Finds the regions that `prints` lists for a page id."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.printed", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"prints"})

    prints: str
    """The prints of each page by its id, as JSON."""

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        prints = json.loads(self.prints)
        for page in pages:
            height, width = page.image.shape[:2]
            found = tuple(
                Region(
                    index,
                    label,
                    DEFAULT_TASKS[label],
                    0.9,
                    (box[0] * width / 1000, box[1] * height / 1000, box[2] * width / 1000, box[3] * height / 1000),
                )
                for index, (label, _, box) in enumerate(prints[page.page_id])
            )
            yield Layout(page.page_id, State.OK, None, found)


class PrintedReader(Recognizer):
    """Reads the texts that `prints` lists for a page id; the pages in `lose` fail."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.printed", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"prints", "lose"})

    prints: str
    """The prints of each page by its id, as JSON."""
    lose: list[str] = Field(default=[])

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        every = json.loads(self.prints)
        for page, regions in pages:
            prints = every[page.page_id]
            if page.page_id in self.lose:
                texts = [RegionText(at, print[0], "", State.FAILED, "lost") for at, print in enumerate(prints)]
            else:
                texts = [RegionText(at, print[0], print[1]) for at, print in enumerate(prints)]
            yield page_reading(page.page_id, texts, cut_pictures(page, regions))
