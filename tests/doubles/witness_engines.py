"""Engines whose results identify their input bytes, so rows of other bytes are noticed."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from kopub.embedding.base import Embedder, Embedding
from kopub.errors import EngineError
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText, page_reading
from kopub.states import State


def sha256(data: bytes | memoryview | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def witnessed_box(revision: str, digest: str) -> tuple[float, float, float, float]:
    """Return the first box of the page with this SHA-256, one of two possible ones."""
    return (0.0, 0.0, 4.0 + 4 * (int(sha256(revision + digest), 16) % 2), 8.0)


def witnessed_text(prompt: str, digest: str, box: Sequence[float]) -> str:
    return f"{prompt} {digest} {box[2]}"


def witnessed_vector(revision: str, said: str, dim: int) -> np.ndarray:
    """Return a unit vector whose `dim` components differ only in sign, by a hash.

    `dim` is at most 256; the vector is exact in float16 if it is a power of 4.
    """
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(sha256(revision + said)), np.uint8))[:dim]
    return (bits.astype(np.float32) * 2 - 1) / np.float32(dim**0.5)


class WitnessLayout(LayoutDetector):
    """Finds two regions, of which the first depends on the bytes; `fail_on` fails."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.witness", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"fail_on", "die_on"})

    revision: str = "r1"
    fail_on: str = ""
    die_on: str = ""

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for page in pages:
            digest = sha256(page.data)
            _die(self.die_on, page)
            if page.page_id == self.fail_on:
                yield Layout(page.page_id, State.FAILED, "asked to fail")
                continue
            box = witnessed_box(self.revision, digest)
            second = (0.0, 8.0, float(page.image.shape[1]), 16.0)
            yield Layout(
                page.page_id,
                State.OK,
                None,
                (Region(0, "text", Task.TEXT, 0.5, box), Region(1, "text", Task.TEXT, 0.5, second)),
            )


class WitnessReader(Recognizer):
    """Reads the hash of the bytes and the box; the last `losses` regions of `lose` fail."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.witness", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"lose", "losses", "fail_on", "die_on"})
    spans_shards: ClassVar[bool] = True

    prompt: str = "read"
    lose: str = ""
    losses: int = 1
    fail_on: str = ""
    die_on: str = ""

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for page, regions in pages:
            digest = sha256(page.data)
            _die(self.die_on, page)
            lost = {self.lose: regions[-self.losses :], self.fail_on: regions}.get(page.page_id, ())
            yield page_reading(
                page.page_id,
                [
                    RegionText(region.index, region.label, "", State.FAILED, "asked to fail", "error")
                    if region in lost
                    else RegionText(region.index, region.label, witnessed_text(self.prompt, digest, region.bbox))
                    for region in regions
                ],
                (),
            )


class WitnessEmbedder(Embedder):
    """Returns vectors that depend on the bytes or the text, in reverse order across shards."""

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.witness", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"fail_on", "die_on"})
    spans_shards: ClassVar[bool] = True

    dim: int = 64
    revision: str = "r1"
    fail_on: str = ""
    die_on: str = ""

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        for page in reversed(list(pages)):
            _die(self.die_on, page)
            yield self._embedding(page.page_id, sha256(page.data))

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return (self._embedding(*text) for text in reversed(list(texts)))

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return self.embed_texts(queries)

    def _embedding(self, item_id: str, said: str) -> Embedding:
        if item_id == self.fail_on:
            return Embedding(item_id, State.FAILED, None, "asked to fail")
        return Embedding(item_id, State.OK, witnessed_vector(self.revision, said, self.dim))


def _die(die_on: str, page: Page) -> None:
    if page.page_id == die_on:
        raise EngineError("the engine is out of order; repair it and run again")
