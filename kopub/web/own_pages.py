"""A guard that only admits requests from an application's own pages.

It is for web applications without a login. Dagster's webserver runs whatever a request says, whoever sent it, so any
web site open in a browser on this machine could start runs. Browsers say where a request comes from, and reserve some
kinds of requests for pages of the same origin.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kopub.errors import KopubError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine for itself; any other name is a foreign site's, made to resolve to this machine."""
_ASKS_FIRST = ("application/json", "application/graphql")
"""Content types that a browser only sends to another origin after an OPTIONS request, which is refused."""
_OWN_PAGES_ONLY = ((b"x-frame-options", b"SAMEORIGIN"), (b"cross-origin-resource-policy", b"same-origin"))
"""Headers against foreign pages that show this one in a frame, to steal clicks, or that include a log."""


class OriginGuard:
    """An ASGI application that only serves its own pages, and programs without a browser.

    Admitted requests go to `app`. `names` are the host names by which it is reached, besides those of this machine.
    """

    def __init__(self, app: App, names: Iterable[str]) -> None:
        self._app = app
        self._names = {*LOOPBACK, *map(str.lower, names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        refused = self._refused(scope)
        if refused is None:
            return await self._app(scope, receive, with_headers(send, _OWN_PAGES_ONLY))
        status, reason = refused
        if scope["type"] == "websocket":
            # Closing it before it is accepted sends status 403.
            return await send({"type": "websocket.close", "code": 1008, "reason": reason[:120]})
        body = f"{reason}\n".encode("utf-8", "replace")
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and reason to refuse a request, else None."""
        headers = header_values(scope["headers"])
        hosts = headers.get("host", [])
        if len(hosts) != 1 or host_name(hosts[0]) not in self._names:
            return 421, f"no host {', '.join(hosts) or 'name'} here; `kopub ui --allow-host NAME` adds one"
        if foreign := foreign_origins(headers, hosts[0]):
            return 403, f"refused: a page of {foreign[0]} asks, which is not of this server"
        if scope["type"] == "http":
            # Any page can cause some requests, which browsers send for a picture, a form or a plain fetch.
            method, asks = scope["method"], scope["path"].rstrip("/").endswith("/graphql")
            if method == "POST":
                kinds = [kind.partition(";")[0].strip().lower() for kind in headers.get("content-type", [])]
                if len(kinds) != 1 or kinds[0] not in _ASKS_FIRST:
                    return 415, "refused: a POST has the content type application/json here, which no form can send"
            elif method not in ("GET", "HEAD"):
                return 405, f"refused: {method} is not answered here"
            # A client that accepts HTML gets GraphiQL, a page that uses POST.
            elif asks and "text/html" not in headers.get("accept", [""])[0]:
                return 405, "refused: GraphQL is asked by POST, with the content type application/json"
        return None


def with_headers(send: Send, headers: Iterable[tuple[bytes, bytes]]) -> Send:
    """Return a `send` that adds `headers` to the response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *headers]
        await send(message)

    return send_with_headers


def header_values(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """Return the values of each header of an ASGI request, by name in lower case."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip())
    return values


def foreign_origins(headers: Mapping[str, Sequence[str]], host: str) -> list[str]:
    """Return the origins of a request other than its own `host`, the Host header."""
    # The port counts, because other programs on this machine have pages, too.
    own = (f"http://{host.lower()}", f"https://{host.lower()}")
    return [origin for origin in headers.get("origin", []) if origin.lower() not in own]


def host_name(host: str) -> str | None:
    """Return the lower-case name in a Host header, without port, or None if invalid."""
    try:
        split = urlsplit(f"//{host}")
        return split.hostname if split.netloc == host and split.username is None else None
    except ValueError:
        return None


class ForeignRequest(KopubError):
    """The error of a request from no form of this room, or without its token."""


@dataclass(frozen=True)
class Editor:
    """The right to correct the pages of a room.

    Everybody who can reach the room has it, or only those with the `token`, if there is one.
    """

    author: str
    token: str = ""
    form: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    """The secret that every form of this room sends, and that no page of another site knows."""

    def require_own_form(self, headers: Mapping[str, str], sent: Mapping[str, str]) -> None:
        """Raise `ForeignRequest` for a request that is not from a form of this room.

        Such a request has another origin, or lacks the form's secret or the token.
        """
        self.require_own_page(headers)
        if not secrets.compare_digest(sent.get("form", "").encode(), self.form.encode()):
            raise ForeignRequest("the form is from an earlier start of the room: load the page again")
        if self.token and not secrets.compare_digest(sent.get("token", "").encode(), self.token.encode()):
            raise ForeignRequest("the token is missing or wrong")

    def require_own_page(self, headers: Mapping[str, str]) -> None:
        """Raise `ForeignRequest` for a request from another origin."""
        host = headers.get("host", "").lower()
        if headers.get("origin", "").lower() not in (f"http://{host}", f"https://{host}"):
            raise ForeignRequest("the request is from a page of another site, or lacks the header Origin")
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise ForeignRequest("the request is from a page of another site")
