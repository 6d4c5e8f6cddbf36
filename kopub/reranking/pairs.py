"""The inputs of Qwen3-VL-Reranker, a question and a page, and the scores in its answers.

Client processes load this module, so it does not use pydantic.
"""

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kopub.embedding.qwen3_vl_inputs import EncodedImage, check_resizer, page_image, take_tokenizer
from kopub.errors import EngineError, UndecodableImage, harmless
from kopub.vllm.client.client import Client
from kopub.vllm.client.requests import (
    JobFigures,
    RefusedRequest,
    UnansweredRequest,
    fill_frame,
    image_part,
    request_frame,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PATH = "/classify"
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
"""The system prompt with which the authors trained."""
_PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
_SURE = 3
"""Number of answers of a wrong shape or length, with no right one, that prove that the server is set up wrongly."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A question and the seen parts of a page, for client processes."""

    id: str
    question: str
    text: str = ""
    picture: bytes | None = None


@dataclass(frozen=True, slots=True)
class Relevance:
    """A pair's score, from 0 to 1, or the `reason` why there is none."""

    id: str
    score: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PairSettings:
    """The instruction, and the limits in tokens of a whole prompt and of its picture."""

    instruction: str
    max_tokens: int
    max_image_tokens: int


@dataclass(slots=True)
class PreparedPair:
    """A pair with its picture, its page text and its prompt's number of tokens."""

    pair: Pair
    question: str = ""
    text: str = ""
    image: EncodedImage | None = None
    tokens: int = 0
    problem: str | None = None
    figures: JobFigures = field(default_factory=lambda: defaultdict(float))


class PairHandler:
    """The `Handler` of pairs, each in its own request; see `kopub.vllm.client.worker_pool`.

    The score of a prompt does not depend on other requests. An answer with a number of tokens that differs from the
    authors' template for the pair is not accepted: the server then has another template, or cuts or resizes.
    """

    def __init__(self, settings: PairSettings, tokenizer: Path) -> None:
        self._settings = settings
        self._tokenizer: Tokenizer = take_tokenizer(tokenizer)
        self._right = self._wrong = 0
        check_resizer()

    def close(self) -> None:
        """Do nothing, because there is nothing to release."""

    def prepare(self, job: Pair) -> PreparedPair:
        """Resize the picture for the model, and cut off a text that is too long."""
        started = time.perf_counter()
        ready = PreparedPair(job, harmless(job.question))
        if job.picture is not None:
            try:
                ready.image = page_image(job.picture, self._settings.max_image_tokens)
            except UndecodableImage as error:
                ready.problem = str(error)
                return ready
        image_tokens = ready.image.tokens - 1 if ready.image else 0
        around = self._count(self._prompt(ready)) + image_tokens
        text = "\n".join(map(harmless, job.text.splitlines()))
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        # Text and prompt may need a token more at each seam than apart.
        left = max(0, self._settings.max_tokens - around - 2)
        ready.text = text if len(encoded.ids) <= left else text[: encoded.offsets[left][0]]
        ready.tokens = self._count(self._prompt(ready)) + image_tokens
        ready.figures["texts_cut"] += ready.text != text
        ready.figures["prepare_seconds"] += time.perf_counter() - started
        return ready

    async def finish(self, ready: PreparedPair, client: Client) -> tuple[Relevance, JobFigures]:
        """Send the request and read the score."""
        problem, scores, tokens = ready.problem, None, 0
        if problem is None:
            ready.figures["requests"] += 1
            try:
                body = pair_request(await client.model(), self._settings.instruction, ready)
                (scores, tokens), _ = await client.post(PATH, body, read_scores, ready.pair.id, ready.tokens)
            except RefusedRequest as error:
                problem = f"the server refused it: {error}"
            except (UnansweredRequest, ValueError) as error:
                problem = str(error)
        if scores is not None:
            ready.figures["tokens"] += tokens
            if len(scores) != 1 or not 0 <= scores[0] <= 1:
                problem = f"the server answers with {len(scores)} numbers where a reranker has one score"
            elif tokens != ready.tokens:
                problem = (
                    f"the server read {tokens} tokens where {ready.tokens} were sent: it has another template, cuts "
                    "texts off or resizes images"
                )
            self._right += problem is None
            self._wrong += problem is not None
            if problem is not None and self._wrong >= _SURE and not self._right:
                raise EngineError("{reason}; check which model it serves, and its chat template", problem)
        ready.figures["requests_repeated"] += client.take_retries()
        ready.figures["pairs_failed"] += problem is not None
        return Relevance(ready.pair.id, scores[0] if scores and problem is None else None, problem), ready.figures

    def _prompt(self, ready: PreparedPair) -> str:
        """Return the prompt that the server should build, with one token for the picture."""
        before, after = pair_texts(self._settings.instruction, ready)
        turn = f"{before}{_PICTURE if ready.image else ''}{after}"
        start, end = "<|im_start|>", "<|im_end|>\n"
        return f"{start}system\n{SYSTEM}{end}{start}user\n{turn}{end}{start}assistant\n"

    def _count(self, prompt: str) -> int:
        return len(self._tokenizer.encode(prompt, add_special_tokens=False).ids)


def pair_texts(instruction: str, ready: PreparedPair) -> tuple[str, str]:
    """Return a turn's texts before and after the picture; without one, all text is before."""
    before = f"<Instruct>: {instruction}<Query>:{ready.question}\n<Document>:"
    document = ready.text or ("" if ready.image else "NULL")
    return (before, document) if ready.image else (before + document, "")


def pair_request(model: str, instruction: str, ready: PreparedPair) -> bytes:
    """Return the JSON request for the score of a pair."""
    before, after = pair_texts(instruction, ready)
    parts: list[dict[str, Any]] = [{"type": "text", "text": before}]
    if ready.image:
        parts.append(image_part(ready.image.media_type))
    if after:
        parts.append({"type": "text", "text": after})
    body = {
        "model": model,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": SYSTEM}]},
            {"role": "user", "content": parts},
        ],
        # The score is taken at the opening of the answer.
        "add_generation_prompt": True,
        "add_special_tokens": False,
    }
    return fill_frame(request_frame(body), ready.image.data) if ready.image else json.dumps(body).encode()


def read_scores(answer: Any) -> tuple[Sequence[float], int]:
    """Read the scores of one prompt, and its number of tokens.

    Raises `LookupError`, `TypeError` or `ValueError` for other JSON.
    """
    (item,) = answer["data"]
    return [float(score) for score in item["probs"]], int(answer["usage"]["prompt_tokens"])
