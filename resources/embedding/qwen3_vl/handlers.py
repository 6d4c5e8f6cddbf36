"""Pages and texts embedded by a server: what a client process does with them."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from resources.embedding.embeddings import Embedding
from resources.embedding.qwen3_vl.chunking import Passages
from resources.embedding.qwen3_vl.embedding_requests import PATH, Answer, picture_request, read_vector, text_request
from resources.embedding.qwen3_vl.page_images import check_resizer, picture
from resources.errors import EngineError, UndecodableImage
from resources.pages.images import decode
from resources.states import State
from resources.vllm.client.client import Client
from resources.vllm.client.fair_queue import gather_all
from resources.vllm.client.http_errors import Refused, Unanswered

_SURE = 3
"""Vectors of another width, and none of the right one, after which the server serves another model."""

Figures = defaultdict[str, float]


@dataclass(frozen=True, slots=True)
class PageJob:
    """A page to be embedded, as it travels to a client process."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class TextJob:
    """A text or query to be embedded."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Manner:
    """How vectors are asked for: `width` is that of the model's own, cut to `dim`; limits are in tokens."""

    instruction: str
    width: int
    dim: int
    max_tokens: int
    max_image_tokens: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: its body once the model's name is known, and the tokens of its prompt."""

    body: Callable[[str], bytes]
    tokens: int


@dataclass(slots=True)
class Ready:
    """A job with its requests. `settled` is set when nothing is to be asked.

    `untouched` are the source's bytes where they are sent as they are.
    """

    id: str
    settled: Embedding | None = None
    asks: list[Ask] = field(default_factory=list)
    untouched: bytes | None = None
    figures: Figures = field(default_factory=lambda: defaultdict(float))


class _Unusable(Exception):
    """An answer that is no vector of the text or picture; the reason for a person."""


class VectorMaker:
    """What the `Handler`s of pages and texts share; see `resources.vllm.client.worker_pool`.

    Raises `EngineError` for a tokenizer that is not the model's.
    """

    def __init__(self, manner: Manner, tokenizer: Path) -> None:
        self._manner = manner
        self._passages = Passages(tokenizer, manner.instruction, manner.max_tokens)
        self._right = self._wrong = 0

    def close(self) -> None:
        """Nothing is held."""

    async def finish(self, ready: Ready, client: Client) -> tuple[Embedding, Figures]:
        """Ask for every part and make one vector of them: all of it or none."""
        if ready.settled is not None:
            return ready.settled, ready.figures
        try:
            parts = await gather_all(self._ask(ready, ask, client) for ask in ready.asks)
            made = Embedding(ready.id, State.OK, self._pooled(parts))
        except Refused as error:
            made = await self._refused(ready, str(error))
        except (Unanswered, _Unusable) as error:
            made = Embedding(ready.id, State.FAILED, reason=str(error))
        ready.figures["requests_repeated"] += client.take_retries()
        return made, ready.figures

    async def _refused(self, ready: Ready, reason: str) -> Embedding:
        """The end of what the server will not take; bytes that only it has decoded so far may be to blame."""
        if ready.untouched is not None:
            try:
                await asyncio.to_thread(decode, ready.untouched)
            except UndecodableImage as error:
                return Embedding(ready.id, State.QUARANTINED, reason=str(error))
        return Embedding(ready.id, State.FAILED, reason=f"the server refused it: {reason}")

    async def _ask(self, ready: Ready, ask: Ask, client: Client) -> Answer:
        model = await client.model()
        ready.figures["requests"] += 1
        answer, _ = await client.post(PATH, ask.body(model), read_vector, ready.id, ask.tokens)
        ready.figures["tokens"] += answer.tokens
        self._check(ask, answer)
        return answer

    def _check(self, ask: Ask, answer: Answer) -> None:
        """Raise `_Unusable` for an answer that is none, and `EngineError` when there seem to be no others."""
        width = len(answer.vector)
        if width != self._manner.width:
            self._wrong += 1
            reason = f"the server's vectors have {width} numbers, not the {self._manner.width} of the model"
            if self._wrong >= _SURE and not self._right:
                raise EngineError(f"{reason}; check which model it serves, or the embedding's `width`")
            raise _Unusable(reason)
        self._right += 1
        if answer.tokens != ask.tokens:
            raise _Unusable(
                f"the server read {answer.tokens} tokens where {ask.tokens} were sent: it cuts texts off, "
                "resizes pictures or has another template"
            )
        if not np.isfinite(answer.vector).all():
            raise _Unusable("the server's vector holds NaN or infinity")

    def _pooled(self, parts: Sequence[Answer]) -> np.ndarray:
        """The mean of the parts' vectors by their tokens, of norm 1; each is cut to `dim` and of norm 1 before."""
        cut = np.stack([part.vector[: self._manner.dim] for part in parts]).astype(np.float64)
        norms = np.linalg.norm(cut, axis=1, keepdims=True)
        if not norms.all():
            raise _Unusable("the server's vector is zero")
        mean = np.average(cut / norms, axis=0, weights=[part.tokens for part in parts])
        norm = np.linalg.norm(mean)
        if not norm:
            raise _Unusable("the vectors of the text's passages cancel out")
        return (mean / norm).astype(np.float32)


class PageVectors(VectorMaker):
    """The `Handler` of pages. Raises `EngineError` where PyTorch is not installed."""

    def __init__(self, manner: Manner, tokenizer: Path) -> None:
        super().__init__(manner, tokenizer)
        check_resizer()

    def prepare(self, job: PageJob) -> Ready:
        """Decode and resize the page, unless its bytes can go as they are."""
        started = time.perf_counter()
        ready = Ready(job.id)
        instruction = self._manner.instruction
        try:
            page = picture(job.data, self._manner.max_image_tokens)
        except UndecodableImage as error:
            ready.settled = Embedding(job.id, State.QUARANTINED, reason=str(error))
            return ready
        tokens = self._passages.around_a_picture() + page.tokens
        ready.asks.append(Ask(lambda model: picture_request(model, instruction, page), tokens))
        ready.untouched = job.data if page.untouched else None
        ready.figures["pictures_untouched"] += page.untouched
        ready.figures["prepare_seconds"] += time.perf_counter() - started
        return ready


class TextVectors(VectorMaker):
    """The `Handler` of texts and queries."""

    def prepare(self, job: TextJob) -> Ready:
        """Count the text's tokens, and split what has too many."""
        started = time.perf_counter()
        ready = Ready(job.id)
        if not job.text.strip():
            ready.settled = Embedding(job.id, State.BLANK)
            return ready
        prompts = self._passages.of(job.text)
        ready.asks = [Ask(partial(text_request, tokens=tokens), len(tokens)) for tokens in prompts]
        ready.figures["texts_in_passages"] += len(prompts) > 1
        ready.figures["passages"] += len(prompts)
        ready.figures["prepare_seconds"] += time.perf_counter() - started
        return ready
