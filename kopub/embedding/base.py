"""The embedding protocol."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kopub.engine import Engine
from kopub.errors import EngineError
from kopub.pages.page import Page
from kopub.states import State

if TYPE_CHECKING:
    # Client processes load this module, and no Arrow with it.
    from kopub.figures.figure import FigurePicture


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of a page, a text, a query or a figure.

    `vector` is float32 of shape (dim,) with L2 norm 1, or None unless the state is `ok`.
    """

    id: str
    state: State
    vector: np.ndarray | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PassageVector:
    """The vector of a passage, float32 of shape (passage_dim,) with L2 norm 1.

    The passage is the characters from `start` to `end` of its text.
    """

    start: int
    end: int
    vector: np.ndarray


@dataclass(frozen=True, slots=True)
class PassageEmbedding:
    """The vectors of a text's passages, none unless the state is `ok`."""

    id: str
    state: State
    passages: tuple[PassageVector, ...] = ()
    reason: str | None = None


MAX_DIM = 16_384
"""Largest dimension of a vector: no model in use has more, and a store of longer vectors would not fit in memory."""


class Embedder(Engine):
    """Turns pages, texts and queries into vectors.

    Each method yields one `Embedding` per item, in any order.
    """

    queries_match: ClassVar[frozenset[str]] = frozenset({"image", "text"})
    """Kinds of vectors that a query can be compared with: `image`, `text`, `figure`, or `meaning` of passages."""

    passage_dim: ClassVar[int] = 0
    """Length of the vectors of passages; 0 for an engine that makes none."""

    passage_floor: ClassVar[float] = 1.0
    """Dot product of a question and a passage from which the passage matches well."""

    fusion: ClassVar[Mapping[str, float]] = {}
    """Weight of each retriever's scores in a fusion; if empty, rankings are fused by reciprocal ranks."""

    fusion_floor: ClassVar[float] = 0.0
    """Sum of the weighted scores from which a page of a fusion matches well."""

    is_lexical: ClassVar[bool] = False
    """Whether vectors compare spelling, so that a page without a word of the query cannot match it well."""

    typical_image_seconds: ClassVar[float] = 0.05
    """`typical_seconds` for a page image."""

    typical_passages_seconds: ClassVar[float] = 0.02
    """`typical_seconds` for the passages of a page."""

    dim: int

    def prepare_texts(self) -> None:
        """Prepare for texts and queries only, which may need less than pictures."""
        self.prepare()

    @abstractmethod
    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]: ...

    @abstractmethod
    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        """Yield vectors of pairs (id, text); an empty text is `blank`."""

    def embed_figures(self, figures: Iterable["FigurePicture"], most_pixels: int) -> Iterator[Embedding]:
        """Yield vectors of figures from captions and pictures of at most `most_pixels`.

        This is only called for an engine with `figure` among its `queries_match`.
        """
        raise EngineError(f"{type(self).__name__} makes no vectors of figures: set figures.vectors to false")

    @abstractmethod
    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        """Yield vectors of pairs (id, query).

        They are compared with vectors of `queries_match` by dot product.
        """

    def passage_recipe(self) -> dict[str, Any]:
        """Return everything that determines the vectors of passages; see `recipe`."""
        return self.recipe()

    def embed_passages(self, texts: Iterable[tuple[str, str]]) -> Iterator[PassageEmbedding]:
        """Yield the vectors of the passages of pairs (id, text); an empty text is `blank`.

        This is only called for an engine with `meaning` among its `queries_match`.
        """
        raise EngineError(f"{type(self).__name__} makes no vectors of passages")

    def embed_questions(self, questions: Iterable[str]) -> np.ndarray:
        """Return the vectors with which passages are compared, (questions, passage_dim) of norm 1."""
        raise EngineError(f"{type(self).__name__} makes no vectors of passages")

    def reference(self, page: Page, text: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Return vectors of a page and a text by the model's own code.

        They are in full precision, each (dim,) of norm 1, for a self-test; None if there is no such code. Raises
        `EngineError`.
        """
        return None

    def report(self) -> dict[str, float | str]:
        """Return figures of the last run of vectors, for plots."""
        return {}
