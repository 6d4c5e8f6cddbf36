"""The MCP server, with the client of the official SDK."""

import asyncio
import os
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kopub.config.settings import ROOT
from tests.search.test_search import Typist, made
from tests.support.harness import Platform
from tests.support.installed import needs
from tests.support.sample_home import sample_home
from tests.support.sources.corpora import pages
from tests.web.test_room import Scribe, ThreeBoxes

COMMAND = [sys.executable, "-c", "from kopub.cli.main import main; main()", "mcp"]
pytestmark = [pytest.mark.services, pytest.mark.slow, needs("mcp")]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a home with three pages of the samples."""
    home = sample_home(tmp_path_factory.mktemp("mcp") / "home", 3, "corpus_text_embeddings")
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "KOPUB_HOME": str(home)}


def asked(environment: dict[str, str], ask: Callable[[Any], Awaitable[None]]) -> None:
    """Call `ask` with a client that is connected over stdio."""

    from mcp import Client, StdioServerParameters

    async def asking() -> None:
        server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=environment, cwd=ROOT)
        async with Client(server) as client:
            await ask(client)

    asyncio.run(asking())


async def told(client: Any, tool: str, **values: Any) -> Any:
    answer = await client.call_tool(tool, values)
    assert not answer.is_error, answer.content
    return answer.structured_content


def test_an_agent_finds_the_page_that_answers_and_cites_it(samples: dict[str, str]):
    async def ask(client: Any) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == {
            "search",
            "read",
            "list_documents",
            "table",
            "picture",
        }
        hit = (await told(client, "search", query="데비안 하드웨어 요구 사항", limit=3))["hits"][0]
        assert hit["page"] == "install.ko_19"
        assert hit["link"] == "http://127.0.0.1:3030/page?id=install.ko_19"
        assert hit["regions"][0]["link"].startswith(f"{hit['link']}#text-")
        assert all(0 <= side <= 1000 for side in hit["regions"][0]["bbox_2d"])
        whole = await told(client, "read", page=hit["page"], characters=100_000)
        assert whole["next"] is None
        parts, at = "", 0
        while at is not None:
            part = await told(client, "read", page=hit["page"], characters=200, start=at)
            assert len(part["markdown"]) <= 200
            parts, at = parts + part["markdown"], part["next"]
        assert parts == whole["markdown"]
        listed = await told(client, "list_documents", limit=1)
        assert listed["next"] == 1
        assert hit["document"] in [
            each["id"] for each in (await told(client, "list_documents", limit=200))["documents"]
        ]
        ranged = await told(client, "read", document=hit["document"], first=1, last=2, characters=100_000)
        assert 1 <= len(ranged["pages"]) <= 2
        shown = await client.call_tool("picture", {"page": hit["page"], "size": "thumb"})
        assert [content.type for content in shown.content] == ["text", "image"]

    asked(samples, ask)


def test_parts_of_a_document_with_an_empty_page_are_the_whole(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2", "a_3")], [])
    texts = {"a_1": "가" * 250, "a_2": "", "a_3": "".join(map(chr, range(0xAC00, 0xAC00 + 500)))}
    platform.engines = {"recognition": Typist(texts=texts)}
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "KOPUB_HOME": str(platform.home)}

    async def ask(client: Any) -> None:
        whole = await told(client, "read", document="a")
        for characters in (200, 251):
            parts, at = "", 0
            while at is not None:
                part = await told(client, "read", document="a", characters=characters, start=at)
                parts, at = parts + part["markdown"], part["next"]
            assert parts == whole["markdown"]
        assert [each["page"] for each in whole["pages"]] == ["a_1", "a_3"]
        # Up to the end of the first page, and of the gap behind it, nothing of the next one is read.
        for characters, cited in ((249, ["a_1"]), (250, ["a_1"]), (252, ["a_1"]), (253, ["a_1", "a_3"])):
            part = await told(client, "read", document="a", characters=characters)
            assert [each["page"] for each in part["pages"]] == cited

    asked(environment, ask)


def test_documents_are_found_by_a_name_in_either_form_of_hangul(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("보고서_1", "Letters_1")], [])
    platform.make("raw_pages")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "KOPUB_HOME": str(platform.home)}

    async def ask(client: Any) -> None:
        for name, ids in ((unicodedata.normalize("NFD", "보고"), ["보고서"]), ("LETTER", ["Letters"]), ("x", [])):
            listed = await told(client, "list_documents", name=name)
            assert [each["id"] for each in listed["documents"]] == ids

    asked(environment, ask)


def test_a_table_comes_as_rows(samples: dict[str, str]):
    async def ask(client: Any) -> None:
        documents = (await told(client, "list_documents", limit=200))["documents"]
        for document in documents:
            answer = await client.call_tool("table", {"document": document["id"], "characters": 200})
            if not answer.is_error:
                table = answer.structured_content
                assert all(len(row) == len(table["columns"]) for row in table["rows"])
                assert table["regions"][0]["link"].startswith("http://127.0.0.1:3030/page?id=")
                return
        raise AssertionError("no document of the samples has a table")

    asked(samples, ask)


def test_a_row_of_a_table_is_whole_however_long_it_is(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1")], [])
    cells = ["가" * 300, "나" * 300]
    rows_of = "".join(f"<tr><td>{cell}</td><td>1</td></tr>" for cell in ["이름", *cells])
    platform.engines = {"layout": ThreeBoxes(), "recognition": Scribe(text="글", table=f"<table>{rows_of}</table>")}
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "KOPUB_HOME": str(platform.home)}

    async def ask(client: Any) -> None:
        rows, at = [], 0
        while at is not None:
            part = await told(client, "table", document="a", characters=200, start=at)
            rows, at = rows + part["rows"], part["next"]
        assert [row[0] for row in rows][-2:] == cells

    asked(environment, ask)


def test_what_is_wrong_is_said(tmp_path: Path):
    platform = made(tmp_path)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "KOPUB_HOME": str(platform.home)}

    async def ask(client: Any) -> None:
        for tool, values, says in (
            ("read", {"page": "a_9"}, "there is no page 'a_9'"),
            ("read", {}, "either a page or a document"),
            ("read", {"document": "a", "first": 19}, "the document has 2 pages, counted from 1, and first is 19"),
            ("read", {"document": "a", "first": 2, "last": 1}, "the last page comes before the first"),
            ("read", {"page": "a_1", "characters": 10**9}, "less than or equal"),
            ("search", {"query": ""}, "at least 1"),
            ("table", {"document": "a", "number": 7}, "the document has 0 tables"),
            ("picture", {"page": "a_1", "size": "huge"}, "size"),
        ):
            answer = await client.call_tool(tool, values)
            assert answer.is_error
            assert says in answer.content[0].text

    asked(environment, ask)


def test_over_http_the_token_is_asked_for_until_ctrl_c(tmp_path: Path):
    platform = made(tmp_path)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "KOPUB_HOME": str(platform.home)}
    environment |= {"KOPUB_API_TOKEN": "secret", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*COMMAND, "--http", "--port", "0"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        url = server.stdout.readline().split()[0]
        try:
            assert httpx.post(url, json={}).status_code == 401
            assert httpx.post(url, json={}, headers={"origin": "https://evil.example"}).status_code == 403
            assert httpx.post(url, json={}, headers={"host": "evil.example"}).status_code == 421
            asyncio.run(_asks_over_http(url, {"authorization": "Bearer secret"}))
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 0


async def _asks_over_http(url: str, headers: dict[str, str]) -> None:
    from httpx2 import AsyncClient
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        AsyncClient(headers=headers, timeout=60) as web,
        Client(streamable_http_client(url, http_client=web)) as client,
    ):
        assert (await told(client, "search", question="밝기"))["hits"][0]["page"] == "a_1"
