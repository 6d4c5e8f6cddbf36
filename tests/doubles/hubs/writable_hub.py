"""A double of the Hub with one writable dataset and faults on demand.

It serves the real `huggingface_hub` client. Like the real Hub, it stores large files by their SHA-256, a linear history
of commits, and tags. Large file storage refuses content that does not have the announced hash, and a commit refuses
files that were never stored.
"""

import asyncio
import base64
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

WRITER, READER = "hf_writer0123456789", "hf_reader0123456789"
REPO = "someone/pages"


@dataclass
class Fault:
    """A fault of the next `times` requests of a method whose path contains `path`.

    `status` is the answer; `cut` breaks the connection after so many bytes of the body; `lose` executes the request and
    breaks the connection instead of answering; `meanwhile` is called first.
    """

    method: str
    path: str
    times: int = 1
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    says: str = "no"
    cut: int | None = None
    lose: bool = False
    meanwhile: Callable[[], object] | None = None


@dataclass
class File:
    content: bytes
    is_large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def git_blob(self) -> str:
        return hashlib.sha1(b"blob %d\0%b" % (len(self.content), self.content)).hexdigest()


@dataclass
class Commit:
    oid: str
    files: dict[str, File]
    sent: list[str]
    removed: list[str]


@dataclass
class WritableHub:
    """The Hub; `repository` exists from the start unless `missing`, and may hold `quota` bytes."""

    repository: str = "someone/pages"
    missing: bool = False
    quota: int | None = None
    part_size: int | None = None
    page_size: int = 1000
    commits: list[Commit] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    uploads: Counter[str] = field(default_factory=Counter)
    """The number of accepted uploads to large file storage by SHA-256."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(method, path) of every request."""
    faults: list[Fault] = field(default_factory=list)
    parts: dict[tuple[str, int], bytes] = field(default_factory=dict)
    url: str = ""

    def __post_init__(self) -> None:
        if not self.missing:
            self.make()

    def make(self) -> None:
        self.missing = False
        self.commit({".gitattributes": File(b"*.parquet filter=lfs\n", False)}, [])

    @property
    def head(self) -> Commit:
        return self.commits[-1]

    @property
    def held(self) -> dict[str, str]:
        """Return the SHA-256 of each file of the newest commit by path."""
        return {path: file.sha256 for path, file in self.head.files.items()}

    def commit(self, files: dict[str, File], removed: list[str]) -> Commit:
        """Add a commit, as another writer would."""
        before = self.commits[-1].files if self.commits else {}
        after = {path: file for path, file in (before | files).items() if path not in removed}
        oid = hashlib.sha1(f"{len(self.commits)}{sorted(after)}".encode()).hexdigest()
        self.commits.append(Commit(oid, after, list(files), removed))
        return self.commits[-1]

    def at(self, revision: str) -> Commit | None:
        revision = self.tags.get(revision, revision)
        if revision == "main":
            return self.head
        return next((commit for commit in self.commits if commit.oid == revision), None)

    def count(self, method: str, path: str) -> int:
        """Return the number of requests so far of a method whose path contains `path`."""
        return sum(path in asked and method == by for by, asked in self.asked)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Run the Hub, and yield its URL."""
        loop, ready, runners = asyncio.new_event_loop(), threading.Event(), []

        async def start() -> None:
            runner = web.AppRunner(_application(self), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            runners.append(runner)
            ready.set()

        def work() -> None:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(start())
            loop.run_forever()
            loop.close()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        ready.wait()
        try:
            yield self.url
        finally:
            asyncio.run_coroutine_threadsafe(runners[0].cleanup(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _application(hub: WritableHub) -> web.Application:
    @web.middleware
    async def faulty(request: web.Request, handler: Handler) -> web.StreamResponse:
        hub.asked.append((request.method, request.path))
        found = (f for f in hub.faults if f.times and f.method == request.method and f.path in request.path)
        fault = next(found, None)
        if fault is None:
            return await handler(request)
        fault.times -= 1
        if fault.meanwhile:
            fault.meanwhile()
        if fault.cut is not None:
            await request.content.read(fault.cut)
            return _broken(request)
        if fault.status:
            await request.read()
            return web.json_response({"error": fault.says}, status=fault.status, headers=fault.headers)
        answer = await handler(request)
        return _broken(request) if fault.lose else answer

    server = _Server(hub)
    api = f"/api/datasets/{hub.repository}"
    app = web.Application(client_max_size=2**30, middlewares=[faulty])
    app.add_routes(
        [
            web.post("/api/validate-yaml", server.validate),
            web.post("/api/repos/create", server.create),
            web.get(f"{api}/revision/{{revision}}", server.revision),
            web.get(f"{api}/tree/{{revision}}", server.tree),
            web.get(f"{api}/refs", server.refs),
            web.post(f"{api}/preupload/{{revision}}", server.preupload),
            web.post(f"{api}/commit/{{revision}}", server.commit),
            web.post(f"{api}/tag/{{revision}}", server.tag),
            web.post(f"/datasets/{hub.repository}.git/info/lfs/objects/batch", server.batch),
            web.put("/storage/{oid}", server.store),
            web.put("/storage/{oid}/{part}", server.store_part),
            web.post("/storage/{oid}/complete", server.complete),
            web.get(f"/datasets/{hub.repository}/resolve/{{revision}}/{{path:.+}}", server.resolve),
        ]
    )
    return app


class _Server:
    """The Hub's request handlers, which raise refusals."""

    def __init__(self, hub: WritableHub) -> None:
        self._hub = hub

    async def validate(self, request: web.Request) -> web.Response:
        return web.json_response({"errors": [], "warnings": []})

    async def create(self, request: web.Request) -> web.Response:
        self._require_writer(request)
        self._hub.make()
        return web.json_response({"url": f"{self._hub.url}/datasets/{self._hub.repository}"})

    async def revision(self, request: web.Request) -> web.Response:
        commit = self._commit(request)
        siblings = [{"rfilename": name} for name in commit.files]
        return web.json_response({"id": self._hub.repository, "sha": commit.oid, "siblings": siblings})

    async def tree(self, request: web.Request) -> web.Response:
        commit, start = self._commit(request), int(request.query.get("cursor", "0"))
        entries = []
        for path, file in sorted(commit.files.items()):
            entry: dict[str, Any] = {"type": "file", "path": path, "size": len(file.content), "oid": file.git_blob}
            if file.is_large:
                entry["lfs"] = {"oid": file.sha256, "size": len(file.content), "pointerSize": 130}
            entries.append(entry)
        end = start + self._hub.page_size
        more = {"Link": f'<{self._hub.url}{request.path}?recursive=true&cursor={end}>; rel="next"'}
        return web.json_response(entries[start:end], headers=more if end < len(entries) else {})

    async def refs(self, request: web.Request) -> web.Response:
        tags = [{"name": name, "ref": f"refs/tags/{name}", "targetCommit": oid} for name, oid in self._hub.tags.items()]
        return web.json_response({"branches": [], "converts": [], "tags": tags})

    async def preupload(self, request: web.Request) -> web.Response:
        commit = self._commit(request)
        self._require_writer(request)
        files = [self._mode(commit, file["path"]) for file in (await request.json())["files"]]
        return web.json_response({"files": files})

    async def batch(self, request: web.Request) -> web.Response:
        self._require_writer(request)
        hub, objects = self._hub, []
        held = sum(map(len, hub.stored.values()))
        for wanted in (await request.json())["objects"]:
            entry: dict[str, Any] = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in hub.stored:
                held += wanted["size"]
                if hub.quota is not None and held > hub.quota:
                    entry["error"] = {"code": 403, "message": "Private repository storage quota exceeded"}
                else:
                    entry["actions"] = {"upload": self._upload(wanted["oid"], wanted["size"])}
            objects.append(entry)
        return web.json_response({"transfer": "basic", "objects": objects})

    async def store(self, request: web.Request) -> web.Response:
        return self._stored(request.match_info["oid"], await request.read())

    async def store_part(self, request: web.Request) -> web.Response:
        body = await request.read()
        self._hub.parts[request.match_info["oid"], int(request.match_info["part"])] = body
        return web.Response(headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})

    async def complete(self, request: web.Request) -> web.Response:
        oid, parts = request.match_info["oid"], (await request.json())["parts"]
        return self._stored(oid, b"".join(self._hub.parts.pop((oid, part["partNumber"])) for part in parts))

    async def commit(self, request: web.Request) -> web.Response:
        self._require_writer(request)
        header, *lines = [json.loads(line) for line in (await request.read()).splitlines()]
        if header["value"].get("parentCommit") != self._hub.head.oid:
            raise _refusal(web.HTTPPreconditionFailed, "A commit has happened since. Please refresh and try again.")
        files: dict[str, File] = {}
        removed: list[str] = []
        for kind, value in ((line["key"], line["value"]) for line in lines):
            if kind == "deletedFile":
                removed.append(value["path"])
            elif kind == "file":
                files[value["path"]] = File(base64.b64decode(value["content"]), False)
            elif value["oid"] not in self._hub.stored:
                raise _refusal(web.HTTPBadRequest, f"{value['path']} was never stored")
            else:
                files[value["path"]] = File(self._hub.stored[value["oid"]], True)
        made = self._hub.commit(files, removed)
        url = f"{self._hub.url}/datasets/{self._hub.repository}/commit/{made.oid}"
        return web.json_response({"commitOid": made.oid, "commitUrl": url})

    async def tag(self, request: web.Request) -> web.Response:
        commit, name = self._commit(request), (await request.json())["tag"]
        if name in self._hub.tags:
            raise _refusal(web.HTTPConflict, "Tag reference exists already")
        self._hub.tags[name] = commit.oid
        return web.json_response({})

    async def resolve(self, request: web.Request) -> web.Response:
        commit, path = self._commit(request), request.match_info["path"]
        if path not in commit.files:
            raise _refusal(web.HTTPNotFound, "no such file", "EntryNotFound")
        file = commit.files[path]
        etag = file.sha256 if file.is_large else file.git_blob
        return web.Response(body=file.content, headers={"X-Repo-Commit": commit.oid, "ETag": f'"{etag}"'})

    def _mode(self, commit: Commit, path: str) -> dict[str, Any]:
        held, is_large = commit.files.get(path), path.endswith(".parquet")
        oid = held and (held.sha256 if held.is_large else held.git_blob)
        return {"path": path, "uploadMode": "lfs" if is_large else "regular", "shouldIgnore": False, "oid": oid}

    def _upload(self, oid: str, size: int) -> dict[str, Any]:
        where, part = f"{self._hub.url}/storage/{oid}", self._hub.part_size
        if part is None or size <= part:
            return {"href": where}
        parts = {str(n + 1): f"{where}/{n + 1}" for n in range(-(-size // part))}
        return {"href": f"{where}/complete", "header": {"chunk_size": str(part), **parts}}

    def _stored(self, oid: str, content: bytes) -> web.Response:
        if hashlib.sha256(content).hexdigest() != oid:
            raise _refusal(web.HTTPBadRequest, "the content has another SHA-256")
        self._hub.stored[oid] = content
        self._hub.uploads[oid] += 1
        return web.json_response({})

    def _commit(self, request: web.Request) -> Commit:
        if self._hub.missing:
            raise _refusal(web.HTTPNotFound, "Repository not found", "RepoNotFound")
        commit = self._hub.at(request.match_info["revision"])
        if commit is None:
            raise _refusal(web.HTTPNotFound, "no such revision", "RevisionNotFound")
        return commit

    def _require_writer(self, request: web.Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token == READER:
            raise _refusal(web.HTTPForbidden, f"Your token {token} has no write access to this resource")
        if token != WRITER:
            raise _refusal(web.HTTPUnauthorized, "Invalid credentials in Authorization header")


def _refusal(kind: type[web.HTTPError], says: str, code: str = "") -> web.HTTPError:
    headers = {"X-Error-Message": says, **({"X-Error-Code": code} if code else {})}
    return kind(text=json.dumps({"error": says}), content_type="application/json", headers=headers)


def _broken(request: web.Request) -> web.Response:
    """Break the connection instead of answering."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
