"""Embedding requests, and the vectors in their answers. Pure."""

import asyncio
import base64
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from kopub.embedding.base import Embedding
from kopub.embedding.qwen3_vl_inputs import Chunker, EncodedImage, check_resizer, page_image
from kopub.errors import EngineError, UndecodableImage, harmless
from kopub.pages.page import PackedPixels, decode
from kopub.states import Reason, State
from kopub.vllm.client.client import Client
from kopub.vllm.client.requests import (
    Frame,
    JobFigures,
    RefusedRequest,
    UnansweredRequest,
    fill_frame,
    gather_all,
    image_part,
    request_frame,
)

PATH = "/v1/embeddings"
_FORMAT = {"encoding_format": "base64", "embed_dtype": "float32", "endianness": "little"}
"""The format that keeps every bit of the vector, in a third of the bytes that decimals take."""


@dataclass(frozen=True, slots=True)
class VectorAnswer:
    """A vector as the server made it, float32, and its prompt's number of tokens."""

    vector: np.ndarray
    tokens: int


def text_request(model: str, tokens: Sequence[int]) -> bytes:
    """Return the JSON request for the vector of a prompt."""
    return json.dumps({"model": model, "input": list(tokens), **_FORMAT}).encode()


def image_request(model: str, instruction: str, image: EncodedImage, text: str = "") -> bytes:
    """Return the JSON request for the vector of an image, with a text if any."""
    return fill_frame(_frame(model, instruction, image.media_type, text), image.data)


@lru_cache
def _frame(model: str, instruction: str, media_type: str, text: str) -> Frame:
    beside = [{"type": "text", "text": text}] if text else []
    return request_frame(
        {
            "model": model,
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": instruction}]},
                {"role": "user", "content": [image_part(media_type), *beside]},
            ],
            # The vector is taken at the token that the tokenizer adds after the answer's opening; by default,
            # embedding requests have neither.
            "add_generation_prompt": True,
            "add_special_tokens": True,
            **_FORMAT,
        }
    )


def read_vector(answer: Any) -> VectorAnswer:
    """Read the answer to a request for one vector.

    Raises `LookupError`, `TypeError` or `ValueError` for other JSON.
    """
    (item,) = answer["data"]
    vector = np.frombuffer(base64.b64decode(item["embedding"], validate=True), "<f4")
    return VectorAnswer(vector, int(answer["usage"]["prompt_tokens"]))


_SURE = 3
"""Number of vectors of a wrong width, with none of the right width, that prove that the server serves another model."""

_CAPTION_TOKENS = 256
"""The most tokens of a figure's caption: some 200 syllables."""


@dataclass(frozen=True, slots=True)
class ImageVectorJob:
    """A page, or a figure with its caption, as sent to a client process."""

    id: str
    data: bytes | PackedPixels
    caption: str | None = None


