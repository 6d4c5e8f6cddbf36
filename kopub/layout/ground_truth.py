"""Layout given by the corpus, for pictures of one table, formula or line."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from kopub.engine import ProfileOnly
from kopub.errors import EngineError, SourceError, UndecodableImage, first_line
from kopub.fingerprints import CodeVersion, fingerprint
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import LABELS, Layout, Region, Task
from kopub.pages.arrow import ID
from kopub.pages.arrow_stream import open_stream
from kopub.pages.manifest import Manifest
from kopub.pages.page import Page, inspect
from kopub.pages.places import CorpusPlace
from kopub.states import Reason, State

REGIONS = "regions"
TYPE = pa.list_(pa.struct([("label", pa.string()), ("task", pa.string()), ("bbox", pa.list_(pa.float64()))]))
"""A region is a label, a task and a box, (x1, y1, x2, y2) as shares of width and height, each 0 to 1."""

NamedRegions = Mapping[str, list[dict[str, Any]] | None]
"""The regions that the corpus names, by page id; None for a row that names none."""

_WHOLE = (0.0, 0.0, 1.0, 1.0)


class GroundTruthLayout(LayoutDetector):
    """The regions that the corpus' column `regions` names for each page."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.given", {1: "the first release"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"home", "index"})
    takes_upright: ClassVar[bool] = False

    home: ProfileOnly[str] = Field(
        default="", description="Folder with the index of the corpus; the profile's own when left out."
    )
    index: ProfileOnly[str] = Field(
        default="", description="Folder or URL of an index that nodes share; corpus.url when left out."
    )

    def weights(self) -> dict[str, str]:
        """Return a fingerprint of the regions, because other regions make other rows."""
        try:
            return {"regions": fingerprint(self._regions)}
        except SourceError:
            return {"regions": "missing"}

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        try:
            regions = self._regions
        except SourceError as error:
            raise EngineError("layout.engine given: {reason}", error) from None
        for page in pages:
            yield _layout(page, regions.get(page.page_id))

    @cached_property
    def _regions(self) -> NamedRegions:
        return named_regions(CorpusPlace(Path(self.home), self.index))


def _layout(page: Page, entries: list[dict[str, Any]] | None) -> Layout:
    regions: list[Region] = []
    try:
        info = inspect(page.data)
        for index, entry in enumerate(entries or ()):
            label, box = entry["label"], tuple(entry["bbox"] or _WHOLE)
            if label not in LABELS:
                raise ValueError(f"{label!r:.40} is no label")
            if len(box) != 4 or not all(0 <= edge <= 1 for edge in box) or box[0] >= box[2] or box[1] >= box[3]:
                raise ValueError(f"{list(box)!r:.80} is no box of shares")
            x1, y1, x2, y2 = box
            bbox = (x1 * info.width, y1 * info.height, x2 * info.width, y2 * info.height)
            regions.append(Region(index, label, Task(entry["task"]), 1.0, bbox))
    except UndecodableImage as error:
        return Layout(page.page_id, error.state, str(error))
    except (KeyError, TypeError, ValueError) as error:
        reason = Reason("the corpus names a region that cannot be used: {error}", error=str(error))
        return Layout(page.page_id, State.FAILED, reason)
    if not regions:
        return Layout(page.page_id, State.FAILED, "the corpus names no region of this page")
    return Layout(page.page_id, State.OK, regions=tuple(regions))


def named_regions(corpus: CorpusPlace) -> NamedRegions:
    """Return the regions that the files of a corpus name, by page id.

    If two rows have the same id, the first one counts. Raises `SourceError` if a file lacks the column or cannot be
    read, and `StoreError` if fetching it fails.
    """
    manifest = Manifest.load(corpus)
    regions_of: dict[str, list[dict[str, Any]] | None] = {}
    for shard in manifest.shards:
        place = manifest.place(shard.file)
        try:
            with manifest.index.held(shard.file, shard.sha256) as path, pa.memory_map(str(path)) as file:
                stored = pq.ParquetFile(file) if shard.format == "parquet" else open_stream(file)
                schema = stored.schema_arrow if isinstance(stored, pq.ParquetFile) else stored.schema
                if schema.names.count(REGIONS) != 1 or not schema.field(REGIONS).type.equals(TYPE):
                    form = (
                        "{place} has no column {column} of the type {type}: name the regions of its pages there, or "
                        "let another layout engine find them"
                    )
                    raise SourceError(form, place, REGIONS, TYPE)
                table = stored.read([ID, REGIONS]) if isinstance(stored, pq.ParquetFile) else stored.read_all()
                table = table.select([ID, REGIONS])
                table.validate(full=True)
                for page_id, regions in zip(table[ID].to_pylist(), table[REGIONS].to_pylist(), strict=True):
                    regions_of.setdefault(page_id, regions)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SourceError("{place} cannot be read: {error}", place, first_line(error)) from None
    return regions_of
