"""The gate of the JSON API, which checks requests and limits their time.

It reports errors in the API's format.
"""

import asyncio
import json
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from http import HTTPStatus

from pydantic import BaseModel
from starlette.responses import Response

from kopub.errors import KopubError
from kopub.web.own_pages import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    foreign_origins,
    header_values,
    host_name,
    with_headers,
)

PREFIX = "/api/v1"
PROBLEM = "application/problem+json"
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)
_SECONDS = 20.0
"""Seconds after which a request is abandoned."""
_AT_ONCE = 16
"""Most requests handled at once: others wait, but the pages of the room do not."""


class ApiProblem(KopubError):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class ApiGate:
    """An ASGI middleware that sends requests under /api/v1 to the API, others to `app`.

    `api_of` makes the API at the first request. The gate only answers to the names `hosts`, never to a page of another
    origin, and if there is a `token`, only to requests that contain it.
    """

    def __init__(self, app: App, api_of: Callable[[], App], hosts: Iterable[str], token: str = "") -> None:
        self._app, self._api_of, self._hosts, self._token = app, cache(api_of), frozenset(hosts), token
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not f"{scope['path']}/".startswith(f"{PREFIX}/"):
            return await self._app(scope, receive, send)
        send = with_headers(send, _HEADERS)
        try:
            require_allowed(scope["headers"], self._hosts, self._token)
        except ApiProblem as problem:
            return await problem_response(problem.status, str(problem))(scope, receive, send)
        await self._slots.acquire()
        began = late = False

        async def in_time(message: Message) -> None:
            nonlocal began
            if not late:
                began = True
                await send(message)

        if scope["method"] == "HEAD":
            # FastAPI's routes only know GET; the server omits the body, because its own scope still says HEAD.
            scope = {**scope, "method": "GET"}
        answering = asyncio.ensure_future(self._api_of()(scope, receive, in_time))
        # A thread cannot be stopped, so its slot stays taken until it ends.
        answering.add_done_callback(lambda _: self._slots.release())
        await asyncio.wait({answering}, timeout=_SECONDS)
        if answering.done() or began:
            return await answering
        late = True
        answering.add_done_callback(lambda task: task.cancelled() or task.exception())
        says = f"the answer took more than {_SECONDS:.0f} s: ask for less, or ask again"
        await problem_response(503, says)(scope, receive, send)


def require_allowed(headers: Iterable[tuple[bytes, bytes]], names: Collection[str], token: str) -> None:
    """Raise `ApiProblem` for a foreign host or origin, or without the token.

    `names` are the allowed hosts.
    """
    sent = header_values(headers)
    hosts = sent.get("host", [])
    if len(hosts) != 1 or not ("*" in names or host_name(hosts[0]) in names):
        raise ApiProblem(421, "the Host header is not a name of this server: use the address that the command printed")
    if foreign_origins(sent, hosts[0]) or set(sent.get("sec-fetch-site", [])) - {"same-origin", "none"}:
        raise ApiProblem(403, "requests from pages of other sites are refused")
    scheme, _, secret = sent.get("authorization", [""])[0].partition(" ")
    # Header values are decoded as Latin-1, in which every byte is one letter; clients send UTF-8.
    is_known = secrets.compare_digest(secret.strip().encode("latin-1"), token.encode())
    if token and not (is_known and scheme.lower() == "bearer"):
        raise ApiProblem(401, "send the token that the command printed: Authorization: Bearer TOKEN")


class ProblemDetails(BaseModel):
    """A problem, in the form of RFC 9457."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response that reports a problem."""
    problem = ProblemDetails(title=HTTPStatus(status).phrase, status=status, detail=detail)
    more = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "5"}}.get(status, headers)
    return Response(json.dumps(problem.model_dump()), status, more, PROBLEM)
