"""A release folder, read page by page."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kopub.api import rows
from kopub.api.rows import VECTORS, Facts, Picture, Step, TableName
from kopub.api.sources import source
from kopub.api.sources.source import OpenFiles, ParquetRows, Place
from kopub.boxes import Box
from kopub.errors import SourceError, StoreError, first_line
from kopub.pages.fetched_files import FetchedFiles
from kopub.pages.page_reader import Origin
from kopub.pages.upright import UprightTransform
from kopub.release.base import VECTORS as RELEASED_VECTORS
from kopub.release.files import (
    CONFIGS,
    DATA_PATH,
    MANIFEST,
    PASSAGES,
    ReleaseManifest,
    config_files,
    parse_manifest,
    part_path,
)
from kopub.release.remote import PublishedRelease
from kopub.states import Reason, State
from kopub.store.corpus_tables import PASSAGE_VECTORS, TABLES
from kopub.store.rows import MADE_WITH
from kopub.store.schemas import OCR_RESULTS, STATE
from kopub.texts.regions import Region

PAGES = "pages"
_LISTED = ("page_id", "doc_id", "page_no", "state", "doubt")
_FACTS = ("width", "height", "sha256", "license", "source", "reason", "states", "doubts")
_REGION = (
    "page_id",
    "index",
    "native_label",
    "task",
    "score",
    "bbox",
    "bbox_2d",
    "polygon",
    "content",
    "state",
    "reason",
    "origin",
)
_VECTORS = {kind: f"{kind}_embeddings" for kind in VECTORS}
"""The config of each kind of vector."""
_OPENED = (*CONFIGS, PASSAGES)
"""The configs that are opened, as far as a release has them."""
_CONFIGS = {VECTORS[kind]: config for kind, config in _VECTORS.items()}
_IMAGE = "image"


class ReleaseSource:
    """The release in `folder`."""

    def __init__(self, folder: Path, parts: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Open a folder, whose files are searched for if `parts` are left out.

        `parts` are the files by config and shard, each with an identifier of its contents.
        """
        self._folder = folder
        self._files = OpenFiles()
        stamps: dict[str, dict[str, str]] = {}
        for config in () if parts else _OPENED:
            stamps[config] = {}
            for path in config_files(folder, config):
                # A stamp tells a file from another at its place, and can be used in the name of a file.
                stat = path.stat()
                stamps[config][path.stem] = f"{stat.st_mtime_ns:x}-{stat.st_size:x}"
        self._parts: Mapping[str, Mapping[str, str]] = parts or stamps
        self._ends: dict[str, np.ndarray] = {}
        self._lock = Lock()

    @property
    def location(self) -> str:
        return str(self._folder)

    @property
    def shards(self) -> Sequence[str]:
        return list(self._parts[PAGES])

    @property
    def notes(self) -> Sequence[str]:
        try:
            manifest = self._manifest()
        except (OSError, StoreError):
            return ["the release was never finished: it has no list of its files"]
        missing = [shard for shard in manifest.shards if shard not in self._parts[PAGES]]
        form = "{missing} of {count} shards are not in the release"
        return [Reason(form, missing=len(missing), count=len(manifest.shards))] if missing else []

    def _manifest(self) -> ReleaseManifest:
        """Return the manifest of the release. Raises `OSError` and `StoreError`."""
        return parse_manifest((self._folder / MANIFEST).read_bytes())

    def fresh(self) -> Self:
        now = type(self)(self._folder)
        return self if now._parts == self._parts else now

    def catalogue(self, shard: str) -> pa.Table:
        return self.rows(PAGES, shard).read(_LISTED)

    def table(self, shard: str, name: TableName) -> pa.Table | None:
        if name == "pages":
            pages = self.rows(PAGES, shard).read([column for column in rows.PAGES.names if column != "shard"])
            shards = pa.repeat(pa.scalar(shard), pages.num_rows)
            return pages.append_column("shard", shards).select(rows.PAGES.names).cast(rows.PAGES)
        if name == "regions":
            columns = ["native_label" if column == "label" else column for column in rows.REGIONS.names]
            regions = self.rows("regions", shard).read(columns).select(columns)
            return regions.rename_columns(rows.REGIONS.names).cast(rows.REGIONS)
        return rows.vectors(self.rows(_CONFIGS[name], shard).read(["page_id", "vector"]))

    def facts(self, place: Place) -> Facts:
        page = self._page(place, _FACTS)
        states = {asset: state for asset, state in page["states"].items() if state is not None}
        return source.facts(page, states, page["reason"], page["doubts"])

    def origin(self, place: Place) -> Origin | None:
        # Releases of older versions lack the column.
        has_column = "origin" in self.rows(PAGES, place.shard).columns
        origin = self._page(place, ["origin"])["origin"] if has_column else None
        return None if origin is None else Origin(**origin)

    def texts(self, place: Place) -> tuple[str, str]:
        page = self._page(place, ["text", "markdown"])
        return page["text"] or "", page["markdown"] or ""

    def regions(self, place: Place) -> tuple[Region, ...]:
        # The regions of a file are in the order of its pages, and each page has the number of its regions.
        with self._lock:
            if place.shard not in self._ends:
                counts = self.rows(PAGES, place.shard).read(["n_regions"])["n_regions"].to_pylist()
                self._ends[place.shard] = np.cumsum([count or 0 for count in counts])
            ends = self._ends[place.shard]
        if place.row >= len(ends):
            raise self._gone(place)
        start = int(ends[place.row - 1]) if place.row else 0
        count = int(ends[place.row]) - start
        rows = self.rows("regions", place.shard).slice(start, count, _REGION).to_pylist()
        if [row["page_id"] for row in rows] != [place.page_id] * count:
            raise StoreError(
                f"{self.location}: the regions of {place.shard} are not those of its pages: open it or release it again"
            )
        return tuple(map(source.region, rows))

    def vectors(self, place: Place) -> Mapping[str, np.ndarray]:
        vectors: dict[str, np.ndarray] = {}
        for kind, config in _VECTORS.items():
            row = self._of_page(config, place, ["vector"])
            if row.num_rows and (vector := source.vector(row["vector"][0].as_py())) is not None:
                vectors[kind] = vector
        return vectors

    def pictures(self, place: Place) -> tuple[Picture, ...]:
        rows = self._of_page("crops", place, ["path", "label", "bbox", "image"]).to_pylist()
        return tuple(Picture(row["path"], row["label"], Box(*row["bbox"]), row["image"]["bytes"]) for row in rows)

    def lineage(self, place: Place) -> tuple[Step, ...]:
        rows = self.rows("lineage", place.shard)
        return tuple(source.steps(self._of_page("lineage", place, rows.columns)))

    def upright(self, place: Place) -> UprightTransform | None:
        # Releases of older versions lack the column.
        has_column = "upright" in self.rows(PAGES, place.shard).columns
        return UprightTransform.of_row(self._page(place, ["upright"])["upright"]) if has_column else None

    def image_bytes(self, place: Place) -> bytes:
        if _IMAGE not in self.rows(PAGES, place.shard).columns:
            raise SourceError(
                f"{self.location} holds no page images: open the home, or release again with release.page_images"
            )
        image = self._page(place, [_IMAGE])[_IMAGE]
        if image is None or image["bytes"] is None:
            raise SourceError(f"{place.page_id} has no image in the release")
        return image["bytes"]

    def _page(self, place: Place, columns: Sequence[str]) -> dict:
        row = self.rows(PAGES, place.shard).row(place.row, "page_id", place.page_id, columns)
        if row is None:
            raise self._gone(place)
        return row

    def _gone(self, place: Place) -> StoreError:
        return StoreError(f"{place.page_id} is not in {place.shard} of {self.location} any more: open it again")

    def _of_page(self, config: str, place: Place, columns: Sequence[str]) -> pa.Table:
        """Return a page's rows in a config that may have none or several."""
        rows = self.rows(config, place.shard)
        ids = rows.read(["page_id"])["page_id"].to_pylist()
        parts = [rows.slice(at, 1, columns) for at, page_id in enumerate(ids) if page_id == place.page_id]
        return pa.concat_tables(parts) if parts else rows.slice(0, 0, columns)

    def stamp(self, config: str, shard: str) -> str | None:
        """Return an identifier of a release file's contents; None for a missing file."""
        return self._parts[config].get(shard)

    def rows(self, config: str, shard: str) -> ParquetRows:
        """Return the rows of a file of the release. Raises `StoreError`."""
        return self._files.get((config, shard), lambda: self._opened(config, shard))

    def _opened(self, config: str, shard: str) -> ParquetRows:
        return self._open(self._path(config, shard))

    def _path(self, config: str, shard: str) -> Path:
        return self._folder / part_path(config, shard)

    def _open(self, path: Path) -> ParquetRows:
        try:
            return ParquetRows(pq.ParquetFile(pa.OSFile(str(path))), str(path))
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{path} cannot be read ({first_line(error)}): release {path.stem} again") from None


