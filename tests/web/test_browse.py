"""`kopub browse` as a real process."""

import os
import pty
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from kopub.config.settings import ROOT
from tests.cli.test_cli import run
from tests.search.test_search import made
from tests.support.harness import Platform
from tests.support.waiting import SOON

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return made(tmp_path_factory.mktemp("browse"))


def test_a_port_that_is_taken_is_one_line(platform: Platform):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run(platform.home, "kopub", "browse", "--port", str(port))
    assert refused.returncode == 1
    assert f"127.0.0.1:{port} cannot be used" in refused.stderr
    assert "choose another --port or --host" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_an_empty_host_is_not_every_address(platform: Platform):
    refused = run(platform.home, "kopub", "browse", "--no-open", "--port", "0", "--host", "")
    line = "Error: --host is empty: name an address, such as 127.0.0.1\n"
    assert (refused.returncode, refused.stderr) == (1, line)


@pytest.mark.smoke
def test_the_command_serves_on_this_machine_alone(platform: Platform, tmp_path: Path):
    environment = {"PATH": "/usr/bin:/bin", "KOPUB_HOME": str(platform.home), "PYTHONUNBUFFERED": "1"}
    # The allocator of Arrow and of the analyser then prints its options when it is loaded.
    environment["MIMALLOC_VERBOSE"] = "1"
    command = [sys.executable, "-c", "from kopub.cli.main import main; main()", "browse", "--port", "0"]
    said = tmp_path / "said"
    with (
        said.open("w") as file,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=file, text=True) as server,
    ):
        assert server.stdout
        try:
            url, shown = server.stdout.readline().split()[0], server.stdout.readline()
            # The port is open before the address is printed.
            body = urlopen(f"{url}/search?q=%EB%B0%9D%EA%B8%B0", timeout=SOON).read().decode()
        finally:
            server.terminate()
    assert url.startswith("http://127.0.0.1:")
    assert shown.startswith(f"2 documents, 4 pages of {platform.home}")
    assert "<mark>밝기</mark>" in body
    assert set(re.findall(r"'purge_delay': (\S+)", said.read_text())) == {"0"}


@pytest.mark.parametrize("host", ["::1", "localhost", "0.0.0.0"])
def test_the_address_that_it_says_is_answered(platform: Platform, host: str):
    """A room checks the Host header, which prevents DNS rebinding by other sites."""
    environment = {"PATH": "/usr/bin:/bin", "KOPUB_HOME": str(platform.home), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", "from kopub.cli.main import main; main()", "browse", "--port", "0", "--host", host]
    is_open = host == "0.0.0.0"
    command += ["--allow-host", "Papers.example"] if is_open else []
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            url, _ = server.stdout.readline().split()[0], server.stdout.readline()
            own = urlopen(url, timeout=SOON).status
            for path, refused in (("/", "400"), ("/api/v1/corpus", "421")):
                with pytest.raises(HTTPError, match=refused):
                    urlopen(Request(f"{url}{path}", headers={"Host": "evil.example"}), timeout=SOON)
            if is_open:
                assert urlopen(Request(url, headers={"Host": "papers.example"}), timeout=SOON).status == 200
        finally:
            server.terminate()
        said = server.stdout.read()
    assert own == 200
    assert ("asks for the token" in said) is is_open


@pytest.mark.parametrize("options", [[], ["--no-open"]])
def test_a_browser_is_opened_at_a_terminal_alone(platform: Platform, tmp_path: Path, options: list[str]):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "KOPUB_HOME": str(platform.home), "BROWSER": f"{browser} %s"}
    command = [sys.executable, "-c", "from kopub.cli.main import main; main()", "browse", "--port", "0", *options]
    terminal, shown = pty.openpty()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=shown, stderr=shown) as server:
        os.close(shown)
        said = ""
        try:
            while "2 documents" not in said:
                said += os.read(terminal, 1000).decode()
            url = re.findall(r"http://\S+", said)[0]
            urlopen(url, timeout=SOON).read()
        finally:
            server.terminate()
    os.close(terminal)
    assert (opened.read_text().strip() if opened.exists() else None) == (None if options else url)
