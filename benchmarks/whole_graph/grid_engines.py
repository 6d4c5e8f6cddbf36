"""Engines for random weights: the model does all its work, but results are replaced.

Random weights find no sensible regions and read no text. These engines run the network and the server like the real
ones, and return a grid of regions and made-up texts, so that every later stage has as much to do as on real pages.
Answers are as unequally long as the paragraphs of the samples are: if all had one length, their requests would end and
begin in waves, which those of real pages do not.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from pydantic import Field

from kopub.folders import ROOT
from kopub.layout.pp_doclayout.detector import PPDocLayout
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading, RegionText, page_reading
from kopub.recognition.vlm.client.reader import RequestSettings
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.states import State

MEAN_CROP = (812, 422)
"""Width and height of the mean region of SDS KoPub in pixels, at 300 dpi."""
DPI = 300
"""Resolution of the pages, those of 2480x3508 pixels."""
CHARACTERS = 290
"""Characters of a region's text: eight regions have about 1,500 tokens of Korean and English."""
ENTRY_POINTS = {
    "kopub.layout": {"grid": "benchmarks.whole_graph.grid_engines:GridLayout"},
    "kopub.recognition": {"made_up_texts": "benchmarks.whole_graph.grid_engines:MadeUpTexts"},
}


def grid(crop: tuple[int, int] = MEAN_CROP, dpi: int = DPI) -> list[Region]:
    """Return eight regions of one size on an A4 page, at fractional pixels; `crop` is their size at 300 dpi."""
    width, height = crop
    places = [(120.4 + column * 1150, 150.3 + row * 800) for row in range(4) for column in range(2)]
    boxes = np.array([(x, y, x + width, y + height) for x, y in places]) * dpi / DPI
    return [Region(at, "text", Task.TEXT, 0.9, tuple(box)) for at, box in enumerate(boxes.tolist())]


class GridLayout(PPDocLayout):
    """PP-DocLayoutV3 with its post-processing, whose regions are replaced by `grid`."""

    dpi: int = Field(default=DPI, ge=1, description="Resolution of the pages.")

    def _stream(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for layout in super()._stream(pages):
            unread = layout.state is State.QUARANTINED
            yield layout if unread else Layout(layout.page_id, State.OK, regions=tuple(grid(dpi=self.dpi)))


class MadeUpTexts(GlmOcrRecognizer):
    """GLM-OCR whose answers are replaced by sample words, constant for a region."""

    characters: int = Field(default=CHARACTERS, ge=1, description="Of the text of each region.")

    def request_settings(self) -> RequestSettings:
        settings = super().request_settings()
        return replace(settings, sampling=UnequalAnswers(settings.sampling))

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for reading in super().read(pages):
            texts = [self._made_up(reading.page_id, text) for text in reading.regions]
            yield page_reading(reading.page_id, texts, reading.crops) if texts else reading

    def _made_up(self, page_id: str, text: RegionText) -> RegionText:
        if text.finish_reason == "error":  # no answer came: that is a fault of the run
            return text
        content = made_up_text(f"{page_id} {text.index}", self.characters)
        return replace(text, content=content, state=State.OK, reason=None, finish_reason="stop")


class UnequalAnswers(Mapping[str, Any]):
    """Sampling of requests whose `max_tokens`, the length of an answer, differs each time it is read.

    The mean is the given one, and the distribution that of the samples' paragraphs.
    """

    def __init__(self, sampling: Mapping[str, Any]) -> None:
        self._sampling = dict(sampling)
        lengths = paragraph_lengths()
        scale = self._sampling["max_tokens"] / (sum(lengths) / len(lengths))
        self._lengths = [max(1, round(scale * length)) for length in lengths]
        self._next = 0

    def __getitem__(self, key: str) -> Any:
        if key != "max_tokens":
            return self._sampling[key]
        self._next += 1
        return self._lengths[self._next % len(self._lengths)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sampling)

    def __len__(self) -> int:
        return len(self._sampling)


_FULL = 0.75
"""Share of a page's longest line from which a line is full, so that its paragraph goes on."""


@cache
def paragraph_lengths() -> Sequence[int]:
    """Return the characters of each paragraph of the samples, in an order without waves."""
    lengths = []
    for text in _sample_texts():
        lines = text.splitlines()
        full, length = _FULL * max(map(len, lines)), 0
        for line in lines:
            length += len(line)
            if len(line) < full:
                lengths.append(length)
                length = 0
    return random.Random(0).sample(lengths, len(lengths))


def made_up_text(seed: str, characters: int) -> str:
    """Return random words of the sample pages, with about `characters` characters."""
    chosen, length, words = [], 0, _words()
    generator = random.Random(seed)
    while length < characters:
        word = generator.choice(words)
        chosen.append(word)
        length += len(word) + 1
    return " ".join(chosen)


@cache
def _words() -> list[str]:
    return sorted({word for text in _sample_texts() for word in text.split()})


@cache
def _sample_texts() -> list[str]:
    import pyarrow as pa

    tables = [pa.ipc.open_stream(path).read_all() for path in sorted((ROOT / "samples" / "corpus").glob("*.arrow"))]
    return [text for table in tables for text in table["text"].to_pylist() if text]
