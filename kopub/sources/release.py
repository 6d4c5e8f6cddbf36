"""A release folder, read page by page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kopub import tables
from kopub.rows import Facts, Picture, Region, Step
from kopub.sources import row_values
from kopub.sources.parquet_rows import OpenFiles, ParquetRows
from kopub.sources.source import Place
from kopub.tables import VECTORS, TableName
from resources.errors import SourceError, StoreError
from resources.pages.origins import Origin
from resources.pages.upright.transform import PageTransform
from resources.printable import first_line
from resources.release.files import CONFIGS, MANIFEST, ReleaseManifest, config_files, parse_manifest, part_path

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
_VECTORS = {"text": "text_embeddings", "image": "image_embeddings"}
_CONFIGS = {VECTORS[kind]: config for kind, config in _VECTORS.items()}
_IMAGE = "image"


class ReleaseSource:
    """The release in `folder`."""

    def __init__(self, folder: Path, parts: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """`parts` are the files by config and shard, each with what tells it from another; looked for when left out."""
        self._folder = folder
        self._files = OpenFiles()
        self._parts = parts or {
            config: {path.stem: _stamp(path) for path in config_files(folder, config)} for config in CONFIGS
        }
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
            listed = self._manifest()
        except (OSError, StoreError):
            return ["the release was never finished: it has no list of its files"]
        missing = [shard for shard in listed.shards if shard not in self._parts[PAGES]]
        return [f"{len(missing)} of {len(listed.shards)} shards are not in the release"] if missing else []

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
            pages = self.rows(PAGES, shard).read([column for column in tables.PAGES.names if column != "shard"])
            shards = pa.repeat(pa.scalar(shard), pages.num_rows)
            return pages.append_column("shard", shards).select(tables.PAGES.names).cast(tables.PAGES)
        if name == "regions":
            columns = ["native_label" if column == "label" else column for column in tables.REGIONS.names]
            regions = self.rows("regions", shard).read(columns).select(columns)
            return regions.rename_columns(tables.REGIONS.names).cast(tables.REGIONS)
        return tables.vectors(self.rows(_CONFIGS[name], shard).read(["page_id", "vector"]))

    def facts(self, place: Place) -> Facts:
        page = self._page(place, _FACTS)
        states = {asset: state for asset, state in page["states"].items() if state is not None}
        return row_values.facts(page, states, page["reason"], page["doubts"])

    def origin(self, place: Place) -> Origin | None:
        # Releases of older versions do not say.
        known = "origin" in self.rows(PAGES, place.shard).columns
        found = self._page(place, ["origin"])["origin"] if known else None
        return None if found is None else Origin(**found)

    def texts(self, place: Place) -> tuple[str, str]:
        page = self._page(place, ["text", "markdown"])
        return page["text"] or "", page["markdown"] or ""

    def regions(self, place: Place) -> tuple[Region, ...]:
        # The regions of a file are in the order of its pages, and each page counts its own.
        ends = self._region_ends(place.shard)
        start = int(ends[place.row - 1]) if place.row else 0
        found = self.rows("regions", place.shard).slice(start, int(ends[place.row]) - start, _REGION)
        rows = found.to_pylist()
        if any(row["page_id"] != place.page_id for row in rows):
            raise StoreError(
                f"{self.location}: the regions of {place.shard} are not those of its pages: release it again"
            )
        return tuple(map(row_values.region, rows))

    def vectors(self, place: Place) -> Mapping[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for kind, config in _VECTORS.items():
            row = self._of_page(config, place, ["vector"])
            if row.num_rows and (vector := row_values.vector(row["vector"][0].as_py())) is not None:
                found[kind] = vector
        return found

    def pictures(self, place: Place) -> tuple[Picture, ...]:
        rows = self._of_page("crops", place, ["path", "label", "bbox", "image"]).to_pylist()
        return tuple(Picture(row["path"], row["label"], tuple(row["bbox"]), row["image"]["bytes"]) for row in rows)

    def lineage(self, place: Place) -> tuple[Step, ...]:
        rows = self.rows("lineage", place.shard)
        return tuple(row_values.steps(self._of_page("lineage", place, rows.columns)))

    def upright(self, place: Place) -> PageTransform | None:
        # Releases of older versions do not say.
        known = "upright" in self.rows(PAGES, place.shard).columns
        return PageTransform.of_row(self._page(place, ["upright"])["upright"]) if known else None

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
            raise StoreError(f"{place.page_id} is not in {place.shard} of {self.location} any more: open it again")
        return row

    def _of_page(self, config: str, place: Place, columns: Sequence[str]) -> pa.Table:
        """The rows of a page in a config that has none for some pages, or several."""
        rows = self.rows(config, place.shard)
        ids = rows.read(["page_id"])["page_id"].to_pylist()
        parts = [rows.slice(at, 1, columns) for at, page_id in enumerate(ids) if page_id == place.page_id]
        return pa.concat_tables(parts) if parts else rows.slice(0, 0, columns)

    def _region_ends(self, shard: str) -> np.ndarray:
        """By page of a shard, the row after its last region."""
        with self._lock:
            if shard not in self._ends:
                counts = self.rows(PAGES, shard).read(["n_regions"])["n_regions"].to_pylist()
                self._ends[shard] = np.cumsum([count or 0 for count in counts])
            return self._ends[shard]

    def stamp(self, config: str, shard: str) -> str | None:
        """Return what identifies a file of the release; None where there is none."""
        return self._parts[config].get(shard)

    def rows(self, config: str, shard: str) -> ParquetRows:
        """The rows of a file of the release. Raises `StoreError`."""
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
    """Tell whether a folder holds a shard of a release."""
    return bool(config_files(folder, PAGES))


def _stamp(path: Path) -> str:
    """Fit for the name of a file."""
    stat = path.stat()
    return f"{stat.st_mtime_ns:x}-{stat.st_size:x}"