@dataclass(frozen=True, slots=True)
class TextVectorJob:
    """A text or query to be embedded."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """Settings of requests and vectors.

    The model's vectors have `width` numbers, of which ours are the first `dim`; limits are in tokens.
    """

    instruction: str
    width: int
    dim: int
    max_tokens: int
    max_image_tokens: int


@dataclass(frozen=True, slots=True)
class VectorRequest:
    """One request: its body as a function of the model's name, and its prompt's tokens."""

    body: Callable[[str], bytes]
    tokens: int


@dataclass(slots=True)
class PreparedVector:
    """A job with its requests; `predetermined` is set if no request is needed.

    `untouched` are the source's bytes if they are sent unchanged.
    """

    id: str
    predetermined: Embedding | None = None
    requests: list[VectorRequest] = field(default_factory=list)
    untouched: bytes | None = None
    figures: JobFigures = field(default_factory=lambda: defaultdict(float))


class _UnusableVector(Exception):
    """The error that an answer is not a vector of the text or image."""


class EmbeddingHandler:
    """The common part of the `Handler`s of pages and texts; see `kopub.vllm.client.worker_pool`.

    Raises `EngineError` for a tokenizer that is not the model's.
    """

    def __init__(self, settings: EmbeddingSettings, tokenizer: Path) -> None:
        self._settings = settings
        self._chunker = Chunker(tokenizer, settings.instruction, settings.max_tokens)
        self._right = self._wrong = 0

    def close(self) -> None:
        """Do nothing, because there is nothing to release."""

    async def finish(self, ready: PreparedVector, client: Client) -> tuple[Embedding, JobFigures]:
        """Send all requests, and make one vector of the answers; one failure fails the job."""
        if ready.predetermined is not None:
            return ready.predetermined, ready.figures
        try:
            answers = await gather_all(self._request(ready, request, client) for request in ready.requests)
            embedding = Embedding(ready.id, State.OK, self._pool(answers))
        except RefusedRequest as error:
            reason = Reason("the server refused it: {reason}", reason=str(error))
            embedding = Embedding(ready.id, State.FAILED, reason=reason)
            # Bytes that were sent as they came have not been decoded, and may be to blame.
            if ready.untouched is not None:
                try:
                    await asyncio.to_thread(decode, ready.untouched)
                except UndecodableImage as undecodable:
                    embedding = Embedding(ready.id, undecodable.state, reason=str(undecodable))
        except (UnansweredRequest, _UnusableVector) as error:
            embedding = Embedding(ready.id, State.FAILED, reason=str(error))
        ready.figures["requests_repeated"] += client.take_retries()
        return embedding, ready.figures

    async def _request(self, prepared: PreparedVector, request: VectorRequest, client: Client) -> VectorAnswer:
        """Return the vector of one request.

        Raises `_UnusableVector` for a wrong vector, and `EngineError` if all are wrong.
        """
        model = await client.model()
        prepared.figures["requests"] += 1
        answer, _ = await client.post(PATH, request.body(model), read_vector, prepared.id, request.tokens)
        prepared.figures["tokens"] += answer.tokens
        width = len(answer.vector)
        if width != self._settings.width:
            self._wrong += 1
            form = "the server's vectors have {width} numbers, not the {expected} of the model"
            reason = Reason(form, width=width, expected=self._settings.width)
            if self._wrong >= _SURE and not self._right:
                raise EngineError("{reason}; check which model it serves, or the embedding's `width`", reason)
            raise _UnusableVector(reason)
        self._right += 1
        if answer.tokens != request.tokens:
            form = (
                "the server read {counted} tokens where {sent} were sent: it cuts texts off, resizes images or has "
                "another template"
            )
            raise _UnusableVector(Reason(form, counted=answer.tokens, sent=request.tokens))
        if not np.isfinite(answer.vector).all():
            raise _UnusableVector("the server's vector holds NaN or infinity")
        return answer

    def _pool(self, chunks: Sequence[VectorAnswer]) -> np.ndarray:
        """Return the mean of the chunks' vectors, weighted by tokens, at norm 1.

        Before that, each is cut to `dim` and scaled to norm 1.
        """
        cut = np.stack([chunk.vector[: self._settings.dim] for chunk in chunks]).astype(np.float64)
        norms = np.linalg.norm(cut, axis=1, keepdims=True)
        if not norms.all():
            raise _UnusableVector("the server's vector is zero")
        mean = np.average(cut / norms, axis=0, weights=[chunk.tokens for chunk in chunks])
        norm = np.linalg.norm(mean)
        if not norm:
            raise _UnusableVector("the vectors of the text's chunks cancel out")
        return (mean / norm).astype(np.float32)


class ImageEmbeddingHandler(EmbeddingHandler):
    """The `Handler` of pages and figures.

    A long caption is cut off, because its beginning says what the figure is. Raises `EngineError` if PyTorch is not
    installed.
    """

    def __init__(self, settings: EmbeddingSettings, tokenizer: Path) -> None:
        super().__init__(settings, tokenizer)
        check_resizer()

    def prepare(self, job: ImageVectorJob) -> PreparedVector:
        """Decode and resize the picture, unless its bytes can be sent unchanged."""
        started = time.perf_counter()
        prepared = PreparedVector(job.id)
        try:
            image = page_image(job.data, self._settings.max_image_tokens)
        except UndecodableImage as error:
            prepared.predetermined = Embedding(job.id, error.state, reason=str(error))
            return prepared
        instruction, beside = self._settings.instruction, ""
        tokens = self._chunker.tokens_around_image() + image.tokens
        if job.caption is None:
            prepared.untouched = image.data if image.untouched else None
            prepared.figures["images_untouched"] += image.untouched
        else:
            caption = harmless(job.caption)
            beside, count = self._chunker.beginning(caption, _CAPTION_TOKENS)
            tokens += count
            prepared.figures["captions_cut"] += beside != caption
        prepared.requests.append(VectorRequest(lambda model: image_request(model, instruction, image, beside), tokens))
        prepared.figures["prepare_seconds"] += time.perf_counter() - started
        return prepared


class TextEmbeddingHandler(EmbeddingHandler):
    """The `Handler` of texts and queries."""

    def prepare(self, job: TextVectorJob) -> PreparedVector:
        """Tokenize the text, splitting it into chunks if it has too many tokens."""
        started = time.perf_counter()
        prepared = PreparedVector(job.id)
        if not job.text.strip():
            prepared.predetermined = Embedding(job.id, State.BLANK)
            return prepared
        prompts = self._chunker.prompts(job.text)
        prepared.requests = [VectorRequest(partial(text_request, tokens=tokens), len(tokens)) for tokens in prompts]
        prepared.figures["texts_chunked"] += len(prompts) > 1
        prepared.figures["chunks"] += len(prompts)
        prepared.figures["prepare_seconds"] += time.perf_counter() - started
        return prepared
