"""The asset of layouts: regions of pages with labels, in reading order."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kopub_assets.asset import Metadata
from kopub_assets.checks import Check, without_regions
from kopub_assets.metadata import first_page
from kopub_assets.raw_pages import RawPages
from kopub_assets.row_table import EngineTable
from kopub_assets.rows import Row, RowResult, RowSpec, ShardResult, page_rows, picture_inputs
from resources.fingerprints import CodeVersion
from resources.layout.base import LayoutDetector
from resources.layout.regions import PageLayout, Region
from resources.pages.page import Page, PageBatch
from resources.parallel import ordered_map
from resources.store.corpus_tables import TABLES, Table

_READERS = 2
"""Threads that read and hash pages, 1 ms each. At 270 pages a second the thread that takes the regions has no such time
to spare."""
PAGES_HAVE_REGIONS = Check("pages_have_regions", "The share of pages without regions did not jump.")


class LayoutRegions(EngineTable):
    """The regions of every page: label, task, score, box in pixels and on a 0-1000 grid, in reading order.

    An engine that reads whole pages gives the text of each region too.
    A page with ink but without regions is `failed`, never silently empty.
    """

    table: ClassVar[Table] = TABLES.regions
    code_version: ClassVar[CodeVersion] = CodeVersion("layout_regions", {1: "the first release"})
    parents = (RawPages,)
    engine_section: ClassVar[str | None] = "layout"
    engine: LayoutDetector
    needs: ClassVar[tuple[str, ...]] = ("gates",)
    checks: ClassVar[tuple[Check, ...]] = (*EngineTable.checks, PAGES_HAVE_REGIONS)

    def rows(self, shard: str) -> Iterator[RowSpec]:
        for page in page_rows(self.store, RawPages.table, shard):
            yield RowSpec.after(page, [self.recipe_hash, *picture_inputs(page)], {"page_id": page["page_id"]}, page)

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[Page]:
        batch = PageBatch(shard, len(todo))
        with self.corpus.reader(shard) as source:

            def read(row: RowSpec) -> Page:
                page = row.given
                whole = source.page(row.id, page["page_idx"], page["sha256"], page["upright"])
                return replace(whole, batch=batch)

            yield from ordered_map(read, todo, _READERS)

    def results(self, inputs: Iterator[Page]) -> Iterator[PageLayout]:
        return self.engine.detect(inputs)

    def row_id(self, result: PageLayout) -> str:
        return result.page_id

    def row(self, spec: RowSpec, result: PageLayout) -> RowResult:
        regions = [region_row(region, spec.given["width"], spec.given["height"]) for region in result.regions]
        return RowResult(spec.id, {"regions": regions, "state": result.state, "reason": result.reason})

    def problems(self, made: ShardResult) -> Mapping[str, str | None]:
        return {PAGES_HAVE_REGIONS.name: without_regions(made.table, made.previous, self.resources["gates"])}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        labels = _count(_regions(table), "label")
        return {
            "regions": labels.total(),
            "regions_by_label": dict(labels.most_common()),
            "page": first_page(self.corpus, shard, page_rows(self.store, RawPages.table, shard), table),
        }

    def regions_by_task(self, table: pa.Table) -> Mapping[str, int]:
        """Count regions by task; those whose text is known count under `known_` and the task."""
        regions = _regions(table)
        known = regions.filter(pc.field("text") != "")
        with_text = {f"known_{task}": count for task, count in _count(known, "task").items()}
        return {**_count(regions, "task"), **with_text}


def _regions(table: pa.Table) -> pa.Table:
    """Return the regions of all pages, one a row."""
    return pa.Table.from_struct_array(table["regions"].combine_chunks().flatten())


def _count(regions: pa.Table, column: str) -> Counter[str]:
    """Return how many regions have each value of a column."""
    return Counter({each["values"]: each["counts"] for each in regions[column].value_counts().to_pylist()})


def region_row(region: Region, width: int, height: int) -> Row:
    """Return a region as its table holds it.

    `bbox_2d` is the box on a grid of 0 to 1000, rounded to the nearest line.
    """
    x1, y1, x2, y2 = region.bbox
    return {
        "index": region.index,
        "label": region.label,
        "task": region.task.value,
        "score": region.score,
        "bbox": list(region.bbox),
        "bbox_2d": [round(1000 * v / extent) for v, extent in ((x1, width), (y1, height), (x2, width), (y2, height))],
        "polygon": None if region.polygon is None else [list(point) for point in region.polygon],
        "text": region.text,
    }
