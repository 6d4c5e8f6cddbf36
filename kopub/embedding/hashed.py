"""Vectors without weights: hashed character n-grams for text, a visual descriptor for pages."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import ClassVar

import mmh3
import numpy as np
from pydantic import Field

from kopub.embedding.base import MAX_DIM, Embedder, Embedding
from kopub.engine import releases
from kopub.errors import UndecodableImage
from kopub.figures.figure import FigurePicture
from kopub.fingerprints import CodeVersion
from kopub.pages.page import Page, room_for
from kopub.parallel import bounded_map
from kopub.states import State

_HASHER = {"scikit-learn": "1.9.1"}
"""The release of scikit-learn whose `FeatureHasher` made the first tables; `_embed` makes the same vectors."""


class HashedEmbedder(Embedder):
    """Lexical vectors of texts and queries, and look-alike vectors of pages, on any machine.

    Terms are hashed into `dim` signed buckets (Weinberger et al., 2009: "Feature Hashing for Large Scale Multitask
    Learning"), so nothing is learnt, stored or downloaded. Text vectors know no synonyms; image vectors can only be
    compared with image vectors. The vector of a figure is that of its caption, so a figure without one has none.
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
        return releases("opencv-python-headless") | _HASHER

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        def embed(page: Page) -> Embedding:
            try:
                with room_for(page.data):
                    values = describe_page(page.image)
            except UndecodableImage as error:
                return Embedding(page.page_id, error.state, reason=str(error))
            terms = ((str(position), value) for position, value in enumerate(values))
            return self._embed(page.page_id, terms, "the page is of one colour")

        yield from bounded_map(embed, pages, self.threads)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        # Texts are embedded one after another, because each takes about a millisecond of Python, which threads cannot
        # share.
        for id, text in texts:
            yield self._embed_text(id, text)

    def embed_figures(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[Embedding]:
        # A descriptor of the figure's picture could not be compared with any query.
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
        return self._embed(id, weigh_ngrams(text).items(), "the text has no letters or digits to compare")

    def _embed(self, id: str, terms: Iterable[tuple[str, float]], nothing: str) -> Embedding:
        """Return the signed hash of terms at unit length, `blank` if none are left."""
        values: list[float] = []
        buckets: list[int] = []
        for term, value in terms:
            if value:
                number = mmh3.hash(term)
                values.append(value if number >= 0 else -value)
                buckets.append(abs(number) % self.dim)
        summed = np.bincount(np.array(buckets, np.int64), values, self.dim)
        norm = np.sqrt(np.sum(summed * summed))
        if not norm:
            return Embedding(id, State.BLANK, reason=nothing)
        return Embedding(id, State.OK, (summed / norm).astype(np.float32))


_NGRAM_SIZES = (2, 3)
_OPENINGS = (50, 100, 200, 400)
"""Lengths of the openings that count again, because a page opens with its heading and says what it is about."""
_OPENING_WEIGHT = 0.5
"""Weight of each opening, as a share of the whole text's weight."""
_WORD_START = " "
_STEM_WEIGHT = 2.0
"""Weight of an n-gram at the start of a word, because Korean stems come first and grammar follows."""

_SEPARATORS = re.compile(r"[\W_]+")
_ENDING = re.compile(
    r"(?:(?:합|됩|입|습|읍)?니(?:다|까)|하?십시오|하?세요|(?:인|한)가요|나요|까요|[어아해에예]요|(?<=[가-힣]{2})다)$"
)
"""Polite and interrogative sentence endings, which every sentence has, whatever it is about."""


def weigh_ngrams(text: str) -> dict[str, float]:
    """Return the character n-grams of a text with their weights.

    They are empty if it has neither letters nor digits. A term's weight is 1 + ln(count), doubled at the start of a
    word, divided by the text's L2 norm, in the whole text and in each of its openings. n-grams stay within a word and
    mark where a word begins but not where it ends, because Korean words end in particles.
    """
    words = _SEPARATORS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).split()
    stems = [stem for word in words if (stem := _ENDING.sub("", word))] or words
    whole = " ".join(stems)
    weights = _unit_weights(whole)
    for length in _OPENINGS:
        if length < len(whole):
            for term, weight in _unit_weights(whole[:length]).items():
                weights[term] = weights.get(term, 0.0) + _OPENING_WEIGHT * weight
    return weights


def _unit_weights(text: str) -> dict[str, float]:
    ngrams: list[str] = []
    for word in text.split():
        marked = _WORD_START + word
        for size in _NGRAM_SIZES:
            ngrams += [marked[start : start + size] for start in range(len(marked) - size + 1)]
    weights: dict[str, float] = {}
    for term, count in Counter(ngrams).items():
        weights[term] = (1 + math.log(count)) * (_STEM_WEIGHT if term[0] == _WORD_START else 1.0)
    norm = math.sqrt(math.fsum(weight * weight for weight in weights.values()))
    return {term: weight / norm for term, weight in weights.items()}


_WIDTH, _HEIGHT = 352, 496
"""The size to which every page is scaled: A4 at about 42 dpi, where lines of text are still separate."""
_THUMBNAIL = (32, 44)
_CELLS_ACROSS, _CELLS_DOWN = 8, 11
_DIRECTIONS = 8
_COLOUR_BINS = [12, 4, 4]
_PROFILE = 64
_BLOCK_WEIGHTS = {"thumbnail": 1.0, "edges": 1.0, "colours": 0.5, "profiles": 0.5}
"""Weights of the blocks: colours and profiles alone find a recompressed or shifted page less often than the others."""
_EMPTY_CONTRAST = 8
"""Grey levels between the lightest and darkest spot of a page; JPEG noise on an empty page stays below this."""


def describe_page(image: np.ndarray) -> np.ndarray:
    """Return the descriptor of an RGB page, float64 of shape (2432,).

    It has shape (0,) for a page of one colour. It consists of blocks, each of L2 norm 1 times its weight: the blurred
    thumbnail of the ink; histograms of gradient directions in 8 x 11 cells (Dalal and Triggs, 2005, unsigned,
    square-rooted); the HSV histogram; the ink by row and by column.
    """
    import cv2

    small = cv2.resize(image, (_WIDTH, _HEIGHT), interpolation=cv2.INTER_AREA)
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    if int(gray.max()) - int(gray.min()) < _EMPTY_CONTRAST:
        return np.empty(0)
    ink = 255.0 - gray
    thumbnail = cv2.GaussianBlur(cv2.resize(ink, _THUMBNAIL, interpolation=cv2.INTER_AREA), (0, 0), 1.0)

    # Each pixel adds the strength of its edge to one direction of its cell.
    across, down = cv2.Sobel(gray, cv2.CV_64F, 1, 0), cv2.Sobel(gray, cv2.CV_64F, 0, 1)
    direction = np.arctan2(down, across) % np.pi / np.pi * _DIRECTIONS
    row = np.arange(_HEIGHT)[:, None] * _CELLS_DOWN // _HEIGHT
    column = np.arange(_WIDTH) * _CELLS_ACROSS // _WIDTH
    bins = (row * _CELLS_ACROSS + column) * _DIRECTIONS + np.minimum(direction.astype(np.intp), _DIRECTIONS - 1)
    size = _CELLS_DOWN * _CELLS_ACROSS * _DIRECTIONS
    edges = np.sqrt(np.bincount(bins.ravel(), np.hypot(across, down).ravel(), size))

    hsv = cv2.cvtColor(small, cv2.COLOR_RGB2HSV)
    histogram = cv2.calcHist([hsv], [0, 1, 2], None, _COLOUR_BINS, [0, 180, 0, 256, 0, 256])
    colours = np.sqrt(histogram.astype(np.float64))

    profiles: list[np.ndarray] = []
    for axis in (1, 0):
        profile = cv2.resize(ink.mean(axis=axis)[:, None], (1, _PROFILE), interpolation=cv2.INTER_AREA)
        profiles.append(_unit_vector(profile.ravel()))

    blocks = {"thumbnail": thumbnail, "edges": edges, "colours": colours, "profiles": np.concatenate(profiles)}
    return np.concatenate([weight * _unit_vector(blocks[name].ravel()) for name, weight in _BLOCK_WEIGHTS.items()])


def _unit_vector(values: np.ndarray) -> np.ndarray:
    """Return `values`, centred and at L2 norm 1; zeros if all are equal."""
    centred = values - values.mean()
    norm = np.sqrt(np.sum(centred * centred))
    return centred / norm if norm else centred
