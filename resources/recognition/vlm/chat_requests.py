"""Chat completion requests for regions, and the answers to them. Pure."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from resources.code_version import CodeVersion
from resources.layout.regions import Task
from resources.recognition.vlm.region_images import RegionImage
from resources.vllm.client.requests import Frame, framed, image_part, request_frame

VERSION = CodeVersion("recognition.requests", {1: "the first release"})
PATH = "/v1/chat/completions"
PROMPTS: Mapping[Task, str] = MappingProxyType(
    {Task.TEXT: "Text Recognition:", Task.TABLE: "Table Recognition:", Task.FORMULA: "Formula Recognition:"}
)
"""The prompts that GLM-OCR was trained with."""
_OWN_PROMPTS: Mapping[str, Task] = MappingProxyType({"chart": Task.TABLE, "seal": Task.TEXT})
"""Labels that a model may have a prompt of its own for, with the task that they are then read as."""

_PROMPT_TOKENS = 64
"""Template, prompt and markers around the image tokens: about 20 with the default prompts."""
_LEAST_ANSWER = 128
"""A crop of one line may still hold a long formula or a number of many tokens."""
_TOKENS_PER_PATCH: Mapping[Task, int] = MappingProxyType({Task.TEXT: 6, Task.TABLE: 8, Task.FORMULA: 8})
"""Answer tokens for one patch (28 x 28 px), at the smallest print that can be read.

Print of 16 px a syllable puts three on that area, at up to two tokens each; the tags of a table's
narrowest cells (60 x 40 px, ten tokens) and LaTeX commands take more. Ordinary print at 300 dpi
needs 0.7. A longer answer is not lost: the retry plan gives it all the room there is.
"""
_FINISHED = ("stop", "length")
"""Finish reasons of a whole answer: the model ended it, or the request's limit did."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model wrote and why it stopped: "stop", or "length" when the room was used up.

    `prompt_tokens` are those of the request, None where the server does not count them.
    """

    text: str
    finish_reason: str
    tokens: int
    prompt_tokens: int | None = None


def prompt_name(label: str, task: Task, prompts: Collection[str]) -> str:
    """Which of `prompts` a region is asked with: that of its label where there is one, else that of its task."""
    return label if label in prompts and _OWN_PROMPTS.get(label) is task else task.value


def answer_room(task: Task, image_tokens: int, context: int, patches: int | None = None) -> tuple[int, int]:
    """Tokens an answer may take: as many as the image can hold, and all that a context of `context` tokens leaves.

    `patches` is the size of the image in patches of 28 x 28 px where that is not its image tokens.
    """
    squares = image_tokens if patches is None else patches
    most = max(1, context - image_tokens - _PROMPT_TOKENS)
    return min(most, max(_LEAST_ANSWER, _TOKENS_PER_PATCH[task] * squares)), most


def request_body(model: str, prompt: str, image: RegionImage, max_tokens: int, sampling: Mapping[str, Any]) -> bytes:
    """A chat completion request in JSON. `sampling` adds fields to it and overrides the others."""
    options = json.dumps({"max_tokens": max_tokens, **sampling})
    return framed(_frame(model, prompt, image.media_type, options), image.data)


@lru_cache(maxsize=4096)
def _frame(model: str, prompt: str, media_type: str, options: str) -> Frame:
    content = [image_part(media_type), {"type": "text", "text": prompt}]
    return request_frame({"model": model, "messages": [{"role": "user", "content": content}], **json.loads(options)})


def read_answer(answer: Any) -> Answer:
    """The answer in a response. Raises `LookupError`, `TypeError` or `ValueError` for JSON that is no whole one."""
    choice = answer["choices"][0]
    # A server that is stopped sends what it has so far, with status 200, as "abort".
    if choice["finish_reason"] not in _FINISHED:
        raise ValueError(f"it ended by {choice['finish_reason']!r}")
    text = choice["message"]["content"]
    usage = answer.get("usage") or {}
    read = usage.get("prompt_tokens")
    return Answer(
        text or "",
        str(choice["finish_reason"]),
        int(usage.get("completion_tokens", 0)),
        None if read is None else int(read),
    )
