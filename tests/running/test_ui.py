"""`kopub ui` serves its own page and rejects requests from pages of other sites."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import dagster as dg
import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from kopub.pages.indexing import index
from tests.support.dagster.ui import Ui
from tests.support.processes import forked
from tests.support.sources.corpora import pages, write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.services]

EVIL = "http://evil.example"
LAUNCH = """
mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename
  ... on LaunchRunSuccess { run { id } }
  ... on RunConfigValidationInvalid { errors { message } }
  ... on PythonError { message }
} }
"""
RUNS = "query { runsOrError { ... on Runs { results { status } } } }"
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    folder = tmp_path_factory.mktemp("ui")
    index(str(write_corpus(folder / "source", [pages("a_1")])), folder / "home")
    with Ui(folder, {"KOPUB_HOME": str(folder / "home")}).started() as ui:
        yield ui


def params(config: Mapping[str, Any] | None = None, *assets: str) -> dict[str, Any]:
    selector = {
        "repositoryName": "__repository__",
        "repositoryLocationName": "kopub",
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": [asset]} for asset in assets or ("raw_pages",)],
    }
    tags = [{"key": "dagster/partition", "value": "shard_00"}]
    return {"selector": selector, "runConfigData": config or {}, "executionMetadata": {"tags": tags}}


def body() -> str:
    return json.dumps({"query": LAUNCH, "variables": {"params": params()}})


def in_address() -> str:
    return "/graphql?" + urlencode({"query": LAUNCH, "variables": json.dumps({"params": params()})})


@pytest.mark.parametrize(
    ("status", "method", "headers", "how"),
    [
        pytest.param(405, "GET", {"Accept": "image/avif,image/webp,*/*;q=0.8"}, "address", id="picture"),
        pytest.param(405, "GET", {}, "address", id="script"),
        pytest.param(405, "HEAD", {}, "address", id="head"),
        pytest.param(403, "POST", {"Content-Type": FORM, "Origin": EVIL}, "address", id="form"),
        pytest.param(415, "POST", {"Content-Type": FORM}, "address", id="form of an old browser"),
        pytest.param(415, "POST", {"Content-Type": "multipart/form-data; boundary=x"}, "address", id="multipart"),
        pytest.param(415, "POST", {}, "address", id="no type"),
        pytest.param(403, "POST", {"Content-Type": "text/plain", "Origin": EVIL}, "body", id="plain fetch"),
        pytest.param(415, "POST", {"Content-Type": "text/plain;a=application/json"}, "body", id="disguised"),
        pytest.param(403, "POST", {"Content-Type": JSON, "Origin": EVIL}, "body", id="fetch"),
        pytest.param(403, "POST", {"Content-Type": JSON, "Origin": "null"}, "body", id="sandbox"),
        pytest.param(403, "POST", {"Content-Type": JSON, "Origin": "http://localhost:1"}, "body", id="port"),
        pytest.param(403, "OPTIONS", {"Origin": EVIL, "Access-Control-Request-Method": "POST"}, "body", id="preflight"),
        pytest.param(421, "POST", {"Content-Type": JSON, "Host": "evil.example"}, "body", id="rebinding"),
        pytest.param(421, "GET", {"Host": "evil.example:3000", "Accept": "text/html"}, "address", id="rebound page"),
        pytest.param(421, "GET", {"Host": "127.0.0.1@evil.example"}, "address", id="user in host"),
    ],
)
def test_what_a_page_of_another_site_sends_starts_nothing(
    ui: Ui, status: int, method: str, headers: dict[str, str], how: str
):
    url = ui.url + (in_address() if how == "address" else "/graphql")
    content = body() if how == "body" and method == "POST" else b""
    with httpx.Client(timeout=60) as client:
        request = client.build_request(method, url, headers=headers, content=content)
        answer = client.send(request)
    assert answer.status_code == status
    assert method == "HEAD" or len(answer.text.splitlines()) == 1, answer.text
    assert "access-control-allow-origin" not in answer.headers
    assert ui.ask(RUNS)["runsOrError"]["results"] == []


def test_pages_of_other_sites_may_not_ask_for_assets_made_elsewhere_either(ui: Ui):
    refused = httpx.post(f"{ui.url}/report_asset_materialization/raw_pages", headers={"Content-Type": FORM})
    assert refused.status_code == 415


@pytest.mark.parametrize(
    ("name", "origin"), [("127.0.0.1", EVIL), ("127.0.0.1", "null"), ("evil.example", "http://evil.example")]
)
def test_a_foreign_page_opens_no_websocket(ui: Ui, name: str, origin: str):
    port = int(ui.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as reached, pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{name}:{port}/graphql", sock=reached, origin=Origin(origin))
    assert refused.value.response.status_code == 403


def test_its_own_page_works(ui: Ui):
    page = httpx.get(ui.url, headers={"Accept": "text/html", "Referer": "http://127.0.0.1:3030/"})
    assert page.status_code == 200
    assert "Dagster" in page.text
    assert page.headers["x-frame-options"] == "SAMEORIGIN"
    assert httpx.get(f"{ui.url}/graphql", headers={"Accept": "text/html"}).status_code == 200
    assert httpx.get(ui.url.replace("127.0.0.1", "localhost")).status_code == 200
    address = ui.url.replace("http", "ws") + "/graphql"
    with connect(address, origin=Origin(ui.url), subprotocols=[Subprotocol("graphql-ws")]) as page_socket:
        page_socket.send(json.dumps({"type": "connection_init"}))
        assert json.loads(page_socket.recv()) == {"type": "connection_ack"}


@pytest.mark.parametrize(
    ("resource", "field"),
    [("release", "folder"), ("gates", "cdm"), ("store", "url"), ("corpus", "home"), ("hub", "repo")],
)
def test_the_launchpad_names_no_command_and_no_folder(ui: Ui, resource: str, field: str):
    config = {"resources": {resource: {"config": {field: "/tmp/elsewhere"}}}}
    launched = ui.ask(LAUNCH, params=params(config, "layout_regions", "hf_release"))["launchRun"]
    assert launched["__typename"] == "RunConfigValidationInvalid"
    (error,) = launched["errors"]
    assert f'unexpected config entry "{field}" at path root:resources:{resource}:config' in error["message"]
    assert "\n" not in error["message"]


@pytest.mark.smoke
def test_a_run_is_launched_from_its_own_page(ui: Ui):
    launched = ui.ask(LAUNCH, params=params({"resources": {"gates": {"config": {"max_empty_jump": 0.5}}}}))
    assert launched["launchRun"]["__typename"] == "LaunchRunSuccess", launched
    with dg.DagsterInstance.from_config(str(ui.dagster)) as instance:
        ui.until(lambda: instance.get_runs()[0].is_finished)
        assert instance.get_runs()[0].is_success


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_the_daemon_ends_with_it(tmp_path: Path, sent: signal.Signals):
    index(str(write_corpus(tmp_path / "source", [pages("a_1")])), tmp_path / "home")
    with Ui(tmp_path, {"KOPUB_HOME": str(tmp_path / "home")}).started() as ui:

        def daemons() -> list[str]:
            """Return the commands of living processes of this UI's session that are daemons."""
            of_session = ["ps", "--no-headers", "-o", "stat=,args=", "-s", str(ui.pid)]
            lines = subprocess.run(of_session, capture_output=True, text=True, check=False).stdout.splitlines()
            return [line for line in lines if "dagster._daemon" in line and not line.startswith("Z")]

        assert daemons()
        os.kill(ui.pid, sent)
        ui.until(lambda: not daemons(), 90)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "Error: --host 0.0.0.0: name the hosts by which browsers reach it, such as"),
        (["--workspace", "none.yaml"], "Error: --workspace none.yaml: there is no such file"),
    ],
)
def test_what_cannot_be_started_is_one_line(tmp_path: Path, options: list[str], said: str):
    environment = {"PATH": "/usr/bin", "KOPUB_HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path / "dagster")}
    done = forked.run(["kopub", "ui", *options], environment)
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1
