"""A page of another site, open in a real browser, reads and changes nothing of this machine's servers."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from kopub.config.settings import ROOT
from tests.search.test_search import made
from tests.support.visits import browsed, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

_TRY = """async ([url, body]) => {
    const post = body === null ? {} : {method: "POST", body, headers: {"Content-Type": "application/json"}};
    try { const answer = await fetch(url, post); return [answer.status, await answer.text()]; }
    catch (error) { return [0, String(error)]; }
}"""


@contextmanager
def foreign_site() -> Iterator[str]:
    """Serve an empty page of another origin, and yield its URL."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def mcp_server(environment: dict[str, str]) -> Iterator[str]:
    """Run `kopub mcp` over HTTP at every address of this machine, and yield its URL."""
    command = [sys.executable, "-c", "from kopub.cli.main import main; main()", "mcp", "--http", "--port", "0"]
    command += ["--host", "0.0.0.0", "--allow-host", "localhost"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield server.stdout.readline().split()[0]
        server.terminate()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yield the URLs of a room and of an MCP server, both open to other machines."""
    home = made(tmp_path_factory.mktemp("doors")).home
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "KOPUB_HOME": str(home)}
    environment |= {"PYTHONUNBUFFERED": "1", "KOPUB_API_TOKEN": "secret"}
    options = ("--host", "0.0.0.0", "--allow-host", "localhost", "--edit", "--no-open")
    with browsed(environment, *options) as room, mcp_server(environment) as mcp:
        yield room, mcp


@pytest.fixture(scope="module")
def page() -> Iterator["Page"]:
    # As by DNS rebinding, the other site's name leads to this machine.
    with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1") as browser:
        yield browser.new_page()


def test_a_foreign_page_reads_nothing_and_changes_nothing(page: "Page", servers: tuple[str, str]):
    room, mcp = servers
    with foreign_site() as site:
        page.goto(site)
        for url, body in (
            (f"{room}/markdown?id=a_1", None),
            (f"{room}/api/v1/markdown?page=a_1", None),
            (f"{room}/correct", "{}"),
            (mcp, "{}"),
        ):
            assert page.evaluate(_TRY, [url, body])[0] == 0, url
        shown = page.evaluate(
            """url => new Promise(resolve => {
                const picture = new Image(); picture.src = url;
                picture.onload = () => resolve(true); picture.onerror = () => resolve(false);
            })""",
            f"{room}/picture?id=a_1&size=thumb",
        )
        assert shown is False


def test_a_name_that_leads_here_reads_nothing_and_changes_nothing(page: "Page", servers: tuple[str, str]):
    for url, paths in zip(servers, (("/", "/markdown?id=a_1", "/api/v1/markdown?page=a_1"), ("",)), strict=True):
        rebound = url.replace("127.0.0.1", "evil.example")
        answer = page.goto(rebound)
        assert answer is not None
        assert answer.status in (400, 421)
        for path in paths:
            status, text = page.evaluate(_TRY, [f"{rebound}{path}", None])
            assert status in (400, 421), path
            assert "밝기" not in text
        status, _ = page.evaluate(_TRY, [f"{rebound}/correct", "{}"])
        assert status in (400, 421)


def test_its_own_page_is_answered(page: "Page", servers: tuple[str, str]):
    for name in ("127.0.0.1", "localhost"):
        answer = page.goto(servers[0].replace("127.0.0.1", name))
        assert answer is not None
        assert answer.status == 200
