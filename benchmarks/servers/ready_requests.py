"""Handlers of jobs that already are requests, to measure a server by itself.

They have their own module, because client processes import it.
"""

import asyncio
import time

from kopub.embedding.qwen3_vl_handlers import PATH, read_vector
from kopub.recognition.vlm.client import chat_requests
from kopub.vllm.client.client import Client


class ReadyPage:
    """A handler of a page's chat requests, each (body, pixels of the region).

    Results are (time of the answer, pixels).
    """

    def prepare(self, job: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        return job

    async def finish(self, ready: list[tuple[bytes, int]], client: Client) -> list[tuple[float, int]]:
        return await asyncio.gather(*(self._send(client, *request, id(ready)) for request in ready))

    async def _send(self, client: Client, body: bytes, pixels: int, flow: int) -> tuple[float, int]:
        await client.post(chat_requests.PATH, body, chat_requests.read_answer, flow, 1.0)
        return time.monotonic(), pixels

    def close(self) -> None:
        """Do nothing, because nothing is open."""


class ReadyVector:
    """A handler of the request for a vector, (body, operations).

    Results are (time of the answer, operations).
    """

    def prepare(self, job: tuple[bytes, float]) -> tuple[bytes, float]:
        return job

    async def finish(self, ready: tuple[bytes, float], client: Client) -> tuple[float, float]:
        body, count = ready
        await client.post(PATH, body, read_vector, id(ready), 1.0)
        return time.monotonic(), count

    def close(self) -> None:
        """Do nothing, because nothing is open."""
