"""Qwen3-VL-Reranker on a model server: a question and a page, read together."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import ClassVar, Self

from pydantic import Field, model_validator

from kopub.embedding.qwen3_vl_inputs import PATCH, warm_up_resizer
from kopub.embedding.tokenized_engine import MEMORY_2B, MEMORY_8B, TokenizedEngine
from kopub.fingerprints import CodeVersion
from kopub.reranking.base import Reranker
from kopub.reranking.pairs import Pair, PairHandler, PairSettings, Relevance
from kopub.states import phrase
from kopub.vllm.served_engine import ModelMemory

_PROMPT_TOKENS = 1024
"""Tokens reserved for template, instruction and question beside a page."""


class Qwen3VLReranker(TokenizedEngine, Reranker):
    """Scores pages with Qwen3-VL-Reranker: how much likelier its answer is yes than no.

    See Li et al., 2026, arXiv 2601.04720. Template, instruction and sizes are the authors'. Each pair is one request.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("reranking.qwen3_vl", {1: "the first release"})
    section: ClassVar[str] = "reranking"
    typical_seconds: ClassVar[float] = 0.02
    model_memory: ClassVar[ModelMemory | None] = MEMORY_2B
    large_memory: ClassVar[ModelMemory | None] = MEMORY_8B
    worker_modules: ClassVar[tuple[str, ...]] = ("kopub.reranking.pairs", "torch", "cv2", "imagecodecs")
    speed_only: ClassVar[frozenset[str]] = TokenizedEngine.speed_only | Reranker.speed_only

    instruction: str = Field(
        default="Given a search query, retrieve relevant candidates that answer the query.",
        min_length=1,
        description="What makes a page a good answer.",
    )
    max_tokens: int = Field(
        default=8192, ge=256, description="Tokens of a whole request; a longer text of a page is cut."
    )
    max_pixels: int = Field(default=1_310_720, ge=4096, description="Pixels of a page as the model sees it.")
    request_seconds: float = Field(default=60.0, gt=0, description="Longest wait for the answer to one request.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        server, image_tokens = self.server, self.max_pixels // PATCH**2
        if (server.runner, server.convert) != ("pooling", "classify"):
            raise ValueError("server.convert: reranking needs runner pooling and convert classify")
        if self.max_tokens > server.max_model_len:
            form = "max_tokens: {max_tokens} exceed the server's max_model_len, {max_model_len}"
            raise ValueError(phrase(form, self.max_tokens, server.max_model_len))
        if self.sees == "text":
            return self
        if image_tokens > server.max_image_tokens:
            raise ValueError(
                f"max_pixels: {self.max_pixels} are {image_tokens} tokens, more than the server's "
                f"max_image_tokens ({server.max_image_tokens})"
            )
        if image_tokens + _PROMPT_TOKENS > self.max_tokens:
            raise ValueError(
                f"max_tokens: a picture of {image_tokens} tokens leaves no room for the question in {self.max_tokens}"
            )
        return self

    def boot(self) -> None:
        calls = self.preload_calls() if self.sees == "text" else (*self.preload_calls(), warm_up_resizer)
        self.boot_workers(self.worker_modules, *calls)

    def score(self, pairs: Iterable[Pair]) -> Iterator[Relevance]:
        settings = PairSettings(self.instruction, self.max_tokens, self.max_pixels // PATCH**2)
        make = partial(PairHandler, settings, self.tokenizer_file())
        yield from self.run_jobs(pairs, make, lambda pair, reason: Relevance(pair.id, None, reason))
