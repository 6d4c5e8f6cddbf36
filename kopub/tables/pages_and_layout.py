"""The assets of a page and its layout.

`raw_pages` holds every page as it came: identity, size, whether its bytes are usable, and the transform that sets it
upright. `layout_regions` holds the labelled regions of each page in reading order.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kopub.config.settings import Resources
from kopub.errors import UndecodableImage
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout
from kopub.pages.corpus import SourceRow
from kopub.pages.documents.text_layer import TextLayer
from kopub.pages.manifest import shard_source
from kopub.pages.page import Batch, Page
from kopub.parallel import bounded_map, ordered_map
from kopub.states import State
from kopub.store.corpus_tables import BENCHMARKS, TABLES, Table
from kopub.tables.asset import EngineTable, Metadata, RowTable
from kopub.tables.checks import Check, without_regions
from kopub.tables.metadata import first_page
from kopub.tables.rows import Row, RowResult, RowSpec, ShardResult, page_rows, picture_inputs
from kopub.texts.layer_regions import CODE, correct_regions


class RawPages(RowTable):
    """Every page of the source shard, in its order.

    A row has the page's id, document, format, size and the SHA-256 of its encoded bytes. The images stay in the source
    file, which is memory-mapped. A page whose id, row or bytes are unusable is quarantined with the reason; a page
    whose image is damaged in part is `partial`, and the rest of it is read. A page that could not be rendered from its
    document is `failed` until it is indexed again.

    The row of a skewed, turned or photographed page has the transform that sets it upright, and the width and height
    of the upright page. A page whose PDF prints its text is left as it is drawn; a scan's text layer is invisible.
    """

    table: ClassVar[Table] = TABLES.pages
    code_version: ClassVar[CodeVersion] = CodeVersion(
        "raw_pages",
        {
            1: "the first release",
            2: "a JPEG that its decoder calls damaged is partial",
            3: "skewed, turned and photographed pages are set upright",
            4: "it is kept how sure a skew and a sheet of paper are",
            5: "a TIFF whose fax data is damaged is partial",
            6: "a photo of a slide keeps the title on its frame",
            7: "a page is halved before it is looked at, which moves a sheet or a skew a little",
            8: "a scan is set upright although another program laid its text over it",
            9: "pictures with damaged metadata, greys of 32 bits or a transparent grey are set upright; what a column "
            "`problem` of a user's shard says beside an image is no damage",
        },
    )
    kinds: ClassVar[frozenset[str]] = frozenset({"arrow"})
    needs: ClassVar[tuple[str, ...]] = ("layout",)

    @property
    def sets_upright(self) -> bool:
        """True if pages are set upright.

        They are not if the layout is known beforehand, because its boxes refer to the pages as they came.
        """
        return self.corpus.upright and self.resources["layout"].takes_upright

    @property
    def settings(self) -> Mapping[str, Any]:
        return {} if self.sets_upright else {"corpus.upright": "pages are left as they came"}

    def source(self, shard: str) -> str:
        """Return the fingerprint of a shard's file as it was indexed."""
        return shard_source(self.corpus.manifest.shard(shard))

    def expected_rows(self, shard: str, rows_now: int | None) -> int:
        return self.corpus.manifest.shard(shard).rows

    def rows(self, shard: str) -> Iterator[RowSpec]:
        # Hashing releases the interpreter lock, so that a file is read as fast as its disk and all cores allow.
        for row, sha256 in ordered_map(_hash, self.corpus.rows(shard)):
            columns = {
                "page_id": row.page_id,
                "page_idx": row.row,
                "doc_id": row.doc_id,
                "page_no": row.page_no,
                "sha256": sha256,
                "n_bytes": None if row.data is None else len(row.data),
                "license": row.license,
                "text_layer_id": row.text_layer_id,
                "source": row.source,
            }
            lost = State.FAILED if row.failed else State.QUARANTINED
            predetermined = {"state": lost, "reason": row.problem} if row.problem else None
            made_from = [self.recipe_hash, sha256, row.text_layer_id]
            yield RowSpec(row.page_id, made_from, columns, predetermined=predetermined, partial=row.damage)

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[RowResult]:
        # A plan or a look at the tables needs nothing that works on pages.
        from kopub.pages.inspection import Inspector

        has_layers = self.sets_upright and any(row.known["text_layer_id"] for row in todo)
        layers = self.corpus.text_layers(shard) if has_layers else None

        with self.corpus.reader(shard) as source, Inspector(len(todo), self.sets_upright) as inspector:

            def inspect(row: RowSpec) -> RowResult:
                layer = layers and layers.layer(row.id, row.known["page_idx"], row.known["text_layer_id"])
                may_turn = self.sets_upright and (layer is None or layer.is_of_scan)
                page = source.page(row.id, row.known["page_idx"], row.known["sha256"])
                try:
                    inspected = inspector.inspect(page.data, may_turn)
                except UndecodableImage as error:
                    return RowResult(row.id, {"state": error.state, "reason": str(error)})
                if inspected.pixels is not None and source.kept is not None:
                    source.kept.keep(row.known["sha256"], inspected.pixels)
                columns = {
                    "format": inspected.format,
                    "width": inspected.width,
                    "height": inspected.height,
                    "upright": inspected.upright and inspected.upright.row(),
                    "state": State.PARTIAL if inspected.damage else State.OK,
                    "reason": inspected.damage,
                }
                return RowResult(row.id, columns)

            yield from bounded_map(inspect, todo, inspector.threads)

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        formats = Counter(filter(None, table["format"].to_pylist()))
        return {
            "bytes": sum(filter(None, table["n_bytes"].to_pylist())),
            "formats": dict(formats.most_common()),
            "text_layers": table.num_rows - table["text_layer_id"].null_count,
            "set_upright": table.num_rows - table["upright"].null_count,
        }


