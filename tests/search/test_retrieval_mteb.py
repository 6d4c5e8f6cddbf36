"""The scores equal those of mteb, computed from released vectors, queries and judgements.

It uses the samples, or the corpus in the folder `KOPUB_TEST_CORPUS`: `corpus/` in Arrow files with
the text of the pages, and `qa.parquet`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopub.config.settings import ROOT
from kopub.embedding.hashed import HashedEmbedder
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText
from kopub.search.metrics import METRICS
from kopub.states import State
from tests.support.harness import Platform
from tests.support.installed import needs
from tests.test_extend import example

pytestmark = [pytest.mark.slow, needs("mteb")]

SOURCE = Path(os.environ.get("KOPUB_TEST_CORPUS", ROOT / "samples"))
NAMES = ("hit_rate_at_1", "hit_rate_at_5", "hit_rate_at_10", "hit_rate_at_20", "ndcg_at_10", "mrr_at_1000")
"""mteb's names of `METRICS`; where one page answers, its recall is its hit rate."""
ROUNDED = 5.1e-6
"""mteb gives five decimals."""


class SourceText(Recognizer):
    """A recognizer that returns the source's text layer of each page."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.source_text", {1: "a double"})

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        texts = {row["id"]: row["text"] for row in _source_pages()}
        for page, regions in pages:
            read = tuple(RegionText(r.index, r.label, texts[page.page_id]) for r in regions)
            yield PageReading(page.page_id, State.OK, None, read)


def _source_pages() -> list[dict[str, Any]]:
    files = (pa.ipc.open_stream(file).read_all() for file in sorted((SOURCE / "corpus").glob("*.arrow")))
    return [row for file in files for row in file.select(["id", "image", "text"]).to_pylist()]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    pages = [(row["id"], row["image"]["bytes"]) for row in _source_pages()]
    queries = pq.read_table(SOURCE / "qa.parquet").to_pylist()
    half = len(pages) // 2
    platform = Platform.of(tmp_path_factory.mktemp("platform"), [pages[:half], pages[half:]], queries)
    platform.engines |= {"recognition": SourceText(), "embedding": HashedEmbedder()}
    assert platform.run(last="shard_01").success
    return platform


@pytest.mark.parametrize("convention", ["first", "any"])
def test_the_scores_are_those_of_mteb(
    platform: Platform, convention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    rows = platform.store.read("retrieval_scores", "all").to_pylist()
    wanted = {"retriever": "text", "convention": convention, "query_type": "all"}
    ours = {row["metric"]: row["value"] for row in rows if wanted.items() <= row.items()}
    theirs = _score_by_mteb(platform.home / "release", convention)
    assert ours == pytest.approx(
        {metric: theirs[name] for metric, name in zip(METRICS, NAMES, strict=True)}, abs=ROUNDED
    )
    assert ours["ndcg@10"] > 0
    if convention == "first":
        assert [theirs[f"recall_at_{k}"] for k in (1, 5, 10, 20)] == [theirs[name] for name in NAMES[:4]]


def _score_by_mteb(release: Path, convention: str) -> dict[str, float]:
    """Return the scores of the task in docs/examples, whose model looks up the released vectors."""
    from datasets import load_dataset

    def rows(config: str) -> list[dict[str, Any]]:
        return load_dataset(str(release), config, split="train").to_list()

    task = example("mteb_task.py").ReleaseRetrieval(str(release))
    task.load_data()
    relevant = task.dataset["default"]["test"]["relevant_docs"]
    if convention == "first":
        relevant.update({query: dict([next(iter(pages.items()))]) for query, pages in relevant.items()})
    of_page = {row["page_id"]: row["vector"] for row in rows("text_embeddings")}
    vectors = {row["text"]: of_page[row["id"]] for row in rows("corpus") if row["id"] in of_page}
    model: Any = _Vectors(vectors | {row["text"]: row["vector"] for row in rows("queries")})
    return dict(task.evaluate(model, "test", encode_kwargs={"batch_size": 32})["default"])


class _Vectors:
    """An encoder for mteb that looks up the stored vector of each text."""

    mteb_model_meta = None

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        self._vectors = vectors

    def encode(self, inputs: Any, **options: Any) -> np.ndarray:
        return np.array([self._vectors[text] for batch in inputs for text in batch["text"]], np.float32)

    def similarity(self, one: Any, other: Any) -> Any:
        import torch

        return torch.as_tensor(one) @ torch.as_tensor(other).T

    def similarity_pairwise(self, one: Any, other: Any) -> Any:
        raise NotImplementedError("retrieval compares all with all")
