"""`kopub profile` and the whole-graph benchmark as commands (cpu profile), and a watched server."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.whole_graph.cases import ALONE
from kopub.config.settings import ROOT
from kopub.errors import EngineError
from kopub.profiling.observer import Observer
from kopub.vllm import lease
from kopub.vllm.endpoint import probe
from kopub.vllm.lease import list_servers, stop_server
from kopub.vllm.server import VLLMServer
from tests.cli.test_cli import run
from tests.support.sources.corpora import page_image, write_corpus
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.services]

STAGES = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_text_embeddings")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    shards = [[(f"{doc}_{page}", page_image(page)) for page in range(1, 4)] for doc in "ab"]
    return write_corpus(tmp_path / "source", shards)


def test_kopub_profile(tmp_path: Path, source: Path):
    home = tmp_path / "home"
    home.mkdir()
    assert run(home, "kopub", "index", str(source)).returncode == 0
    before = sorted(path.name for path in home.iterdir())
    found = run(home, "kopub", "profile", "--pages", "3", COLUMNS="200", KOPUB_STORE__URL=str(tmp_path / "mine"))
    assert found.returncode == 0, found.stderr
    for stage in STAGES:
        assert stage in found.stdout
    assert "3 pages in " in found.stdout
    inside = found.stdout.partition("inside OCR")[2].partition("slowest")[0].split("\n")
    steps = {line.split()[0]: line.split()[1:] for line in inside[2:] if len(line.split()) == 7}
    assert steps.keys() == {"decode", "crop", "read"}
    assert int(steps["decode"][0]) == 3
    assert sum(int(figures[2].rstrip("%")) for figures in steps.values()) in (99, 100, 101)
    assert "slowest" in found.stdout or "limited by" in found.stdout
    page = (home / "profile" / "profile.html").read_text("utf-8")
    assert "<svg" in page
    assert "ocr_results" in page
    # No table was made at the profile's store, and the run's own tables are gone.
    assert not (tmp_path / "mine").exists()
    assert sorted(path.name for path in home.iterdir()) == sorted([*before, "profile"])
    assert {path.name for path in (home / "profile").iterdir()} == {".lock", "profile.html"}


def test_the_benchmark_of_the_whole_graph(tmp_path: Path, source: Path):
    words = ["--profile", "cpu", "--pages", "4", "--cases", "own,warm,own", "--source", str(source / "corpus")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.whole_graph", *words, "--out", str(tmp_path / "out")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "4 pages in " in done.stdout
    found = json.loads((tmp_path / "out" / "whole_graph.json").read_text("utf-8"))
    (warm,) = found["cases"]
    assert warm["failures"] == []
    assert {name: stage["computed"] for name, stage in warm["stages"].items()} == dict.fromkeys(
        (*STAGES, "corpus_image_embeddings"), 4
    )
    for stage in warm["stages"].values():
        parts = ("starting", "ramping", "working", "waiting", "draining", "platform")
        assert sum(stage[part] for part in parts) == pytest.approx(stage["seconds"], abs=0.01)
        assert len(stage["between_shards"]) == 1
    assert {name: len(rates) for name, rates in found["own"].items()} == dict.fromkeys(ALONE, 2)
    twice = found["own"]["ocr_results"]
    assert f" {sum(twice) / 2:.1f} " in done.stdout, "the mean of both"
    # The account of the cores holds the same stages, and each took some of their time.
    assert all(sum(kinds.values()) > 0 for kinds in warm["core_seconds"].values()), warm["core_seconds"]
    assert "<svg" in (tmp_path / "out" / "whole_graph.html").read_text("utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="a managed server needs Linux")
@pytest.mark.parametrize("locks", ["/proc/locks", "/proc/no-such-file"], ids=["kernel", "container"])
def test_a_server_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: str):
    monkeypatch.setattr(lease, "LOCKS", Path(locks))
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path / "run"))
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    stub = str(ROOT / "tests" / "doubles" / "stub_vllm.py")
    server = VLLMServer(model=str(checkpoint), command=[sys.executable, stub], gpus=[], env={"STUB_BOOT": "0.5"})
    with Observer() as observer, server.lease() as endpoint:
        time.sleep(1.0)
        probe(endpoint.targets[0], 30.0)

        def counted() -> bool:
            seen = observer.observed.servers.get(server.key)
            return seen is not None and bool(seen.requests) and seen.requests[-1][1] > seen.requests[0][1]

        until(counted)
        if lease.LOCKS.exists():
            (used,) = list_servers()
            with pytest.raises(EngineError, match=f"is in use by process {os.getpid()}; --force stops it all the same"):
                stop_server(used)
    for each in list_servers():
        stop_server(each, force=True)
    history = observer.observed.servers[server.key]
    (start,) = history.starts
    assert 0.4 < start.seconds < 60
    assert history.requests[-1][1] - history.requests[0][1] == 1
    assert history.model == str(checkpoint)
