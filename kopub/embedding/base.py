"""The embedding protocol."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kopub.engine import Engine
from kopub.errors import EngineError
from kopub.pages.page import Page
from kopub.states import State

if TYPE_CHECKING:
    import numpy as np

    # Client processes load this module, and no Arrow with it.
    from kopub.figures.figure import FigurePicture


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of a page, a text, a query or a figure.

    `vector` is float32 of shape (dim,) with L2 norm 1, or None unless the state is `ok`.
    """

    id: str
    state: State
    vector: "np.ndarray | None" = None
    reason: str | None = None


MAX_DIM = 16_384
"""Largest dimension of a vector: no model in use has more, and a store of longer vectors would not fit in memory."""


class Embedder(Engine):
    """Turns pages, texts and queries into vectors.

    Each method yields one `Embedding` per item, in any order.
    """

    queries_match: ClassVar[frozenset[str]] = frozenset({"image", "text"})
    """Kinds of vectors that a query's vector can be compared with; `figure` if the engine makes vectors of figures."""

    is_lexical: ClassVar[bool] = False
    """Whether vectors compare spelling, so that a page without a word of the query cannot match it well."""

    typical_image_seconds: ClassVar[float] = 0.05
    """`typical_seconds` for a page image."""

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

    def reference(self, page: Page, text: str) -> "tuple[np.ndarray, np.ndarray] | None":
        """Return vectors of a page and a text by the model's own code.

        They are in full precision, each (dim,) of norm 1, for a self-test; None if there is no such code. Raises
        `EngineError`.
        """
        return None

    def report(self) -> dict[str, float | str]:
        """Return figures of the last run of vectors, for plots."""
        return {}
