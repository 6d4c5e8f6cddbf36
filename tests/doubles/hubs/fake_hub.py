"""A double of the Hub for one dataset repository, for the real `datasets` and `huggingface_hub` clients."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from tests.doubles.hubs.local_http import served

REVISION = "5f" * 20


def card(*configurations: str) -> bytes:
    """A dataset card that names one Parquet file, `{configuration}.parquet`, for each configuration."""
    entries = [
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}.parquet" for name in configurations
    ]
    return "\n".join(["---", "configs:", *entries, "---", ""]).encode()


@contextmanager
def serve(repository: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """The URL of a Hub that has one dataset, `repository`, of one commit, REVISION."""

    class Handler(_DatasetHandler):
        _repository = repository
        _files = files

    with served(Handler) as url:
        yield url


class _DatasetHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    _repository: str
    _files: Mapping[str, bytes]

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        api, resolve = f"/api/datasets/{self._repository}", f"/datasets/{self._repository}/resolve/"
        if path.startswith(resolve):
            self._send_file(path.removeprefix(resolve).partition("/")[2])
        elif path.startswith(f"{api}/tree/"):
            self._send_json([self._entry(name) for name in self._files])
        elif path in (api, f"{api}/revision/main", f"{api}/revision/{REVISION}"):
            siblings = [{"rfilename": name} for name in self._files]
            self._send_json({"id": self._repository, "sha": REVISION, "private": False, "siblings": siblings})
        else:
            self._send_missing()

    do_HEAD = do_GET

    def _entry(self, name: str) -> dict[str, object]:
        content = self._files[name]
        return {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}

    def _send_file(self, name: str) -> None:
        if name in self._files:
            self._send(200, self._files[name], "application/octet-stream")
        else:
            self._send_missing("EntryNotFound")

    def _send_missing(self, code: str = "RepoNotFound") -> None:
        self._send(404, b"{}", "application/json", {"X-Error-Code": code})

    def _send_json(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not worth a line."""
