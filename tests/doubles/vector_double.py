"""A Qwen3-VL-Embedding server on a thread whose vectors a test decides, and its embedder."""

import base64
import io
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from aiohttp import web
from PIL import Image

from kopub.embedding.qwen3_vl import Qwen3VLEmbedder
from kopub.embedding.qwen3_vl_inputs import PATCH
from kopub.vllm.server import VLLMServer
from tests.doubles.http_double import HttpDouble
from tests.support.checkpoints.tiny_vlm import qwen_tokenizer

WIDTH = 96
"""The dimension of its vectors."""
MOST_TOKENS = 1800
"""The most tokens of an image."""


@dataclass
class Request:
    """A request for a vector of a text's tokens, or of an image with instruction."""

    number: int
    body: dict[str, Any]
    double: "VectorDouble"

    @property
    def tokens(self) -> list[int]:
        return self.body["input"]

    @property
    def image(self) -> bytes:
        return base64.b64decode(self.body["messages"][1]["content"][0]["image_url"]["url"].partition(",")[2])

    @property
    def read(self) -> int:
        """Return the number of prompt tokens that a correct server counts."""
        if "input" in self.body:
            return len(self.tokens)
        width, height = Image.open(io.BytesIO(self.image)).size
        around = len(_frame(self.body["messages"][0]["content"][0]["text"])) + 2
        # A correct server parses special tokens that a text spells out.
        beside = qwen_tokenizer().encode(self.caption, add_special_tokens=False).ids
        return width * height // PATCH**2 + around + len(beside)

    @property
    def caption(self) -> str:
        """Return the text after the image, or an empty one."""
        return "".join(part["text"] for part in self.body["messages"][1]["content"][1:])

    @property
    def content(self) -> bytes:
        return json.dumps(self.body.get("input", self.body.get("messages"))).encode()


def _frame(instruction: str) -> list[int]:
    """Return the tokens of a prompt without content."""
    turns = f"<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
    return qwen_tokenizer().encode(turns).ids


Reply = Callable[[Request], Awaitable[web.Response]]


def vector_of(content: bytes) -> np.ndarray:
    """Return a vector that depends on the content."""
    return np.random.default_rng(crc32(content)).normal(size=WIDTH).astype("<f4")


def says(vector: np.ndarray, tokens: int) -> web.Response:
    item = {"index": 0, "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode()}
    return web.json_response({"data": [item], "usage": {"prompt_tokens": tokens}})


async def sound(asked: Request) -> web.Response:
    return says(vector_of(asked.content), asked.read)


def always(vector: np.ndarray) -> Reply:
    async def reply(asked: Request) -> web.Response:
        return says(vector, asked.read)

    return reply


@dataclass
class VectorDouble(HttpDouble):
    """An embedding server; probes are answered, but are not in `requests`."""

    vectors: Reply = sound
    requests: list[Request] = field(default_factory=list)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("input") == "a":
            self.probes += 1
            return says(np.ones(WIDTH), 1)
        asked = Request(len(self.requests), body, self)
        self.requests.append(asked)
        return await self.vectors(asked)


def embedder(double: HttpDouble, tokenizer: Path, **fields: Any) -> Qwen3VLEmbedder:
    return embedder_at(double.url, tokenizer, **fields)


def embedder_at(url: str, tokenizer: Path, **fields: Any) -> Qwen3VLEmbedder:
    server = VLLMServer(
        model="qwen", revision="r1", mode="external", urls=[url], runner="pooling", max_image_tokens=MOST_TOKENS
    )
    common = {"processes": 1, "in_flight": 8, "retry_seconds": 0.001, "width": WIDTH, "dim": 64}
    return Qwen3VLEmbedder(server=server, tokenizer=str(tokenizer), **{**common, **fields})
