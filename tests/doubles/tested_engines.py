"""Engines that are right or wrong on purpose, for tests of the doctor's self-test."""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from kopub.embedding.base import Embedder, Embedding
from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import EngineError
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText
from kopub.states import State


class TwoColumns(LayoutDetector):
    """Finds two regions per page, or none if `empty`; the reference's are `moved` pixels away."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.two_columns", {1: "a double"})

    moved: float = 0.0
    empty: bool = False

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for page in pages:
            if self.empty:
                yield Layout(page.page_id, State.FAILED, "no region was found on a page with ink")
            else:
                yield Layout(page.page_id, State.OK, None, self._regions(0.0))

    def reference(self, page: Page) -> Layout:
        return Layout(page.page_id, State.OK, None, self._regions(self.moved))

    def _regions(self, moved: float) -> tuple[Region, ...]:
        lefts = (10.0, 90.0)
        return tuple(
            Region(index, "text", Task.TEXT, 0.9, (left + moved, 10.0, left + moved + 60, 200.0))
            for index, left in enumerate(lefts)
        )


class KnownReader(Recognizer):
    """Reads the `known` texts of pages, or `rubbish`; `broken` cannot run at all."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.known", {1: "a double"})

    known: dict[str, str] = Field(default={})
    rubbish: str = ""
    broken: bool = False
    held: int = 0

    @property
    def gpus(self) -> int:
        return self.held

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        if self.broken:
            raise EngineError("the server ended: the GPU's memory does not suffice")
        for page, regions in pages:
            said = self.rubbish or self.known.get(page.page_id, "")
            texts = tuple(RegionText(r.index, r.label, "" if r.index else said) for r in regions)
            yield PageReading(page.page_id, State.OK, None, texts)


class ComparedEmbedder(Embedder):
    """Returns lexical vectors; the reference's are rotated by `turn`, `flat` ones are all equal."""

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.compared", {1: "a double"})
    queries_match: ClassVar[frozenset[str]] = frozenset({"text"})

    dim: int = 512
    turn: float = 0.0
    flat: bool = False
    spoil: bool = False

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        return self.embed_texts((page.page_id, page.page_id) for page in pages)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        for item_id, text in texts:
            yield Embedding(item_id, State.OK, self._vector(text))

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return self.embed_texts(queries)

    def reference(self, page: Page, text: str) -> tuple[np.ndarray, np.ndarray]:
        turned = [self._vector(said) + self.turn * np.eye(self.dim)[7] for said in (page.page_id, text)]
        image, said = (vector / np.linalg.norm(vector) for vector in turned)
        return image, said

    def _vector(self, text: str) -> np.ndarray:
        if self.flat or self.spoil:
            return np.eye(self.dim, dtype=np.float32)[0] * (np.nan if self.spoil else 1)
        (made,) = HashedEmbedder(dim=self.dim).embed_texts([("text", text)])
        assert made.vector is not None
        return made.vector
