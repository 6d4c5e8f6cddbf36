"""Handlers of jobs that are requests already: what a server gives when nothing has to be prepared.

They are in a module of their own because client processes import it.
"""

import asyncio
import time

from resources.embedding.qwen3_vl_handlers import PATH, read_vector
from resources.recognition.vlm.client import chat_requests
from resources.vllm.client.client import Client


class ReadyPage:
    """The chat requests of one page: (body, pixels of the region). Results are (time of the answer, pixels)."""

    def prepare(self, job: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        return job

    async def finish(self, ready: list[tuple[bytes, int]], client: Client) -> list[tuple[float, int]]:
        return await asyncio.gather(*(self._send(client, *request, id(ready)) for request in ready))

    async def _send(self, client: Client, body: bytes, pixels: int, flow: int) -> tuple[float, int]:
        await client.post(chat_requests.PATH, body, chat_requests.read_answer, flow, 1.0)
        return time.monotonic(), pixels

    def close(self) -> None:
        """Nothing is open."""


class ReadyVector:
    """The request of one vector: (body, operations). Results are (time of the answer, operations)."""

    def prepare(self, job: tuple[bytes, float]) -> tuple[bytes, float]:
        return job

    async def finish(self, ready: tuple[bytes, float], client: Client) -> tuple[float, float]:
        body, count = ready
        await client.post(PATH, body, read_vector, id(ready), 1.0)
        return time.monotonic(), count

    def close(self) -> None:
        """Nothing is open."""
