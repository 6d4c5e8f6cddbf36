"""Real pages are released, one of them changes, and they are released again.

They are a third of two pages of the samples, or all pages of the shards in the folder KOPUB_TEST_PAGES.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from PIL import Image, ImageOps

from kopub.config.settings import load_settings
from kopub.folders import SAMPLES
from kopub.pages.corpus import Corpus
from kopub.pages.indexing import index
from kopub.release.hub import HubTarget
from kopub.release.local import LocalRelease
from kopub.release.verify import verify
from kopub_assets.running.engines import range_tags
from resources.profile import dagster_resources
from tests.doubles.hubs.writable_hub import WritableHub
from tests.support.harness import Platform
from tests.support.sources.corpora import Page

PAGES = os.environ.get("KOPUB_TEST_PAGES")


def real_pages(home: Path) -> list[list[Page]]:
    if PAGES:
        index(PAGES, home)
    corpus = Corpus(home=str(home if PAGES else SAMPLES))
    rows = [row for shard in corpus.manifest.keys for row in list(corpus.rows(shard))[: None if PAGES else 1]]
    whole: list[Page] = [(row.page_id, bytes(row.data)) for row in rows if row.data is not None]
    found = whole if PAGES else [_upper_third(page) for page in whole]
    return [found[: len(found) // 2], found[len(found) // 2 :]]


def upside_down(page: Page) -> Page:
    return _drawn_again(page, ImageOps.flip)


def _upper_third(page: Page) -> Page:
    return _drawn_again(page, lambda image: image.crop((0, 0, image.width, image.height // 3)))


def _drawn_again(page: Page, change: Callable[[Image.Image], Image.Image]) -> Page:
    with Image.open(io.BytesIO(page[1] or b"")) as image:
        file = io.BytesIO()
        change(image).save(file, "PNG", compress_level=1)
    return page[0], file.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_one_page_that_changes_sends_the_files_of_its_shard_alone(hub: WritableHub, tmp_path: Path):
    shards = real_pages(tmp_path / "pages")
    platform = Platform.of(tmp_path / "home", shards)
    settings = load_settings()
    platform.engines = {
        "layout": settings.layout,
        "recognition": settings.recognition,
        "embedding": settings.embedding,
        "release": LocalRelease(folder=str(tmp_path / "home" / "release"), license="cc-by-sa-4.0"),
        "hub": HubTarget(repo=hub.repository),
    }
    assert _push(platform).success
    first = hub.head
    platform.reindex([shards[0], [*shards[1][:-1], upside_down(shards[1][-1])]])
    assert _push(platform).success
    assert len(hub.commits) == 3
    assert {path.rpartition("_")[2] for path in hub.head.sent if path.startswith("data/")} == {"01.parquet"}
    assert {path for path in hub.head.files if hub.head.files[path] is not first.files.get(path)} == set(hub.head.sent)
    assert set(hub.uploads.values()) == {1}
    assert list(hub.tags.values()) == [first.oid, hub.head.oid]
    assert list(verify(tmp_path / "home" / "release")) == []


def _push(platform: Platform) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        platform.assets,
        tags=range_tags("shard_00", "shard_01") | {"kopub/publish": "true"},
        resources=dagster_resources(platform.resources()),
        instance=platform.instance,
        raise_on_error=False,
    )
