"""A double of the Hub with one model at one commit and faults on demand."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "3c" * 20
LARGE = ".safetensors"
"""The suffix of files that are stored by their SHA-256."""


@dataclass
class ModelHub:
    """The Hub; `status` refuses every request, `cut` truncates the first large downloads to these sizes.

    `served` holds bytes that are sent in place of a file's own. `sent` counts the bytes of large files.
    """

    repository: str
    files: Mapping[str, bytes]
    status: int = 0
    error: str = ""
    cut: list[int] = field(default_factory=list)
    served: dict[str, bytes] = field(default_factory=dict)
    sent: int = 0
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Run the Hub, and yield its URL."""
        handler = type("_Handler", (_ModelHandler,), {"hub": self})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                server.shutdown()
                thread.join()

    def hash(self, name: str) -> str:
        content = self.files[name]
        if name.endswith(LARGE):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()


class _ModelHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ModelHub

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(path)
        api, resolve = f"/api/models/{self.hub.repository}", f"/{self.hub.repository}/resolve/"
        if self.hub.status:
            self._send(self.hub.status, b"{}", {"X-Error-Code": self.hub.error})
        elif not path.startswith((api, resolve)):
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif COMMIT not in path:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif path.startswith(resolve):
            self._send_file(path.removeprefix(resolve).partition("/")[2])
        elif "/tree/" in path:
            self._send_json([self._entry(name) for name in self.hub.files])
        else:
            siblings = [self._sibling(name) for name in self.hub.files]
            self._send_json({"id": self.hub.repository, "sha": COMMIT, "siblings": siblings})

    do_HEAD = do_GET

    def _entry(self, name: str) -> dict[str, object]:
        entry: dict[str, object] = {"type": "file", "path": name, "size": len(self.hub.files[name])}
        if name.endswith(LARGE):
            large = {"oid": self.hub.hash(name), "size": entry["size"], "pointerSize": 134}
            return {**entry, "oid": "0" * 40, "lfs": large}
        return {**entry, "oid": self.hub.hash(name)}

    def _sibling(self, name: str) -> dict[str, object]:
        sibling: dict[str, object] = {"rfilename": name, "size": len(self.hub.files[name])}
        if name.endswith(LARGE):
            large = {"sha256": self.hub.hash(name), "size": sibling["size"], "pointerSize": 134}
            return {**sibling, "blobId": "0" * 40, "lfs": large}
        return {**sibling, "blobId": self.hub.hash(name)}

    def _send_file(self, name: str) -> None:
        content = self.hub.served.get(name, self.hub.files[name])
        headers = {"ETag": f'"{self.hub.hash(name)}"'}
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        whole = content[start:]
        is_large = name.endswith(LARGE) and self.command != "HEAD"
        if is_large and self.hub.cut:
            whole = whole[: self.hub.cut.pop(0)]
            self._send(206 if start else 200, whole, headers, len(content) - start)
            self.close_connection = True
        else:
            self._send(206 if start else 200, whole, headers)
        self.hub.sent += len(whole) if is_large else 0

    def _send_json(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str], length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.send_header("X-Repo-Commit", COMMIT)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
