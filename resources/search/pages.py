"""What a search shows of a page: its document, its regions with their texts, and the hash of its picture."""

import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resources.errors import StoreError
from resources.fingerprints import fingerprint
from resources.layout.regions import Task
from resources.recognition.read_regions import KINDS, region_texts
from resources.search.options import Where
from resources.search.tables import ArrowCache, SearchedTables
from resources.store.corpus_tables import TABLES, Table, lacking
from resources.store.table_source import IsOfCorpus
from resources.texts.markdown import page_text

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
        ("has_table", pa.bool_()),
        ("has_figure", pa.bool_()),
        ("regions", pa.list_(_REGION)),
    ]
)
_PAGE_COLUMNS = ["page_id", "page_idx", "doc_id", "page_no", "width", "height", "sha256"]
_TABLE, _FIGURE = KINDS[Task.TABLE], KINDS[Task.SKIP]
"""What a filter calls a table and a figure."""


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region with its text; `box` is (x1, y1, x2, y2) on a grid of 0 to 1000 over the page."""

    index: int
    label: str
    box: tuple[int, int, int, int]
    text: str


@dataclass(frozen=True, slots=True)
class PageView:
    """A page as the store knows it. What the store has no table for is None or empty."""

    shard: str
    page_id: str
    page_idx: int | None = None
    doc_id: str | None = None
    page_no: int | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None
    regions: tuple[RegionView, ...] = ()


class PageLookup:
    """Pages by shard and id, from the tables as they are at the time of the call."""

    def __init__(self, store: SearchedTables, cache: ArrowCache) -> None:
        self._store, self._cache = store, cache
        self._open: dict[str, tuple[str, pa.Table, dict[str, int]]] = {}

    def refreshed(self, is_of_corpus: IsOfCorpus) -> "PageViews":
        """The pages of the tables as they are now, without those of another corpus."""
        published = {asset: self._store.published(asset) for asset in (TABLES.pages.name, TABLES.readings.name)}

        def opened(shard: str) -> tuple[pa.Table, dict[str, int]]:
            used = [asset for asset in published if shard in published[asset] and is_of_corpus(asset, shard)]
            version = fingerprint([published[asset][shard] if asset in used else None for asset in published])
            if shard not in self._open or self._open[shard][0] != version:
                table = self._cache.get(
                    "pages",
                    shard,
                    version,
                    lambda: _pages(self._store, shard, used),
                )
                rows = {page_id: row for row, page_id in enumerate(table["page_id"].to_pylist())}
                self._open[shard] = version, table, rows
            _, table, rows = self._open[shard]
            return table, rows

        return PageViews(opened)


@dataclass(frozen=True)
class PageViews:
    """The pages of a corpus at one time; `opened` gives the table of a shard's pages, and the row of each."""

    opened: Callable[[str], tuple[pa.Table, dict[str, int]]]

    def page(self, shard: str, page_id: str) -> PageView:
        """A page by its shard and id; one that is not known has neither number nor regions."""
        table, rows = self.opened(shard)
        if page_id not in rows:
            return PageView(shard, page_id)
        return _view(shard, table.slice(rows[page_id], 1).to_pylist()[0])

    def ids(self, shard: str, where: Where) -> pa.Array:
        """The ids of the pages of a shard that are of the documents, and have what is asked for."""
        table, _ = self.opened(shard)
        wanted = pc.scalar(True)
        if where.documents:
            wanted &= pc.field("doc_id").isin(sorted(where.documents))
        for column in ("has_table", "has_figure"):
            if getattr(where, column):
                wanted &= pc.field(column)
        return table.select(["page_id", "doc_id", "has_table", "has_figure"]).filter(wanted)["page_id"].combine_chunks()

    def documents(self, shard: str) -> list[str]:
        """The documents that pages of a shard are of."""
        return self.opened(shard)[0]["doc_id"].drop_null().unique().to_pylist()


def _pages(store: SearchedTables, shard: str, used: Collection[str]) -> pa.Table:
    pages, readings = TABLES.pages.name, TABLES.readings.name
    known = _rows(store, TABLES.pages, shard, _PAGE_COLUMNS) if pages in used else []
    read = _rows(store, TABLES.readings, shard, ["page_id", "regions"]) if readings in used else []
    regions = {row["page_id"]: list(_regions(row["regions"] or ())) for row in read}
    places = {row["page_id"]: row for row in known}
    rows = [
        {
            "page_id": page_id,
            **places.get(page_id, {}),
            "has_table": _has(regions.get(page_id), _TABLE),
            "has_figure": _has(regions.get(page_id), _FIGURE),
            "regions": regions.get(page_id, []),
        }
        for page_id in dict.fromkeys([*places, *regions])
    ]
    return pa.Table.from_pylist(rows, _PAGES)


def _rows(store: SearchedTables, table: Table, shard: str, columns: list[str]) -> list[dict[str, Any]]:
    """Raises `StoreError`, also for a table that lacks a column or a field of one."""
    read = store.read(table.name, shard, columns)
    if lost := lacking(read.schema, columns, table.schema if isinstance(table.schema, pa.Schema) else None):
        raise StoreError(f"{table} of {shard} has no {lost}, as another release made it: delete it and run `kopub run`")
    return read.to_pylist()


def _has(regions: list[dict[str, Any]] | None, kind: str) -> bool:
    return any(region["label"] == kind for region in regions or ())


def _regions(regions: Any) -> Iterator[dict[str, Any]]:
    for region in sorted(regions, key=lambda region: region["index"]):
        text = page_text(region_texts([region]))
        yield {
            "index": region["index"],
            "label": region["label"],
            "bbox_2d": region["bbox_2d"],
            "text": unicodedata.normalize("NFC", text),
        }


def _view(shard: str, row: dict[str, Any]) -> PageView:
    regions = tuple(
        RegionView(region["index"], region["label"], tuple(region["bbox_2d"]), region["text"])
        for region in row["regions"]
    )
    return PageView(shard, regions=regions, **{column: row[column] for column in _PAGE_COLUMNS})
