"""What a person is shown of a page: its document, its regions with their texts, and whose picture it is."""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from resources.fingerprints import fingerprint
from resources.recognition.read_regions import region_texts
from resources.search.arrow_cache import Parts
from resources.store.shard_store import ShardStore
from resources.texts.plain_text import page_text

_REGION = pa.struct(
    [("index", pa.int32()), ("label", pa.string()), ("bbox_2d", pa.list_(pa.int32(), 4)), ("text", pa.string())]
)
_PAGES = pa.schema(
    [
        ("page_id", pa.string()),
        ("page_idx", pa.int32()),
        ("doc_id", pa.string()),
        ("page_no", pa.int32()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("sha256", pa.string()),
        ("regions", pa.list_(_REGION)),
    ]
)
_SHOWN = [field.name for field in _PAGES if field.name != "regions"]


@dataclass(frozen=True, slots=True)
class ShownRegion:
    """A region with its text; `box` is (x1, y1, x2, y2) on a grid of 0 to 1000 over the page."""

    index: int
    label: str
    box: tuple[int, int, int, int]
    text: str


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page as the store knows it. What is not known, since its tables are gone, is None or empty."""

    shard: str
    page_id: str
    page_idx: int | None = None
    doc_id: str | None = None
    page_no: int | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None
    regions: tuple[ShownRegion, ...] = ()


class Pages:
    """Pages by shard and id, from the tables as they are at the time of the call."""

    def __init__(self, store: ShardStore, parts: Parts) -> None:
        self._store, self._parts = store, parts
        self._open: dict[str, tuple[str, pa.Table, dict[str, int]]] = {}

    def refreshed(self) -> "Callable[[str, str], ShownPage]":
        """A look-up of pages by (shard, page id), in the tables as they are now."""
        raw, read = self._store.published("raw_pages"), self._store.published("ocr_results")

        def page(shard: str, page_id: str) -> ShownPage:
            version = fingerprint([raw.get(shard), read.get(shard)])
            if shard not in self._open or self._open[shard][0] != version:
                table = self._parts.get(
                    "pages", shard, version, lambda: _pages(self._store, shard, shard in raw, shard in read)
                )
                rows = {page_id: row for row, page_id in enumerate(table["page_id"].to_pylist())}
                self._open[shard] = version, table, rows
            _, table, rows = self._open[shard]
            if page_id not in rows:
                return ShownPage(shard, page_id)
            return _shown(shard, table.slice(rows[page_id], 1).to_pylist()[0])

        return page


def _pages(store: ShardStore, shard: str, has_pages: bool, has_texts: bool) -> pa.Table:
    known = store.read("raw_pages", shard, _SHOWN).to_pylist() if has_pages else []
    read = store.read("ocr_results", shard, ["page_id", "regions"]).to_pylist() if has_texts else []
    regions = {row["page_id"]: list(_regions(row["regions"] or ())) for row in read}
    pages = {row["page_id"]: row for row in known}
    rows = [
        {"page_id": page_id, **pages.get(page_id, {}), "regions": regions.get(page_id, [])}
        for page_id in dict.fromkeys([*pages, *regions])
    ]
    return pa.Table.from_pylist(rows, _PAGES)


def _regions(regions: Any) -> Iterator[dict[str, Any]]:
    for region in sorted(regions, key=lambda region: region["index"]):
        text = page_text(region_texts([region]))
        yield {
            "index": region["index"],
            "label": region["label"],
            "bbox_2d": region["bbox_2d"],
            "text": unicodedata.normalize("NFC", text),
        }


def _shown(shard: str, row: dict[str, Any]) -> ShownPage:
    regions = tuple(
        ShownRegion(region["index"], region["label"], tuple(region["bbox_2d"]), region["text"])
        for region in row.pop("regions")
    )
    return ShownPage(shard, regions=regions, **row)