def _hash(row: SourceRow) -> tuple[SourceRow, str | None]:
    return row, None if row.data is None else hashlib.sha256(row.data).hexdigest()


_READERS = 2
"""Threads that read and hash pages, at 1 ms each. At 270 pages a second, the thread that takes the regions cannot spare
that time."""
PAGES_HAVE_REGIONS = Check("pages_have_regions", "The share of pages without regions did not jump.")


class LayoutRegions(EngineTable):
    """The regions of every page in reading order.

    Each region has a label, a task, a score, and a box in pixels and on a 0-1000 grid. An engine that reads whole pages
    also gives each region's text. If the profile prefers the text layers of PDFs, a sound layer corrects the regions:
    no letter of it is left in a picture or without a region. A page with ink but without regions is `failed`, never
    silently empty.
    """

    table: ClassVar[Table] = TABLES.regions
    code_version: ClassVar[CodeVersion] = CodeVersion(
        "layout_regions",
        {
            1: "the first release",
            2: "pictures with damaged metadata, greys of 32 bits or a transparent grey are read",
        },
    )
    parents = (RawPages,)
    after: ClassVar[tuple[str, ...]] = (BENCHMARKS,)
    engine_section: ClassVar[str | None] = "layout"
    engine: LayoutDetector
    needs: ClassVar[tuple[str, ...]] = ("gates", "pdf")
    checks: ClassVar[tuple[Check, ...]] = (*EngineTable.checks, PAGES_HAVE_REGIONS)

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._layers: dict[str, TextLayer] = {}
        """The text layers of the pages that the engine has, by row: it may have those of several shards."""

    @property
    def _uses_layers(self) -> bool:
        """True if regions are corrected by text layers; those known beforehand are not."""
        return self.resources["pdf"].text_layer == "prefer" and self.engine.takes_upright

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        uses_layers = self._uses_layers and self.corpus.manifest.shard(shard).text_layers
        return {"pdf.text_layer": "prefer", CODE.name: str(CODE.number)} if uses_layers else {}

    def rows(self, shard: str) -> Iterator[RowSpec]:
        for page in page_rows(self.store, RawPages.table, shard):
            layer = page["text_layer_id"] if self._uses_layers else None
            made_from = [self.recipe_hash, *picture_inputs(page), *([] if layer is None else [layer, CODE.number])]
            yield RowSpec.after(page, made_from, {"page_id": page["page_id"]}, page)

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[Page]:
        batch = Batch(shard, len(todo))
        has_layers = self._uses_layers and any(row.given["text_layer_id"] for row in todo)
        layers = self.corpus.text_layers(shard) if has_layers else None
        with self.corpus.reader(shard) as source:

            def read(row: RowSpec) -> Page:
                if layers and (layer := layers.layer(row.id, row.given["page_idx"], row.given["text_layer_id"])):
                    self._layers[row.id] = layer
                return replace(source.page_of(row.given), batch=batch)

            yield from ordered_map(read, todo, _READERS)

    def results(self, inputs: Iterator[Page]) -> Iterator[Layout]:
        return self.engine.detect(inputs)

    def row(self, spec: RowSpec, result: Layout) -> RowResult:
        layer = self._layers.pop(spec.id, None)
        if layer is not None:
            result = correct_regions(result, layer)
        # `bbox_2d` is rounded to the nearest lines of a grid of 0 to 1000.
        size = (spec.given["width"], spec.given["height"]) * 2
        regions: list[Row] = []
        for region in result.regions:
            polygon = None if region.polygon is None else [list(point) for point in region.polygon]
            regions.append(
                {
                    "index": region.index,
                    "label": region.label,
                    "task": region.task.value,
                    "score": region.score,
                    "bbox": list(region.bbox),
                    "bbox_2d": [round(1000 * edge / extent) for edge, extent in zip(region.bbox, size, strict=True)],
                    "polygon": polygon,
                    "text": region.text,
                }
            )
        return RowResult(spec.id, {"regions": regions, "state": result.state, "reason": result.reason})

    def problems(self, result: ShardResult) -> Mapping[str, str | None]:
        return {PAGES_HAVE_REGIONS.name: without_regions(result.table, result.previous, self.resources["gates"])}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        labels = _count(_regions(table), "label")
        return {
            "regions": labels.total(),
            "regions_by_label": dict(labels.most_common()),
            "page": first_page(self.corpus, shard, page_rows(self.store, RawPages.table, shard), table),
        }

    def regions_by_task(self, table: pa.Table) -> Mapping[str, int]:
        """Count regions by task, and those whose text is known once more under `known_<task>`."""
        regions = _regions(table)
        counts = dict(_count(regions, "task"))
        for task, count in _count(regions.filter(pc.field("text") != ""), "task").items():
            counts[f"known_{task}"] = count
        return counts


def _regions(table: pa.Table) -> pa.Table:
    """Return the regions of all pages, one per row."""
    return pa.Table.from_struct_array(table["regions"].combine_chunks().flatten())


def _count(regions: pa.Table, column: str) -> Counter[str]:
    """Return how many regions have each value of a column."""
    return Counter({group["values"]: group["counts"] for group in regions[column].value_counts().to_pylist()})
