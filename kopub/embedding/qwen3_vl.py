"""Qwen3-VL-Embedding on a model server: pages, texts and queries in one space."""

import json
import os
import subprocess
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from kopub.embedding.base import MAX_DIM, Embedder, Embedding
from kopub.embedding.qwen3_vl_handlers import (
    EmbeddingSettings,
    ImageEmbeddingHandler,
    ImageVectorJob,
    TextEmbeddingHandler,
    TextVectorJob,
)
from kopub.embedding.qwen3_vl_inputs import PATCH
from kopub.embedding.tokenized_engine import MEMORY_2B, MEMORY_8B, TokenizedEngine
from kopub.errors import EngineError, first_line
from kopub.figures.figure import FigurePicture
from kopub.fingerprints import CodeVersion
from kopub.pages.page import LEAST_PACKED, Page
from kopub.states import State, phrase
from kopub.vllm.served_engine import ModelMemory
from kopub.vllm.server_fields import VLLMServerFields

_TEXT_MODULES = ("kopub.embedding.qwen3_vl_handlers",)
"""Modules that a client process imports for texts, which need neither PyTorch nor a decoder."""


class Qwen3VLEmbedder(TokenizedEngine, Embedder):
    """Makes vectors by which a query finds pages by image or text.

    See Li et al., 2026, arXiv 2601.04720. Prompts, image sizes and pooling are those of the authors' own code. A vector
    is the hidden state of the last token; its first `dim` numbers, scaled to norm 1, are also a vector (Matryoshka
    representation learning, Kusupati et al., 2022). A text of more than `max_tokens` is embedded in chunks, whose mean
    is its vector.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.qwen3_vl", {1: "the first release"})
    typical_seconds: ClassVar[float] = 0.01
    typical_image_seconds: ClassVar[float] = 0.03
    worker_modules: ClassVar[tuple[str, ...]] = (*_TEXT_MODULES, "torch", "cv2", "imagecodecs")
    section: ClassVar[str] = "embedding"
    model_memory: ClassVar[ModelMemory | None] = MEMORY_2B
    large_memory: ClassVar[ModelMemory | None] = MEMORY_8B
    queries_match: ClassVar[frozenset[str]] = frozenset({"image", "text", "figure"})
    limits: ClassVar[tuple[str, ...]] = (
        "Page images are seen at 1.8 million pixels, A4 at about 135 dpi: smaller print is not found by them.",
        "A page of more text than the model takes at once has the mean of its chunks' vectors, "
        "which a query about one of them finds less well.",
    )

    dim: int = Field(
        default=2048, ge=64, le=MAX_DIM, description="Length of the vectors: the first numbers of the model's own."
    )
    width: int = Field(
        default=2048, ge=64, le=MAX_DIM, description="Length of the model's own vectors; 4096 for the 8B."
    )
    instruction: str = Field(default="Represent the user's input.", description="For pages and texts.")
    query_instruction: str = Field(
        default="Retrieve images or text relevant to the user's query.", description="For queries."
    )
    max_tokens: int = Field(default=8192, ge=64, description="Tokens of one text request; longer texts go in chunks.")
    max_pixels: int = Field(default=1_843_200, ge=4096, description="Pixels of a page as the model sees it.")

    @field_validator("instruction", "query_instruction")
    @classmethod
    def _sentence(cls, instruction: str) -> str:
        """End an instruction with a punctuation mark, as the authors do."""
        sentence = instruction.strip()
        if not sentence:
            raise ValueError("an instruction is needed; the model was trained with one")
        return sentence if unicodedata.category(sentence[-1]).startswith("P") else f"{sentence}."

    @model_validator(mode="after")
    def _check(self) -> Self:
        server = self.server
        if server.runner != "pooling":
            raise ValueError(phrase("server.runner: embeddings need pooling, not {runner}", server.runner))
        if self.dim > self.width:
            raise ValueError(phrase("dim: {dim} is more than the model's {width} numbers", self.dim, self.width))
        if self.max_tokens > server.max_model_len:
            form = "max_tokens: {max_tokens} exceed the server's max_model_len, {max_model_len}"
            raise ValueError(phrase(form, self.max_tokens, server.max_model_len))
        if self._image_tokens > server.max_image_tokens:
            raise ValueError(
                f"max_pixels: {self.max_pixels} are {self._image_tokens} tokens, more than the server's "
                f"max_image_tokens ({server.max_image_tokens})"
            )
        return self

    def prepare(self) -> None:
        self.prepare_workers(self.worker_modules, *self.preload_calls())

    def prepare_texts(self) -> None:
        self.prepare_workers(_TEXT_MODULES, *self.preload_calls())

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        make = partial(ImageEmbeddingHandler, self._settings(self.instruction), self.tokenizer_file())
        # A page that the model sees at its full size may be sent as it is, so its own bytes are needed.
        shrinks = self.max_pixels < LEAST_PACKED
        jobs = (ImageVectorJob(page.page_id, (shrinks and page.packed) or bytes(page.data)) for page in pages)
        yield from self.run_jobs(jobs, make, _make_failed)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return self._embed_texts(texts, self.instruction)

    def embed_figures(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[Embedding]:
        settings = replace(
            self._settings(self.instruction), max_image_tokens=min(self._image_tokens, most_pixels // PATCH**2)
        )
        make = partial(ImageEmbeddingHandler, settings, self.tokenizer_file())
        jobs = (ImageVectorJob(figure.id, figure.data, figure.caption) for figure in figures)
        yield from self.run_jobs(jobs, make, _make_failed)

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return self._embed_texts(queries, self.query_instruction)

    def reference(self, page: Page, text: str) -> "tuple[np.ndarray, np.ndarray]":
        """Return vectors by transformers in float32 on the host.

        This takes 10 GB of memory for the 2B model.
        """
        raw = reference_vectors(
            self.server.python(), self.server, self.instruction, bytes(page.data), self.max_pixels, text
        )
        cut = raw[:, : self.dim].astype(np.float64)
        of_page, of_text = cut / np.linalg.norm(cut, axis=1, keepdims=True)
        return of_page, of_text

    @property
    def _image_tokens(self) -> int:
        return self.max_pixels // PATCH**2

    def _embed_texts(self, texts: Iterable[tuple[str, str]], instruction: str) -> Iterator[Embedding]:
        make = partial(TextEmbeddingHandler, self._settings(instruction), self.tokenizer_file())
        yield from self.run_jobs((TextVectorJob(id, text) for id, text in texts), make, _make_failed)

    def _settings(self, instruction: str) -> EmbeddingSettings:
        return EmbeddingSettings(instruction, self.width, self.dim, self.max_tokens, self._image_tokens)


def _make_failed(job: ImageVectorJob | TextVectorJob, reason: str) -> Embedding:
    return Embedding(job.id, State.FAILED, reason=reason)


_SCRIPT = Path(__file__).with_name("transformers_vectors.py")
_SECONDS = 1200.0
"""Most seconds for a page of 15 TFLOP in float32: half a minute on 16 cores, ten minutes on a small laptop."""


def reference_vectors(
    python: str, server: VLLMServerFields, instruction: str, data: bytes, max_pixels: int, text: str
) -> np.ndarray:
    """Return raw vectors (2, width) of an encoded page and a text by transformers.

    `python` is an interpreter with transformers. Raises `EngineError` if it cannot be run.
    """
    from huggingface_hub import snapshot_download

    checkpoint = server.folder.absolute()
    if not checkpoint.is_dir():
        try:
            checkpoint = snapshot_download(server.model, revision=server.revision, local_files_only=True)
        except OSError as error:
            raise EngineError("{model} is not in the Hub's cache: {error}", server.model, first_line(error)) from None
    with TemporaryDirectory(prefix="kopub-reference-") as folder:
        picture, inputs, output = (Path(folder) / name for name in ("page", "inputs.json", "vectors.npy"))
        picture.write_bytes(data)
        items = [
            {"instruction": instruction, "image": str(picture), "max_pixels": max_pixels},
            {"instruction": instruction, "text": text},
        ]
        inputs.write_text(json.dumps(items), "utf-8")
        command = [python, str(_SCRIPT), str(checkpoint), str(inputs), str(output)]
        # The modules beside the script must not be imported by transformers.
        alone = {**os.environ, "PYTHONSAFEPATH": "1"}
        try:
            done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError("transformers' own vectors were not made: {error}", first_line(error)) from None
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2] or f"it ended with status {done.returncode}"
            raise EngineError("transformers' own vectors were not made: {error}", last)
        return np.load(output)
