"""Pages as a search shows them, their tables, and a cache of Arrow files."""

import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kopub.boxes import Box
from kopub.errors import StoreError
from kopub.files import replace_bytes
from kopub.fingerprints import fingerprint
from kopub.layout.regions import Task
from kopub.processes import give_back
from kopub.recognition.content import main_script
from kopub.recognition.regions import KINDS, region_texts
from kopub.search.options import Where
from kopub.states import phrase
from kopub.store.corpus_tables import TABLES, lacking
from kopub.store.table_source import IsOfCorpus
from kopub.texts.markdown import page_text

FORMAT = 5
"""The format of the files. Increase it when their schemas change: files of another format are made again."""


class SearchedTables(Protocol):
    """The tables of a corpus, such as a `ShardStore`; each method raises `StoreError`."""

    def has(self, asset: str, shard: str) -> bool:
        """Return whether a table has been made."""
        ...

    def published(self, asset: str) -> Mapping[str, str]:
        """Return the shards of an asset's tables, each with a mark that identifies its file.

        A file that replaces another has a different mark.
        """
        ...

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table, or only `columns` of it."""
        ...

    def metadata(self, asset: str, shard: str) -> Mapping[str, str]:
        """Return the metadata with which a table was written."""
        ...


class TablesNow:
    """The tables of a corpus, whose files are listed once between two calls of `look_again`.

    A search asks a dozen times which tables there are, and a list of many shards takes a millisecond.
    """

    def __init__(self, store: SearchedTables) -> None:
        self._store = store
        self.has, self.read, self.metadata = store.has, store.read, store.metadata
        self.look_again()

    def look_again(self) -> None:
        """Forget which tables there were."""
        self.published = cache(self._store.published)


class ArrowCache:
    """A folder of Arrow files, made when they are missing; processes may share it.

    If the folder cannot be written, the files are not kept, and `problem` says why.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem: str | None = None

    def get(self, kind: str, shard: str, version: str, make: Callable[[], pa.Table]) -> pa.Table:
        """Return the table that `make` makes, memory-mapped if it was made before.

        `version` identifies its inputs. Raises what `make` raises.
        """
        folder = self.folder / kind
        stem = f"{shard}.{FORMAT}-{version}"
        for path in folder.glob(f"{stem}.*.arrow"):
            table = _map(path)
            if table is not None:
                return table
        table = make()
        options = pa.ipc.IpcWriteOptions(compression="zstd" if kind in _READ_WHOLE else None)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema, options=options) as writer:
            # It is written in one batch, so that vectors are one matrix.
            writer.write_table(table.combine_chunks())
        content = sink.getvalue()
        del table
        # The rows were temporarily Python objects, shard after shard, so their memory is given back.
        give_back()
        path = folder / f"{stem}.{zlib.crc32(content):08x}.arrow"
        try:
            replace_bytes(path, content)
            for other in folder.glob(f"{shard}.*.arrow"):
                if other != path:
                    other.unlink(missing_ok=True)
        except (StoreError, OSError) as error:
            # The home may be read-only: the caller gets the table in memory, and a later search makes it again.
            self.problem = str(error)
            return pa.ipc.open_file(content).read_all()
        mapped = _map(path)
        # A mapped file is preferred, because the system can drop its pages from memory.
        return pa.ipc.open_file(content).read_all() if mapped is None else mapped

    def kept(self, kind: str, shard: str) -> pa.Table | None:
        """Return the kept table of a shard, whatever its inputs; None if there is none."""
        return next(map(_map, (self.folder / kind).glob(f"{shard}.{FORMAT}-*.arrow")), None)


def _map(path: Path) -> pa.Table | None:
    """Return the table in a file, without copying; None if its bytes were changed."""
    try:
        content = pa.memory_map(str(path)).read_buffer()
    except (OSError, pa.ArrowInvalid):
        # Another process has just replaced it, or it is empty and cannot be mapped.
        return None
    if f"{zlib.crc32(content):08x}" != path.suffixes[-2].removeprefix("."):
        return None
    return pa.ipc.open_file(content).read_all()


_READ_WHOLE = ("tokens", "noted")
"""Kinds that are read as a whole, and seldom, so that they are compressed."""


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
        ("script", pa.string()),
        ("regions", pa.binary()),
    ]
)
_PAGE_COLUMNS = ["page_id", "page_idx", "doc_id", "page_no", "width", "height", "sha256"]
_SHOWN = (TABLES.pages.name, TABLES.readings.name, TABLES.texts.name)
_CUTS = re.compile(r"[\s-]")
"""What the end of a line may put into a word."""
_TABLE, _FIGURE = KINDS[Task.TABLE], KINDS[Task.SKIP]
"""The kinds of a table and a figure in a filter."""


@dataclass(frozen=True, slots=True)
class PlacedText:
    """A region with its text.

    `box_2d` is on a grid of 0 to 1000 over the page.
    """

    index: int
    label: str
    box_2d: Box[int]
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """A page as a search shows it; fields without a table are None or empty."""

    shard: str
    page_id: str
    page_idx: int | None = None
    doc_id: str | None = None
    page_no: int | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None
    regions: tuple[PlacedText, ...] = ()


_Pages = tuple[pa.Table, dict[str, int], list[str | None]]
"""The table of a shard's pages, the row of each, and the SHA-256 of its picture by row."""


