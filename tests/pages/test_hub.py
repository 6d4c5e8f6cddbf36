"""A dataset of the Hub as the source: the real clients against a double of the Hub on this machine."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resources.pages.corpus import Corpus
from resources.pages.manifest import SAMPLES, Manifest
from tests.doubles.hubs.fake_hub import REVISION, card, serve
from tests.support.sources.corpora import pages, table

pytestmark = pytest.mark.services

KOPUB = "SamsungSDS-Research/SDS-KoPub-VDR-Benchmark"
INDEX = """
import sys
from pathlib import Path
from resources.errors import SourceError
from resources.pages.indexing import index
try:
    index(sys.argv[1], Path(sys.argv[2]), print)
except SourceError as error:
    sys.exit(str(error))
"""


def parquet(content: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(content, file)
    return file.getvalue()


def index_from(url: str, dataset_id: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Index in a process of its own: the clients read their settings when they are imported."""
    command = [sys.executable, "-c", INDEX, dataset_id, str(tmp_path / "home")]
    settings = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=SAMPLES.parent, env=os.environ | settings
    )


def test_the_three_configurations_of_kopub(tmp_path: Path) -> None:
    content = pages("f_1", "f_2", "g_1")
    questions = [{"id": "f_2", "query": "어디에?", "type": "text", "ground_truth": [2, 1]}]
    annotations = [{"file_id": "f", "page_indices": [0, 1]}, {"file_id": "g", "page_indices": [2]}]
    files = {
        "README.md": card("SDS-KoPub-QA", "SDS-KoPub-corpus", "SDS-KoPub-annotations"),
        "SDS-KoPub-corpus.parquet": parquet(table(content).select(["id", "image", "text"])),
        "SDS-KoPub-QA.parquet": parquet(pa.Table.from_pylist(questions)),
        "SDS-KoPub-annotations.parquet": parquet(pa.Table.from_pylist(annotations)),
    }
    with serve(KOPUB, files) as url:
        done = index_from(url, KOPUB, tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = Manifest.load(tmp_path / "home")
    (source,) = manifest.sources
    assert (source.name, source.revision, manifest.keys) == (KOPUB, REVISION, ["shard_00"])
    assert manifest.name == f"{KOPUB} at {REVISION}"
    assert manifest.shards[0].format == "arrow"
    corpus = Corpus(home=str(tmp_path / "home"))
    assert [(row.page_id, row.data) for row in corpus.rows("shard_00")] == content
    asked = corpus.queries("shard_00")
    assert [(found.query_id, found.query, found.ground_truth) for found in asked] == [
        ("f_2", "어디에?", ["g_1", "f_2"])
    ]


def test_what_the_hub_lacks_is_one_line(tmp_path: Path) -> None:
    with serve("a/b", {"README.md": card("one", "two"), "one.parquet": parquet(table([])), "two.parquet": b""}) as url:
        missing = index_from(url, "no/such", tmp_path)
        unclear = index_from(url, "a/b", tmp_path)
    assert missing.stderr.startswith("no/such cannot be brought in from the Hub: ")
    assert unclear.stderr == "a/b has the configurations one, two: which holds pages is not clear\n"
    assert len(missing.stderr.splitlines()) == 1
    assert not (tmp_path / "home").exists()
