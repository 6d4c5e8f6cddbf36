"""Tables keep English sentences, and their forms and values beside them."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from kopub.pages.indexing import index
from kopub.states import Reason
from kopub.store.append_log import keep_reasons, reasons_in, stored_reasons
from kopub.store.objects import Objects
from kopub.store.table_store import TableStore
from tests.support.harness import Platform
from tests.web.test_room import browser, plain


def test_reasons_are_found_in_rows_their_regions_and_their_doubts():
    one, two, three = (Reason("row {row} has no id", row=row) for row in (1, 2, 3))
    row = {"reason": one, "regions": [{"reason": two}, {"reason": None}], "doubts": (three, "plain"), "width": 7}
    assert reasons_in(row) == {one, two, three}


def test_kept_reasons_are_read_once_from_few_files(tmp_path: Path):
    log = TableStore(str(tmp_path)).parts(".reasons", "ocr_results")
    keep_reasons(log, [])
    assert list(tmp_path.iterdir()) == []
    for row in range(40):
        keep_reasons(log, [Reason("row {row} has no id", row=row % 30)])
    found = stored_reasons(TableStore(str(tmp_path)).parts(".reasons"))
    assert sorted(reason.values["row"] for reason in found.values()) == list(range(30))
    assert found["row 7 has no id"].form == "row {row} has no id"
    assert len(log.names()) < 20


def test_reasons_are_kept_without_a_listing_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = TableStore(str(tmp_path)).parts(".reasons", "ocr_results")
    listings: list[str] = []
    below = Objects.below
    monkeypatch.setattr(Objects, "below", lambda objects, path: listings.append(path) or below(objects, path))
    for row in range(16):
        keep_reasons(log, [Reason("row {row} has no id", row=row)])
    assert len(listings) == 1


def test_the_reason_of_a_broken_file_is_told_in_korean_and_that_of_an_older_table_in_english(tmp_path: Path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "broken.bmp").write_bytes(b"BM and no more")
    index(str(tmp_path / "source"), tmp_path / "home")
    platform = Platform(tmp_path / "home")
    platform.make("raw_pages")
    (shard,) = platform.store.published("raw_pages")
    (english,) = platform.store.read("raw_pages", shard)["reason"].to_pylist()

    def told(page: TestClient) -> str:
        return plain(page.get("/pages?kind=quarantined", headers={"Accept-Language": "ko"}).text)

    assert english.startswith("broken.bmp, page 1: the image cannot be read: ")
    assert "broken.bmp, 1쪽: 그림을 읽을 수 없습니다: " in told(browser(platform))
    for part in (tmp_path / "home" / "store" / ".reasons").rglob("*.parquet"):
        part.unlink()
    assert "broken.bmp, page 1: the image cannot be read: " in told(browser(platform))
