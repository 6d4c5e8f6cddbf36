"""A Hub dataset as the source: real clients against a local double of the Hub."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopub.errors import SourceError
from kopub.pages.corpus import Corpus
from kopub.pages.indexing import index
from kopub.pages.manifest import Manifest
from tests.doubles.hubs.writable_hub import REPO, File, WritableHub
from tests.support.sources.corpora import pages, table


def parquet(content: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(content, file)
    return file.getvalue()


def put(hub: WritableHub, **configurations: bytes) -> None:
    """Write a dataset with one Parquet file for each configuration."""
    entries = [
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}.parquet" for name in configurations
    ]
    card = "\n".join(["---", "configs:", *entries, "---", ""]).encode()
    files = {f"{name}.parquet": File(content, True) for name, content in configurations.items()}
    hub.commit({"README.md": File(card, False), **files}, [])


def test_the_three_configurations_of_kopub(hub: WritableHub, tmp_path: Path) -> None:
    content = pages("f_1", "f_2", "g_1")
    questions = [{"id": "f_2", "query": "어디에?", "type": "text", "ground_truth": [2, 1]}]
    annotations = [{"file_id": "f", "page_indices": [0, 1]}, {"file_id": "g", "page_indices": [2]}]
    put(
        hub,
        **{
            "SDS-KoPub-QA": parquet(pa.Table.from_pylist(questions)),
            "SDS-KoPub-corpus": parquet(table(content).select(["id", "image", "text"])),
            "SDS-KoPub-annotations": parquet(pa.Table.from_pylist(annotations)),
        },
    )
    index(REPO, tmp_path / "home")
    manifest = Manifest.load(tmp_path / "home")
    (source,) = manifest.sources
    assert (source.name, source.revision, manifest.keys) == (REPO, hub.head.oid, ["shard_00"])
    assert manifest.name == f"{REPO} at {hub.head.oid}"
    assert manifest.shards[0].format == "arrow"
    corpus = Corpus(home=str(tmp_path / "home"))
    assert [(row.page_id, row.data) for row in corpus.rows("shard_00")] == content
    asked = corpus.queries("shard_00")
    assert [(found.query_id, found.query, found.ground_truth) for found in asked] == [
        ("f_2", "어디에?", ["g_1", "f_2"])
    ]


def test_what_the_hub_lacks_is_one_line(hub: WritableHub, tmp_path: Path) -> None:
    put(hub, one=parquet(table([])), two=b"")
    with pytest.raises(SourceError, match=f"^{REPO} has the configurations one, two: which holds pages is not clear$"):
        index(REPO, tmp_path / "home")
    with pytest.raises(SourceError, match=r"^no/such cannot be brought in from the Hub: ") as missing:
        index("no/such", tmp_path / "home")
    assert "\n" not in str(missing.value)
    assert not (tmp_path / "home").exists()
