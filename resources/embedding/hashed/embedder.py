"""Vectors without weights: hashed character n-grams for text, a visual descriptor for pages."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from resources.code_version import CodeVersion
from resources.embedding.base import MAX_DIM, Embedder
from resources.embedding.embeddings import Embedding
from resources.embedding.hashed.ngrams import weigh
from resources.embedding.hashed.visual import describe
from resources.errors import UndecodableImage
from resources.figures.figure import FigurePicture
from resources.pages.page import Page
from resources.parallel import bounded_map
from resources.states import State

if TYPE_CHECKING:
    from sklearn.feature_extraction import FeatureHasher


class HashedEmbedder(Embedder):
    """Lexical vectors of texts and queries, and look-alike vectors of pages, on any machine.

    Terms are hashed into `dim` signed buckets (Weinberger et al., 2009: "Feature Hashing for Large
    Scale Multitask Learning"), so nothing is learnt, stored or downloaded. Text vectors know no
    synonyms; image vectors compare with image vectors only. The vector of a figure is that of its caption:
    a figure without one has none.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.hashed", {1: "the first release"})
    typical_seconds: ClassVar[float] = 0.002
    limits: ClassVar[tuple[str, ...]] = (
        "Text and query vectors are lexical hashes: they compare spelling, and know neither synonyms nor translations.",
        "Image vectors describe the look of a page and compare with image vectors only, not with queries or texts.",
    )
    queries_match: ClassVar[frozenset[str]] = frozenset({"text", "figure"})
    is_lexical: ClassVar[bool] = True
    speed_only: ClassVar[frozenset[str]] = frozenset({"threads"})

    dim: int = Field(
        default=2048, ge=64, le=MAX_DIM, description="Length of the vectors; fewer buckets mean more collisions."
    )
    threads: int = Field(default=0, ge=0, description="Pages worked on at once; 0 means one per core.")

    def weights(self) -> dict[str, str]:
        return {package: version(package) for package in ("opencv-python-headless", "scikit-learn")}

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        yield from bounded_map(self._embed_image, pages, self.threads)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        # One after the other: a text takes about a millisecond of Python, which threads would not share.
        for id, text in texts:
            yield self._embed_text(id, text)

    def embed_figures(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[Embedding]:
        # A descriptor of its picture would compare with no query.
        for figure in figures:
            if figure.caption.strip():
                yield self._embed_text(figure.id, figure.caption)
            else:
                yield Embedding(figure.id, State.BLANK, reason="it has no caption, and this engine reads no pictures")

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        yield from self.embed_texts(queries)

    def _embed_text(self, id: str, text: str) -> Embedding:
        if not text.strip():
            return Embedding(id, State.BLANK)
        return self._embed(id, weigh(text).items(), "the text has no letters or digits to compare")

    def _embed_image(self, page: Page) -> Embedding:
        try:
            values = describe(page.image)
        except UndecodableImage as error:
            return Embedding(page.page_id, error.state, reason=str(error))
        terms = ((str(position), value) for position, value in enumerate(values))
        return self._embed(page.page_id, terms, "the page is of one colour")

    def _embed(self, id: str, terms: Iterable[tuple[str, float]], nothing: str) -> Embedding:
        """The signed hash of weighted terms at unit length; `blank` for the reason `nothing` where none are left."""

        summed = self._hasher.transform([terms]).toarray()[0]
        norm = np.sqrt(np.sum(summed * summed))
        if not norm:
            return Embedding(id, State.BLANK, reason=nothing)
        return Embedding(id, State.OK, (summed / norm).astype(np.float32))

    @cached_property
    def _hasher(self) -> "FeatureHasher":
        from sklearn.feature_extraction import FeatureHasher

        return FeatureHasher(self.dim, input_type="pair")
