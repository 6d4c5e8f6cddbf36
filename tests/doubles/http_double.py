"""An OpenAI-style model server on a thread whose answers and faults a test decides."""

import asyncio
import base64
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web


@dataclass
class SentRequest:
    """A request with its prompt, PNG image and body; `number` counts arrivals from 0."""

    number: int
    prompt: str
    image: bytes
    body: dict[str, Any]
    request: web.Request
    double: "HttpDouble"

    @property
    def size(self) -> tuple[int, int]:
        """Return (width, height) of the image, from the PNG header."""
        return int.from_bytes(self.image[16:20]), int.from_bytes(self.image[20:24])

    def cut(self) -> None:
        """Break the connection."""
        assert self.request.transport is not None
        self.request.transport.abort()


Reply = Callable[[SentRequest], Awaitable[web.StreamResponse]]


def says(text: str, finish_reason: str = "stop") -> web.Response:
    """Return a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    return web.json_response({"choices": [choice], "usage": {"completion_tokens": len(text)}})


def error(status: int, message: str = "no", headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=headers)


async def _version(request: web.Request) -> web.Response:
    return web.json_response({"version": "0.32.0"})


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(text="vllm:generation_tokens_total 0.0\n")


async def echo(asked: SentRequest) -> web.StreamResponse:
    """Answer as a good server does, with another text for each request."""
    return says(f"read {asked.number}")


@dataclass
class HttpDouble:
    """A server that answers with `reply`, or with `probe` to requests without an image."""

    reply: Reply = echo
    probe: Reply = echo
    asked: list[SentRequest] = field(default_factory=list)
    probes: int = 0
    most_under_way: int = 0
    _under_way: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def die(self) -> None:
        """Close the port and cut every connection, as a killed server does."""
        asyncio.run_coroutine_threadsafe(self._die(), self._loop).result()

    def call(self, function: Callable[[], object]) -> None:
        """Run a function in the server's event loop."""
        self._loop.call_soon_threadsafe(function)

    def die_soon(self) -> None:
        """Die soon after a call from within a reply."""
        self._dying = self._loop.create_task(self._die())

    def die_and_come_back(self) -> None:
        """Die soon, and listen again at the same address, like a restarted server."""

        async def again() -> None:
            await self._die()
            self._site = web.TCPSite(self._runner, "127.0.0.1", self._port)
            await self._site.start()

        self._dying = self._loop.create_task(again())

    async def _end(self) -> None:
        await self._runner.cleanup()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _die(self) -> None:
        await self._site.stop()
        assert self._runner.server is not None
        for connection in list(self._runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        ready.set()
        self._loop.run_forever()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/embeddings", self._answer)
        app.router.add_post("/classify", self._answer)
        app.router.add_get("/version", _version)
        app.router.add_get("/metrics", _metrics)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        content = body["messages"][0]["content"]
        if content[0]["type"] == "text":
            self.probes += 1
            return await self.probe(SentRequest(-1, content[0]["text"], b"", body, request, self))
        image = base64.b64decode(content[0]["image_url"]["url"].partition(",")[2])
        asked = SentRequest(len(self.asked), content[1]["text"], image, body, request, self)
        self.asked.append(asked)
        self._under_way += 1
        self.most_under_way = max(self.most_under_way, self._under_way)
        try:
            return await self.reply(asked)
        finally:
            self._under_way -= 1


def truncated() -> web.Response:
    """Return a response whose body ends in the middle of its JSON."""
    return web.Response(body=json.dumps({"choices": [{"index": 0}]}).encode()[:-7], content_type="application/json")
