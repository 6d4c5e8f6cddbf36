"""Engine doubles with the real protocols, whose work can be counted and made to fail."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from kopub.embedding.base import Embedder, Embedding
from kopub.errors import EngineError, UndecodableImage
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText
from kopub.states import State


class Diary:
    """A record of the work done, in a file that survives a killed process."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def note(self, page_id: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{page_id}\n")

    @property
    def pages(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


class OneRegionLayout(LayoutDetector):
    """Finds `regions` text regions that cover the whole page; `revision` stands for a model's revision."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.one_region", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"diary"})

    diary: str
    revision: str = "r1"
    empty: bool = False
    regions: int = 1
    fail_on: str = ""
    forget: str = ""

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for page in pages:
            if page.page_id == self.forget:
                continue
            Diary(self.diary).note(page.page_id)
            try:
                height, width = page.image.shape[:2]
            except UndecodableImage as error:
                yield Layout(page.page_id, State.QUARANTINED, str(error))
                continue
            if page.page_id == self.fail_on:
                yield Layout(page.page_id, State.FAILED, "asked to fail")
            elif self.empty:
                yield Layout(page.page_id, State.FAILED, "no regions although there is ink")
            else:
                box = (0.0, 0.0, float(width), float(height))
                found = tuple(Region(index, "text", Task.TEXT, 0.9, box) for index in range(self.regions))
                yield Layout(page.page_id, State.OK, None, found)


class SlowReader(Recognizer):
    """Reads a page's id in its regions after `seconds`, and notes it in the diary.

    It reads the text in `says` for the pages there. The last region of the page `lose` cannot be read.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.slow_reader", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"diary", "seconds", "took", "die_on", "lose", "says", "why"})

    diary: str
    says: dict[str, str] = Field(default={})
    seconds: float = 0.0
    took: float = 0.0
    die_on: str = ""
    lose: str = ""
    why: str = "asked to fail"
    prompt: str = "read"

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        import time

        for page, regions in pages:
            time.sleep(self.seconds)
            if page.page_id == self.die_on:
                raise EngineError("the engine is out of order; repair it and run again")
            Diary(self.diary).note(page.page_id)
            said = self.says.get(page.page_id, f"{self.prompt} {page.page_id}")
            texts = tuple(RegionText(r.index, r.label, said, seconds=self.took) for r in regions)
            if page.page_id != self.lose:
                yield PageReading(page.page_id, State.OK, None, texts)
                continue
            lost = RegionText(texts[-1].index, texts[-1].native_label, "", State.FAILED, self.why, "error")
            reason = f"1 of {len(texts)} regions could not be read; region {lost.index}: {self.why}"
            yield PageReading(page.page_id, State.PARTIAL, reason, (*texts[:-1], lost))


class UnitEmbedder(Embedder):
    """Returns the same unit vector for everything, or NaN with `spoil`."""

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.unit", {1: "a double"})

    dim: int = 4
    spoil: bool = False

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        return (self._made(page.page_id) for page in pages)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return (self._made(text_id) for text_id, _ in texts)

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return (self._made(query_id) for query_id, _ in queries)

    def _made(self, item_id: str) -> Embedding:
        vector: Any = np.zeros(self.dim, np.float32)
        vector[0] = np.nan if self.spoil else 1.0
        return Embedding(item_id, State.OK, vector)


class SpanningLayout(OneRegionLayout):
    """Takes up to `ahead` pages before it yields results, the last page first.

    It notes each call as "call", and fails at the page `die_on`, or after all pages if that is "at the end".
    """

    spans_shards: ClassVar[bool] = True
    speed_only: ClassVar[frozenset[str]] = OneRegionLayout.speed_only | {"ahead", "die_on"}

    ahead: int = 100
    die_on: str = ""

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        Diary(self.diary).note("call")
        stream = iter(pages)
        while taken := list(islice(stream, self.ahead)):
            for page in reversed(taken):
                if page.page_id == self.die_on:
                    raise EngineError("the engine is out of order; repair it and run again")
                yield from super().detect([page])
        if self.die_on == "at the end":
            raise EngineError("the engine is out of order; repair it and run again")

    def take_figures(self) -> dict[str, float]:
        return {"answers": 1.0}
