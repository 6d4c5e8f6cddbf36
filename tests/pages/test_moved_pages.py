"""Pages that moved in their shard, or changed, between raw_pages and later assets."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from kopub.embedding.base import Embedding
from kopub.fingerprints import CodeVersion
from kopub.pages.page import Page
from kopub.states import State
from kopub.store import ledger
from tests.doubles.engines import UnitEmbedder
from tests.support.harness import Platform, failure
from tests.support.sources.corpora import page_image, pages

SIX = pages("a_1", "a_2", "a_3", "a_4", "a_5", "a_6")
OTHERS = pages("b_1", "b_2")
MIXED = [SIX[at] for at in (3, 0, 5, 1, 4, 2)]
TEXTS = ("raw_pages", "layout_regions", "ocr_results")
READ_BYTES = ("layout_regions", "ocr_results", "corpus_image_embeddings")


class HashEmbedder(UnitEmbedder):
    """An embedder whose image vectors depend on the bytes of the page."""

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.hash", {1: "a double"})

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        for page in pages:
            made = self._made(page.page_id)
            assert made.vector is not None
            yield Embedding(page.page_id, State.OK, direction(page.data, len(made.vector)))


def direction(data: bytes | memoryview, dim: int = 4) -> np.ndarray:
    """Return a unit vector that depends on the bytes of a page."""
    vector = np.frombuffer(hashlib.sha256(data).digest()[:dim], np.uint8).astype(np.float32) + 1
    return vector / np.linalg.norm(vector)


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform.of(tmp_path, [SIX, OTHERS])


def moved(shard: str, page_id: str, row: int = 0) -> str:
    """Return the error of a shard whose first page with other bytes is `page_id`."""
    number = int(shard[-2:])
    return (
        f"data-{number}.arrow: row {row} does not hold the bytes that raw_pages saw of {page_id!r}: "
        f"materialize raw_pages of {shard} again"
    )


@pytest.mark.parametrize("asset", ["layout_regions", "corpus_image_embeddings"])
def test_pages_in_another_order_fail_with_one_line_and_are_never_wrong(platform: Platform, asset: str):
    platform.engines["embedding"] = HashEmbedder()
    assert platform.run("raw_pages", last="shard_01").success
    platform.reindex([MIXED, OTHERS])
    result = platform.run(asset, last="shard_01")
    assert not result.success
    assert failure(result).startswith("shard_00: ")
    assert failure(result).endswith(moved("shard_00", "a_1"))
    assert "\n" not in failure(result)
    assert not platform.store.has(asset, "shard_00")
    assert set(platform.states(asset, "shard_01").values()) == {State.OK}


def test_texts_are_not_read_from_pages_in_another_order(platform: Platform):
    assert platform.run("raw_pages,layout_regions", last="shard_01").success
    platform.reindex([MIXED, OTHERS])
    result = platform.run("ocr_results", last="shard_01")
    assert failure(result).endswith(moved("shard_00", "a_1"))
    assert platform.diary("recognition").pages == ["b_1", "b_2"]


@pytest.mark.slow
def test_after_raw_pages_everything_is_right(platform: Platform):
    platform.engines["embedding"] = HashEmbedder()
    assert platform.run("raw_pages").success
    platform.reindex([MIXED, OTHERS])
    assert not platform.run("layout_regions,corpus_image_embeddings").success
    assert platform.run().success
    content = dict(SIX)
    vectors = platform.rows("corpus_image_embeddings")
    assert list(vectors) == [page_id for page_id, _ in MIXED]
    for page_id, row in vectors.items():
        assert row["vector"] == pytest.approx(direction(content[page_id] or b""), abs=1e-3)
    for asset in READ_BYTES:
        assert set(platform.states(asset).values()) == {State.OK}


def test_a_page_that_changed_under_its_id_is_not_read_as_the_old_one(platform: Platform):
    assert platform.run("raw_pages").success
    platform.reindex([[*SIX[:2], ("a_3", page_image(99)), *SIX[3:]], OTHERS])
    result = platform.run("layout_regions")
    assert failure(result).endswith(moved("shard_00", "a_3", 2))
    assert platform.diary("layout").pages == ["a_1", "a_2"]
    assert platform.run().success
    assert platform.diary("layout").pages == ["a_1", "a_2", "a_3", "a_4", "a_5", "a_6"]


def test_pages_that_are_still_in_their_rows_are_read(platform: Platform):
    assert platform.run("raw_pages").success
    platform.reindex([[*SIX, *pages("a_7")], OTHERS])
    assert platform.run("layout_regions").success
    assert list(platform.states("layout_regions")) == [page_id for page_id, _ in SIX]


def test_pages_that_moved_to_another_shard_are_not_read_again_and_keep_their_cost(platform: Platform):
    def costs(shard: str) -> dict[str, tuple[str, float]]:
        rows = ledger.read(platform.store, "ocr_results", shard).to_pylist()
        return {row["row_id"]: (row["run_id"], row["seconds"]) for row in rows}

    platform.make(*TEXTS)
    before = costs("shard_00") | costs("shard_01")
    platform.reindex([SIX[:4], [*OTHERS, *SIX[4:]]])
    platform.make(*TEXTS)
    assert sorted(platform.diary("recognition").pages) == sorted(before)
    assert costs("shard_01") == {page_id: before[page_id] for page_id in ("b_1", "b_2", "a_5", "a_6")}


def test_a_table_that_is_kept_needs_no_picture_of_a_page_that_moved(platform: Platform):
    assert platform.run("raw_pages,layout_regions").success
    platform.reindex([MIXED, OTHERS])
    result = platform.run("layout_regions")
    assert result.success
    (made,) = result.asset_materializations_for_node("layout_regions")
    assert moved("shard_00", "a_1") in str(made.metadata["page"].value)
