"""An S3 server on a thread: moto with a request count and faults on demand."""

import io
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from werkzeug.serving import make_server

BUCKET = "corpus"
CUT, CUT_WITHIN, FULL, SILENT = -1, -2, -3, -4
"""Faults other than a status: the connection breaks after or within the request's body; the bucket is full, as Ceph
reports it; no answer until the client gives up."""

Fault = Callable[[str, str], int | None]
"""Returns the status or fault that answers a request, by method and path; None for the normal answer."""


@dataclass
class S3Double:
    """The server; `before` makes faults before a request is executed, `after` instead of its answer.

    It executes one request at a time.
    """

    before: Fault = lambda method, path: None
    after: Fault = lambda method, path: None
    asked: list[tuple[str, str]] = field(default_factory=list)
    """The method and path, with the query, of every request."""

    def __enter__(self) -> Self:
        from moto.moto_api._internal.models import moto_api_backend
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        # moto's state is global to the process, so another double may have left its buckets.
        moto_api_backend.reset()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._alone = threading.Lock()
        self._port = 0
        self.come_back()
        return self

    def __exit__(self, *exc: object) -> None:
        self.go_away()

    def go_away(self) -> None:
        """Refuse connections until `come_back`, which keeps the address and the content."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def come_back(self) -> None:
        self._server = make_server("127.0.0.1", self._port, self._answer, threaded=True)
        vars(self._server)["daemon_threads"] = True
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which S3 clients find the server."""
        return variables(f"http://127.0.0.1:{self._port}")

    def counted(self) -> Counter[str]:
        """Return the number of requests by method."""
        return Counter(method for method, _ in self.asked)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        query = environ.get("QUERY_STRING")
        self.asked.append((method, f"{path}?{query}" if query else path))
        length, status = int(environ.get("CONTENT_LENGTH") or 0), self.before(method, path)
        # Like moto, read no more of the stream than the announced length.
        body = environ["wsgi.input"].read(length // 2 if status == CUT_WITHIN else length)
        if status is not None:
            return _faulty(status, environ, start)
        with self._alone:
            answered: list[Any] = []

            def keep(*given: Any) -> None:
                answered[:] = given

            environ["wsgi.input"] = io.BytesIO(body)
            content = list(self._moto(environ, keep))
        if (status := self.after(method, path)) is not None:
            return _faulty(status, environ, start)
        start(*answered)
        return content


def variables(url: str) -> dict[str, str]:
    """Return the variables that name the server at `url` to S3 clients."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def _faulty(status: int, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    if status in (CUT, CUT_WITHIN, SILENT):
        connection: socket.socket = environ["werkzeug.socket"]
        while status == SILENT and connection.recv(2**16):
            pass
        connection.shutdown(socket.SHUT_RDWR)
        return []
    if status == FULL:
        status, code = 403, "QuotaExceeded"
    else:
        code = {403: "InvalidAccessKeyId", 503: "ServiceUnavailable"}.get(status, "InternalError")
    # Ceph gives no message with a 403.
    message = "" if status == 403 else "the answer of a test"
    start(f"{status} no", [("Content-Type", "application/xml")])
    return [f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()]
