"""Requests with a picture, the queue that bounds them, and the interpretation of answers."""

import asyncio
import base64
import heapq
import itertools
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, TypeVar

from kopub.errors import EngineError

Answer = TypeVar("Answer")

JobFigures = defaultdict[str, float]
"""What a client process counted while it made a job, by name: tokens, retries, defects."""

_IMAGE = "\0"
"""The placeholder of the image while the rest is encoded; no prompt contains it."""
_MARK = json.dumps(f",{_IMAGE}")[1:-1]
"""The encoded placeholder, with the comma before it: a text that spells it out has a second backslash between them."""

Frame = tuple[bytes, bytes]
"""The parts of a request before and after its image."""


def image_part(media_type: str) -> dict[str, Any]:
    """Return the part of a chat message into which the image goes."""
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{_IMAGE}"}}


def request_frame(body: Mapping[str, Any]) -> Frame:
    """Encode a body with one `image_part`, and split it at its image."""
    start, end = json.dumps(body, ensure_ascii=False).split(_MARK)
    return f"{start},".encode(), end.encode()


def fill_frame(frame: Frame, image: bytes) -> bytes:
    """Return the complete request with the encoded image in its place."""
    start, end = frame
    return b"".join((start, base64.b64encode(image), end))


async def gather_all(requests: Iterable[Awaitable[Answer]]) -> list[Answer]:
    """Return all answers, or raise the first error, once every request has ended.

    So no request continues after its job is done.
    """
    results = await asyncio.gather(*requests, return_exceptions=True)
    answers: list[Answer] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        answers.append(result)
    return answers


class FairQueue:
    """A queue that bounds requests in flight and is fair between flows.

    It uses start-time fair queueing (Goyal, Vin, Cheng 1996): a flow's next request starts once the other flows have
    had as much as this one. A flow with many or costly requests delays only itself, and none starves.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._virtual_time = 0.0
        self._finish: dict[Hashable, float] = {}
        """The virtual time at which a flow's last request ends."""
        self._open: dict[Hashable, int] = {}
        """The number of a flow's requests that wait or are in flight."""
        self._shrunk = asyncio.Event()

    async def wait_below(self, limit: int) -> None:
        """Return once fewer than `limit` requests wait for a slot."""
        while len(self._waiting) >= limit:
            self._shrunk.clear()
            await self._shrunk.wait()

    @asynccontextmanager
    async def slot(self, flow: Hashable, cost: float) -> AsyncIterator[None]:
        """Hold a slot; `cost` is in any unit shared by all flows."""
        start = max(self._virtual_time, self._finish.get(flow, 0.0))
        self._finish[flow] = start + cost
        self._open[flow] = self._open.get(flow, 0) + 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (start, next(self._numbers), granted))
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._free += 1
            self._open[flow] -= 1
            if not self._open[flow]:
                del self._open[flow], self._finish[flow]
            self._grant()

    def _grant(self) -> None:
        while self._free and self._waiting:
            start, _, granted = heapq.heappop(self._waiting)
            self._shrunk.set()
            if granted.done():
                continue
            self._virtual_time = start
            self._free -= 1
            granted.set_result(None)


_SERVER_ERRORS = 500
_SIZE = re.compile(r"maximum (model|context) length|max_model_len|encoder cache size|too (large|long)", re.IGNORECASE)
"""Parts of vLLM 0.32's messages for a prompt longer than the context and a picture above the encoder's budget."""
_MESSAGE = 300
"""Most characters of a server's message in a reason."""


class RefusedRequest(Exception):
    """The server will never accept this request: HTTP 400, 413 or 422."""


class OversizedRequest(RefusedRequest):
    """The server would accept a smaller request.

    It answers with HTTP 413, or vLLM's message for a prompt or picture of too many tokens.
    """


class UnansweredRequest(Exception):
    """The attempts are used up, although the server is alive."""


class BusyServer(UnansweredRequest):
    """The server gave no whole answer in time.

    It may have had too much to do, so another run may get one.
    """


class TransientError(Exception):
    """A temporary fault: 408, 429, 5xx, a cut connection, or an incomplete answer.

    `retry_after` is in seconds.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class AnswerTimeout(TransientError):
    """No answer within the seconds of the retry policy."""


class LostServer(Exception):
    """The server does not listen, or hangs."""


def check(status: int, headers: Any, content: bytes, url: str) -> None:
    """Raise the matching error for every status except 200."""
    if status == HTTPStatus.OK:
        return
    message = f"HTTP {status}: {message_of(content)}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        form = "{url} does not serve us this model ({error}); check the URL, the key and the model's name"
        raise EngineError(form, url, message)
    if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS) or status >= _SERVER_ERRORS:
        seconds = None
        with suppress(ValueError):  # the header may also name a date, or nothing
            seconds = max(0.0, float(headers.get("Retry-After") or ""))
        raise TransientError(message, seconds)
    too_large = status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _SIZE.search(message)
    raise OversizedRequest(message) if too_large else RefusedRequest(message)


def message_of(content: bytes) -> str:
    """Return the message of an OpenAI error, else the body, as one line."""
    text = content.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
        text = str(answer["error"]["message"] if "error" in answer else answer["message"])
    except (ValueError, LookupError, TypeError):
        pass
    return " ".join(text.split())[:_MESSAGE]
