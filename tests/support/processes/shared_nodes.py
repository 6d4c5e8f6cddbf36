"""Nodes with a home each that share a corpus on object storage."""

import uuid
from pathlib import Path

import fsspec

from kopub.pages.corpus import Corpus
from kopub.release.local import LocalRelease
from kopub.store.table_store import ShardStore
from kopub.tables.asset import RunContext
from kopub.tables.checks import Problems
from kopub.tables.hf_release import HfRelease, Publishing
from kopub.tables.shard_loop import make_all
from tests.support.harness import Platform

MADE = (
    "raw_pages",
    "layout_regions",
    "ocr_results",
    "parsed_texts",
    "corpus_image_embeddings",
    "corpus_text_embeddings",
    "query_embeddings",
)
"""The tables that a release is made from."""


class Node(Platform):
    """A machine with its own home that shares `url`, and `release` if that is given."""

    def __init__(self, home: Path, url: str, release: str | None = None) -> None:
        super().__init__(home)
        self.url = url
        home.mkdir(parents=True, exist_ok=True)
        self.engines["corpus"] = Corpus(home=str(home), url=f"{url}/index")
        own = str(home / "release")
        self.engines["release"] = LocalRelease(folder=release or own, made_in=own, license="cc-by-4.0")

    @property
    def release(self) -> LocalRelease:
        return self.engines["release"]

    @property
    def store(self) -> ShardStore:
        return ShardStore(url=f"{self.url}/store")

    def released(self, *shards: str) -> list[str]:
        """Release shards as a run of them does, and return its log lines."""
        asset, said = HfRelease(self.resources()), []
        run = RunContext(uuid.uuid4().hex, shards, Problems(asset.checks, {}), said.append, said.append, Publishing())
        make_all(asset, run)
        return said


def put(folder: Path, url: str) -> str:
    """Upload a folder to `url`, and return that."""
    fs, path = fsspec.core.url_to_fs(url)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            fs.pipe_file(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())
    return url
