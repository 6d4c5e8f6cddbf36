"""`kopub browse` as a person types it."""

import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from resources.config.settings import ROOT
from tests.cli.test_cli import run
from tests.search.test_search import made
from tests.support.harness import Platform

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
    assert f"port {port} cannot be used" in refused.stderr
    assert "choose another with --port" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_the_command_serves_on_this_machine_alone(platform: Platform, tmp_path: Path):
    environment = {"PATH": "/usr/bin:/bin", "KOPUB_HOME": str(platform.home), "PYTHONUNBUFFERED": "1"}
    # The allocator of Arrow and of the analyser then says how it was set when it was loaded.
    environment["MIMALLOC_VERBOSE"] = "1"
    command = [sys.executable, "-c", "from kopub_cli.main import main; main()", "browse", "--port", "0"]
    said = tmp_path / "said"
    with (
        said.open("w") as file,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=file, text=True) as server,
    ):
        assert server.stdout
        url = server.stdout.readline().split()[0]
        assert url.startswith("http://127.0.0.1:")
        body = ""
        for _ in range(100):
            try:
                body = urlopen(f"{url}/search?q=%EB%B0%9D%EA%B8%B0", timeout=20).read().decode()
                break
            except OSError:
                time.sleep(0.1)
        server.terminate()
    assert "<mark>밝기</mark>" in body
    assert set(re.findall(r"'purge_delay': (\S+)", said.read_text())) == {"0"}
