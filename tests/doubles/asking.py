"""A handler that requests words; client processes import this module, so it imports little."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from kopub.errors import EngineError
from kopub.vllm.client.client import Client

PATH = "/v1/chat/completions"


def body(text: str) -> bytes:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    return json.dumps({"messages": [{"content": [image, {"type": "text", "text": text}]}]}).encode()


def words(answer: Any) -> str:
    return answer["choices"][0]["message"]["content"]


async def ask(client: Client, text: str = "x", flow: str = "page") -> str:
    return (await client.post(PATH, body(text), words, flow, 1.0))[0]


class Asking:
    """A handler whose jobs are lists of words, of which `kill` kills its process."""

    def __init__(self, kill: str = "", marker: str = os.devnull) -> None:
        self._kill, self._marker = kill, marker

    def prepare(self, job: list[str]) -> list[str]:
        if self._kill in job and self._kill:
            with Path(self._marker).open("a") as marker:
                marker.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        if job == ["raise"]:
            raise ValueError("cannot be prepared")
        if job == ["full"]:
            raise EngineError("the disk is full")
        return job

    async def finish(self, ready: list[str], client: Client) -> tuple[str, ...]:
        if ready == ["unpicklable"]:
            return (lambda: None,)  # type: ignore[return-value]
        return tuple(await asyncio.gather(*(ask(client, word, ready[0]) for word in ready)))

    def close(self) -> None:
        pass
