"""What an embedding server is asked, byte by byte, and what it answers. Pure."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from resources.embedding.qwen3_vl.page_images import Picture

PATH = "/v1/embeddings"
_FORMAT = {"encoding_format": "base64", "embed_dtype": "float32", "endianness": "little"}
"""Every bit of the vector, in a third of the bytes that decimals take."""
_IMAGE = "\0"


@dataclass(frozen=True, slots=True)
class Answer:
    """A vector as the server made it, float32, and the tokens it read for it."""

    vector: np.ndarray
    tokens: int


def text_request(model: str, tokens: Sequence[int]) -> bytes:
    """A request in JSON for the vector of a prompt."""
    return json.dumps({"model": model, "input": list(tokens), **_FORMAT}).encode()


def picture_request(model: str, instruction: str, picture: Picture) -> bytes:
    """A request in JSON for the vector of a picture below an instruction."""
    start, end = _frame(model, instruction, picture.media_type)
    return b"".join((start, base64.b64encode(picture.data), end))


@lru_cache
def _frame(model: str, instruction: str, media_type: str) -> tuple[bytes, bytes]:
    """The request before and after its picture, so that JSON never has to look through megabytes of base64."""
    url = f"data:{media_type};base64,{_IMAGE}"
    body = {
        "model": model,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": instruction}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
        ],
        # The vector is read at the token that the tokenizer adds after the answer's opening; by default, embedding
        # requests have neither.
        "add_generation_prompt": True,
        "add_special_tokens": True,
        **_FORMAT,
    }
    start, end = json.dumps(body, ensure_ascii=False).split(json.dumps(_IMAGE)[1:-1])
    return start.encode(), end.encode()


def read_vector(answer: Any) -> Answer:
    """The answer to a request for one vector. Raises `LookupError`, `TypeError` or `ValueError` for other JSON."""
    (item,) = answer["data"]
    vector = np.frombuffer(base64.b64decode(item["embedding"], validate=True), "<f4")
    return Answer(vector, int(answer["usage"]["prompt_tokens"]))