def is_release(folder: Path) -> bool:
    """Return whether a folder holds a shard of a release."""
    return bool(config_files(folder, PAGES))


_CONFIG_OF_ASSET = {
    TABLES.pages.name: PAGES,
    TABLES.readings.name: "regions",
    TABLES.texts.name: PAGES,
    **{asset: config for config, asset in RELEASED_VECTORS.items()},
    TABLES.query_vectors.name: "queries",
    PASSAGE_VECTORS.name: PASSAGES,
}
"""The config with the data that a search reads of each table."""
_RECIPE = frozenset({"engine", "version", "parameters", "weights"})
_UNSAID = {"finish_reason": "stop", "attempts": 1, "seconds": 0.0}
"""Values of a reading that a release does not have."""
_PASSAGE = ("start", "end", "vector")
_STATE = next(field for field in STATE if field.name == "state")
_READINGS = pa.schema([OCR_RESULTS.field("page_id"), OCR_RESULTS.field("regions")])


class ReleaseTables:
    """The tables of `release` that a search reads.

    `recipe` is that of the engine by which questions are embedded.
    """

    def __init__(self, release: ReleaseSource, recipe: Iterable[str]) -> None:
        self._release = release
        self._beside = frozenset(recipe) - _RECIPE

    def has(self, asset: str, shard: str) -> bool:
        return shard in self.published(asset)

    def published(self, asset: str) -> Mapping[str, str]:
        """Return the shards of a table, each with an identifier of its file."""
        if asset not in _CONFIG_OF_ASSET:
            return {}
        stamps: dict[str, str] = {}
        for shard in self._release.shards:
            if (stamp := self._release.stamp(_CONFIG_OF_ASSET[asset], shard)) is not None:
                stamps[shard] = stamp
        return stamps

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return `columns` of a table. Raises `StoreError`."""
        if asset not in _CONFIG_OF_ASSET or columns is None:
            raise StoreError(f"a release does not hold all of {asset}")
        if asset == TABLES.readings.name:
            fields = ["page_id", "index", "label", "native_label", "bbox_2d", "content", "state", "reason"]
            regions = self._release.rows("regions", shard).read(fields).to_pylist()
            pages = []
            for page_id, of_page in groupby(regions, lambda row: row["page_id"]):
                readings = [{**_UNSAID, **row} for row in of_page if row["content"] is not None]
                pages.append({"page_id": page_id, "regions": readings})
            return pa.Table.from_pylist(pages, _READINGS).select(list(columns))
        if asset == PASSAGE_VECTORS.name:
            rows = self._release.rows(PASSAGES, shard).read(["page_id", *_PASSAGE])
            counts = Counter(rows["page_id"].to_pylist())
            ends = [0, *accumulate(counts.values())]
            parts = rows.select(_PASSAGE).to_struct_array().combine_chunks()
            lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), parts)
            states = pa.array([State.OK.value] * len(counts), pa.string())
            return pa.table(
                {"page_id": pa.array(list(counts), pa.string()), "passages": lists, "state": states}
            ).select(list(columns))
        rows = self._release.rows(_CONFIG_OF_ASSET[asset], shard)
        table = rows.read([name for name in rows.columns if name in columns and name != _STATE.name])
        if "page_idx" in columns:
            table = table.append_column("page_idx", pa.array(range(table.num_rows), pa.int32()))
        if _STATE.name in columns:
            # The files besides that of pages hold only rows that were made.
            states: list[str] = [State.OK] * table.num_rows
            if _CONFIG_OF_ASSET[asset] == PAGES:
                states = [of_page[asset] for of_page in rows.read(["states"])["states"].to_pylist()]
            table = table.append_column(_STATE, pa.array(states, _STATE.type))
        return table.select(list(columns))

    def metadata(self, asset: str, shard: str) -> Mapping[str, str]:
        """Return the engines that a table was made with, from its lineage."""
        columns = ["asset", "engine", "parameters", "versions", "code_version"]
        lineage = self._release.rows("lineage", shard).read(columns)
        row = next((row for row in lineage.to_pylist() if row["asset"] == asset and row["engine"]), None)
        if row is None:
            return {MADE_WITH: json.dumps({"engines": []})}
        parameters: dict[str, Any] = json.loads(row["parameters"] or "{}")
        engine: dict[str, Any] = {
            "engine": row["engine"],
            "version": json.loads(row["code_version"] or "{}").get("engine"),
            "parameters": parameters,
            "weights": json.loads(row["versions"] or "{}"),
        }
        # A lineage lists the recipe's other fields among its parameters.
        for name in self._beside & parameters.keys():
            engine[name] = parameters.pop(name)
        return {MADE_WITH: json.dumps({"engines": [engine]})}


_DIGITS = 16
"""Hex digits of a file's SHA-256 that tell it from others at its place."""


