"""The GPU embedder: Qwen3-VL-Embedding on a model server, with pages, texts and queries in one space."""

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from resources.code_version import CodeVersion
from resources.embedding.base import MAX_DIM, Embedder
from resources.embedding.embeddings import Embedding
from resources.embedding.qwen3_vl.handlers import (
    EmbeddingSettings,
    FigureEmbeddingHandler,
    FigureVectorJob,
    PageEmbeddingHandler,
    PageVectorJob,
    TextEmbeddingHandler,
    TextVectorJob,
)
from resources.embedding.qwen3_vl.inputs import PATCH, read_ahead
from resources.engine import missing_modules, releases, require_installed
from resources.errors import EngineError
from resources.figures.figure import FigurePicture
from resources.fingerprints import file_sha256
from resources.pages.page import Page
from resources.resource import ProfileOnly
from resources.states import State
from resources.vllm.served_engine import ServedEngine
from resources.weights.pinned import Weights, called

if TYPE_CHECKING:
    import numpy as np


_TOKENIZER = "tokenizer.json"
_TEXT_MODULES = ("resources.embedding.qwen3_vl.handlers",)
"""What a client process imports for texts: they need neither PyTorch nor a decoder."""


class Qwen3VLEmbedder(ServedEngine, Embedder):
    """Vectors by which a query finds pages, through their images or their texts (Li et al., 2026, arXiv 2601.04720).

    Prompts, image sizes and pooling are those of the authors' own code. A vector is the hidden
    state of the last token; its first `dim` numbers, brought to norm 1, are a vector too (Matryoshka
    representation learning, Kusupati et al., 2022). A text of more than `max_tokens` is embedded in
    chunks, whose mean is its vector.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.qwen3_vl", {1: "the first release"})
    typical_seconds: ClassVar[float] = 0.01
    typical_image_seconds: ClassVar[float] = 0.03
    worker_modules: ClassVar[tuple[str, ...]] = (*_TEXT_MODULES, "torch", "cv2", "imagecodecs")
    speed_only: ClassVar[frozenset[str]] = ServedEngine.speed_only | {"tokenizer"}
    queries_match: ClassVar[frozenset[str]] = frozenset({"image", "text", "figure"})
    limits: ClassVar[tuple[str, ...]] = (
        "Page images are seen at 1.8 million pixels, A4 at about 135 dpi: smaller print is not found by them.",
        "A page of more text than the model takes at once has the mean of its chunks' vectors, "
        "which a query about one of them finds less well.",
    )

    dim: int = Field(
        default=2048, ge=64, le=MAX_DIM, description="Length of the vectors; the first numbers of the model's own."
    )
    width: int = Field(
        default=2048, ge=64, le=MAX_DIM, description="Length of the model's own vectors; 4096 for the 8B."
    )
    instruction: str = Field(default="Represent the user's input.", description="For pages and texts.")
    query_instruction: str = Field(
        default="Retrieve images or text relevant to the user's query.", description="For queries."
    )
    max_tokens: int = Field(default=8192, ge=64, description="Of one text request; longer texts go in chunks.")
    max_pixels: int = Field(default=1_843_200, ge=4096, description="Of a page as the model sees it.")
    tokenizer: ProfileOnly[str] = Field(
        default="", description="The model's tokenizer.json; empty: from where its weights are."
    )

    @field_validator("instruction", "query_instruction")
    @classmethod
    def _sentence(cls, instruction: str) -> str:
        """As the authors send it: a sentence with its end."""
        said = instruction.strip()
        if not said:
            raise ValueError("an instruction is needed; the model was trained with one")
        return said if unicodedata.category(said[-1]).startswith("P") else f"{said}."

    @model_validator(mode="after")
    def _check(self) -> Self:
        server = self.server
        if server.runner != "pooling":
            raise ValueError(f"server.runner: embeddings need pooling, not {server.runner}")
        if self.dim > self.width:
            raise ValueError(f"dim: {self.dim} is more than the model's {self.width} numbers")
        if self.max_tokens > server.max_model_len:
            raise ValueError(f"max_tokens: {self.max_tokens} exceed the server's max_model_len, {server.max_model_len}")
        if self._image_tokens > server.max_image_tokens:
            raise ValueError(
                f"max_pixels: {self.max_pixels} are {self._image_tokens} tokens, more than the server's "
                f"max_image_tokens ({server.max_image_tokens})"
            )
        return self

    def weights(self) -> dict[str, str]:
        own = {"tokenizer": file_sha256(Path(self.tokenizer))} if self.tokenizer else {}
        return {**super().weights(), **own, **releases("torch", "opencv-python-headless")}

    def prepare(self) -> None:
        self.prepare_workers(self.worker_modules, *self._reading())

    def prepare_texts(self) -> None:
        self.prepare_workers(_TEXT_MODULES, *self._reading())

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        make = partial(PageEmbeddingHandler, self._settings(self.instruction), self.tokenizer_file())
        yield from self.run_jobs((PageVectorJob(page.page_id, bytes(page.data)) for page in pages), make, _lost)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return self._embed_texts(texts, self.instruction)

    def embed_figures(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[Embedding]:
        settings = replace(
            self._settings(self.instruction), max_image_tokens=min(self._image_tokens, most_pixels // PATCH**2)
        )
        make = partial(FigureEmbeddingHandler, settings, self.tokenizer_file())
        jobs = (FigureVectorJob(figure.id, figure.data, figure.caption) for figure in figures)
        yield from self.run_jobs(jobs, make, _lost)

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return self._embed_texts(queries, self.query_instruction)

    def reference(self, page: Page, text: str) -> "tuple[np.ndarray, np.ndarray]":
        """By transformers in float32, on the host: 10 GB of memory for the 2B model."""
        import numpy as np

        from resources.embedding.qwen3_vl.reference import reference_vectors

        raw = reference_vectors(
            self.server.python(), self.server, self.instruction, bytes(page.data), self.max_pixels, text
        )
        cut = raw[:, : self.dim].astype(np.float64)
        image, said = cut / np.linalg.norm(cut, axis=1, keepdims=True)
        return image, said

    def not_installed(self) -> list[str]:
        return [*missing_modules("torch", "tokenizers"), *super().not_installed()]

    def tokenizer_file(self) -> Path:
        """Where the tokenizer is; fetched from the Hub, or found in its cache, when the model is a repository."""
        from huggingface_hub import hf_hub_download

        require_installed([self])
        path = self._own_tokenizer
        if path.is_file():
            return path
        if self.tokenizer or self.server.revision is None:
            raise EngineError(f"there is no {path}; name the model's tokenizer.json in the embedding's `tokenizer`")
        with called(Weights(self.server.model, self.server.revision, ("embedding",))):
            return Path(hf_hub_download(self.server.model, _TOKENIZER, revision=self.server.revision))

    def _reading(self) -> tuple[Callable[[], object], ...]:
        """The reading of the tokenizer ahead of the first job, where it lies on this machine already."""
        from huggingface_hub import try_to_load_from_cache

        path: Any = self._own_tokenizer
        if not path.is_file() and not self.tokenizer and self.server.revision is not None:
            with suppress(ValueError):  # no repository has such a name, as the download will say
                path = try_to_load_from_cache(self.server.model, _TOKENIZER, revision=self.server.revision)
        return (partial(read_ahead, Path(path)),) if isinstance(path, str | Path) else ()

    @property
    def _own_tokenizer(self) -> Path:
        """Where it is unless the model is a repository."""
        return Path(self.tokenizer or Path(self.server.checkpoint) / _TOKENIZER).expanduser()

    @property
    def _image_tokens(self) -> int:
        return self.max_pixels // PATCH**2

    def _embed_texts(self, texts: Iterable[tuple[str, str]], instruction: str) -> Iterator[Embedding]:
        make = partial(TextEmbeddingHandler, self._settings(instruction), self.tokenizer_file())
        yield from self.run_jobs((TextVectorJob(id, text) for id, text in texts), make, _lost)

    def _settings(self, instruction: str) -> EmbeddingSettings:
        return EmbeddingSettings(instruction, self.width, self.dim, self.max_tokens, self._image_tokens)


def _lost(job: PageVectorJob | FigureVectorJob | TextVectorJob, reason: str) -> Embedding:
    return Embedding(job.id, State.FAILED, reason=reason)
