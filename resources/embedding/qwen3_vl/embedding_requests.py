"""Embedding requests, and the vectors in their answers. Pure."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from resources.embedding.qwen3_vl.page_images import PageImage
from resources.vllm.client.image_requests import Frame, framed, image_part, request_frame

PATH = "/v1/embeddings"
_FORMAT = {"encoding_format": "base64", "embed_dtype": "float32", "endianness": "little"}
"""Every bit of the vector, in a third of the bytes that decimals take."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A vector as the server made it, float32, and the tokens of its prompt."""

    vector: np.ndarray
    tokens: int


def text_request(model: str, tokens: Sequence[int]) -> bytes:
    """A request in JSON for the vector of a prompt."""
    return json.dumps({"model": model, "input": list(tokens), **_FORMAT}).encode()


def image_request(model: str, instruction: str, image: PageImage, text: str = "") -> bytes:
    """A request in JSON for the vector of an image below an instruction, with a text after it if there is one."""
    return framed(_frame(model, instruction, image.media_type, text), image.data)


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
            # The vector is read at the token that the tokenizer adds after the answer's opening; by default,
            # embedding requests have neither.
            "add_generation_prompt": True,
            "add_special_tokens": True,
            **_FORMAT,
        }
    )


def read_vector(answer: Any) -> Answer:
    """The answer to a request for one vector. Raises `LookupError`, `TypeError` or `ValueError` for other JSON."""
    (item,) = answer["data"]
    vector = np.frombuffer(base64.b64decode(item["embedding"], validate=True), "<f4")
    return Answer(vector, int(answer["usage"]["prompt_tokens"]))