class ObjectReleaseSource(ReleaseSource):
    """The release that was published at a URL when it was opened."""

    def __init__(self, url: str, fetched: FetchedFiles) -> None:
        self._published, self._fetched = PublishedRelease.at(url), fetched
        self._listed = self._published.manifest()
        parts: dict[str, dict[str, str]] = {config: {} for config in _OPENED}
        for path, file in self._listed.files.items():
            if (of := DATA_PATH.fullmatch(path)) and of["config"] in parts:
                parts[of["config"]][of["shard"]] = file.sha256[:_DIGITS]
        if not parts[PAGES]:
            raise SourceError(f"{url} is no release of KoPub: it has no data/{PAGES}/shard_*.parquet")
        super().__init__(Path(url), parts)

    @property
    def location(self) -> str:
        return self._published.folder

    def fresh(self) -> Self:
        now = type(self)(self._published.url, self._fetched)
        return self if now._published == self._published else now

    def _manifest(self) -> ReleaseManifest:
        return self._listed

    def _opened(self, config: str, shard: str) -> ParquetRows:
        path = part_path(config, shard)
        url = f"{self._published.folder}/{path}"
        with self._fetched.held(url) as file:
            if path in self._listed.files and file.sha256 != self._listed.files[path].sha256:
                raise SourceError(f"{url} is not the file that the release lists: publish it again")
            return self._open(file.path)