class ViewLookup:
    """The lookup of the tables' current pages."""

    def __init__(self, store: SearchedTables, cache: ArrowCache) -> None:
        self._store, self._cache = store, cache
        self._open: dict[str, tuple[str, _Pages]] = {}

    def refreshed(self, is_of_corpus: IsOfCorpus) -> "Snapshot":
        """Return the tables' current pages, without those of another corpus."""
        published = {asset: self._store.published(asset) for asset in _SHOWN}

        @cache  # a search calls this for each page that it ranked
        def opened(shard: str) -> _Pages:
            used = [asset for asset in published if shard in published[asset] and is_of_corpus(asset, shard)]
            version = fingerprint([published[asset][shard] if asset in used else None for asset in published])
            if shard not in self._open or self._open[shard][0] != version:
                table = self._cache.get("pages", shard, version, lambda: _pages(self._store, shard, used))
                rows = {page_id: row for row, page_id in enumerate(table["page_id"].to_pylist())}
                self._open[shard] = version, (table, rows, table["sha256"].to_pylist())
            return self._open[shard][1]

        return Snapshot(opened)


@dataclass(frozen=True)
class Snapshot:
    """The pages of a corpus at one time.

    `opened` returns the table of a shard's pages, the row of each, and the pictures by row.
    """

    opened: Callable[[str], _Pages]

    def page(self, shard: str, page_id: str) -> View:
        """Return a page by shard and id; an unknown one has neither number nor regions."""
        table, rows, _ = self.opened(shard)
        if page_id not in rows:
            return View(shard, page_id)
        (row,) = table.slice(rows[page_id], 1).to_pylist()
        regions: list[PlacedText] = []
        for region in json.loads(zlib.decompress(row["regions"])):
            regions.append(PlacedText(region["index"], region["label"], Box(*region["bbox_2d"]), region["text"]))
        return View(shard, regions=tuple(regions), **{column: row[column] for column in _PAGE_COLUMNS})

    def picture(self, shard: str, page_id: str) -> str | None:
        """Return the SHA-256 of a page's encoded picture, or None if the tables lack it."""
        _, rows, pictures = self.opened(shard)
        return pictures[rows[page_id]] if page_id in rows else None

    def ids(self, shard: str, where: Where) -> pa.Array:
        """Return the ids of the pages of a shard that `where` selects."""
        table = self.opened(shard)[0]
        wanted = pc.scalar(True)
        if where.documents:
            wanted &= pc.field("doc_id").isin(sorted(where.documents))
        for column in ("has_table", "has_figure"):
            if getattr(where, column):
                wanted &= pc.field(column)
        if where.scripts:
            wanted &= pc.field("script").isin(sorted(where.scripts))
        columns = ["page_id", "doc_id", "has_table", "has_figure", "script"]
        return table.select(columns).filter(wanted)["page_id"].combine_chunks()

    def values(self, shards: Iterable[str], column: str) -> list[str]:
        """Return the distinct values of a column of the shards' pages, such as documents."""
        values: dict[str, None] = {}
        for shard in shards:
            values |= dict.fromkeys(self.opened(shard)[0][column].drop_null().unique().to_pylist())
        return list(values)


def _pages(store: SearchedTables, shard: str, used: Collection[str]) -> pa.Table:
    """Return the pages of a shard that one of the tables `used` has.

    Raises `StoreError`, also if a table lacks a column or a field of one.
    """
    read: dict[str, list[dict[str, Any]]] = {}
    for table, columns in (
        (TABLES.pages, _PAGE_COLUMNS),
        (TABLES.readings, ["page_id", "regions"]),
        (TABLES.texts, ["page_id", "text"]),
    ):
        rows = store.read(table.name, shard, columns) if table.name in used else None
        schema = table.schema if isinstance(table.schema, pa.Schema) else None
        if rows is not None and (lost := lacking(rows.schema, columns, schema)):
            form = "{table} of {shard} has no {lost}, as another release made it: delete it and run `kopub run`"
            message = phrase(form, table, shard, lost)
            raise StoreError(message)
        read[table.name] = [] if rows is None else rows.to_pylist()
    places = {row["page_id"]: row for row in read[TABLES.pages.name]}
    texts = {row["page_id"]: row["text"] or "" for row in read[TABLES.texts.name]}
    readings = {row["page_id"]: row["regions"] or () for row in read[TABLES.readings.name]}
    pages: list[dict[str, Any]] = []
    for page_id in dict.fromkeys([*places, *readings]):
        of_page = sorted(readings.get(page_id, ()), key=lambda reading: reading["index"])
        parts = [page_text(region_texts([reading])) for reading in of_page]
        # The page's text has words whole that a line's end cuts in the reading of a region.
        text = texts.get(page_id, "")
        blocks = text.split("\n\n")
        counts = [part.count("\n\n") + 1 if part else 0 for part in parts]
        if sum(counts) == len(blocks) and _CUTS.sub("", "".join(parts)) == _CUTS.sub("", text):
            parts = ["\n\n".join(blocks[start:end]) for start, end in pairwise([0, *accumulate(counts)])]
        regions: list[dict[str, Any]] = []
        for reading, part in zip(of_page, parts, strict=True):
            region = {name: reading[name] for name in ("index", "label", "bbox_2d")}
            regions.append({**region, "text": unicodedata.normalize("NFC", part)})
        labels = {region["label"] for region in regions}
        page = {
            "page_id": page_id,
            **places.get(page_id, {}),
            "has_table": _TABLE in labels,
            "has_figure": _FIGURE in labels,
            "script": main_script("".join(region["text"] for region in regions)),
            # Few pages are shown, so each is compressed by itself.
            "regions": zlib.compress(json.dumps(regions, ensure_ascii=False).encode()),
        }
        pages.append(page)
    return pa.Table.from_pylist(pages, _PAGES)
