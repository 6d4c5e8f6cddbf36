"""What a vision-language model is asked: the request of one picture, byte by byte. Pure."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from resources.code_version import CodeVersion
from resources.layout.regions import Task
from resources.recognition.vlm.region_images import Picture

VERSION = CodeVersion("recognition.requests", {1: "the first release"})
PATH = "/v1/chat/completions"
PROMPTS: Mapping[Task, str] = MappingProxyType(
    {Task.TEXT: "Text Recognition:", Task.TABLE: "Table Recognition:", Task.FORMULA: "Formula Recognition:"}
)
"""The prompts that GLM-OCR was trained with."""

_PROMPT_TOKENS = 64
"""Template, prompt and markers around the image tokens: about 20 with the default prompts."""
_LEAST_ANSWER = 128
"""A crop of one line may still hold a long formula or a number of many tokens."""
_TOKENS_PER_PATCH: Mapping[Task, int] = MappingProxyType({Task.TEXT: 6, Task.TABLE: 8, Task.FORMULA: 8})
"""Answer tokens for one patch (28 x 28 px), at the smallest print that can be read.

Print of 16 px a syllable puts three on that area, at up to two tokens each; the tags of a table's
narrowest cells (60 x 40 px, ten tokens) and LaTeX commands take more. Ordinary print at 300 dpi
needs 0.7. A longer answer is not cut: it is asked for again with all the room there is.
"""
_IMAGE = "\0"
_WHOLE = ("stop", "length")
"""Reasons to end that are the model's or the request's own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model wrote and why it stopped: "stop", or "length" when the room was used up."""

    text: str
    finish_reason: str
    tokens: int


def answer_room(task: Task, image_tokens: int, context: int, patches: int | None = None) -> tuple[int, int]:
    """Tokens an answer may take: as many as the picture can hold, and all that a context of `context` leaves.

    `patches` are those of the picture where they are not its image tokens.
    """
    squares = image_tokens if patches is None else patches
    most = max(1, context - image_tokens - _PROMPT_TOKENS)
    return min(most, max(_LEAST_ANSWER, _TOKENS_PER_PATCH[task] * squares)), most


def request_body(model: str, prompt: str, picture: Picture, max_tokens: int, sampling: Mapping[str, Any]) -> bytes:
    """A chat completion request in JSON. `sampling` adds to it, and has the last word."""
    start, end = _frame(model, prompt, picture.media_type, json.dumps({"max_tokens": max_tokens, **sampling}))
    return b"".join((start, base64.b64encode(picture.data), end))


@lru_cache(maxsize=4096)
def _frame(model: str, prompt: str, media_type: str, options: str) -> tuple[bytes, bytes]:
    """The request before and after its picture, so that JSON never has to look through megabytes of base64."""
    content = [
        {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{_IMAGE}"}},
        {"type": "text", "text": prompt},
    ]
    body = {"model": model, "messages": [{"role": "user", "content": content}], **json.loads(options)}
    start, end = json.dumps(body, ensure_ascii=False).split(json.dumps(_IMAGE)[1:-1])
    return start.encode(), end.encode()


def read_answer(answer: Any) -> Answer:
    """The answer to a request. Raises `LookupError`, `TypeError` or `ValueError` for JSON that is no whole one."""
    choice = answer["choices"][0]
    # A server that is stopped sends what it has so far, with status 200, as "abort".
    if choice["finish_reason"] not in _WHOLE:
        raise ValueError(f"it ended by {choice['finish_reason']!r}")
    text = choice["message"]["content"]
    usage = answer.get("usage") or {}
    return Answer(text or "", str(choice["finish_reason"]), int(usage.get("completion_tokens", 0)))
