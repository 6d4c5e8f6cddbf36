"""The asset of readings: the text of every region, the page as markdown, and its pictures."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import pyarrow as pa

from kopub_assets.asset import Metadata
from kopub_assets.layout_regions import LayoutRegions
from kopub_assets.metadata import first_markdown
from kopub_assets.raw_pages import RawPages
from kopub_assets.row_table import EngineTable, RetryPartial
from kopub_assets.rows import Row, RowResult, RowSpec, page_rows, picture_inputs, with_parent
from resources.config.choices import Pdf
from resources.config.settings import Resources
from resources.engine import Resource
from resources.fingerprints import CodeVersion
from resources.layout.regions import Region, Task
from resources.pages.corpus import Corpus
from resources.pages.documents.text_layer import TextLayer
from resources.recognition.base import Recognizer
from resources.recognition.known_texts import KnownText, PageToRead, agree, known_texts, read_unknown
from resources.recognition.regions import KINDS, PageReading, TextOrigin, retry_counts
from resources.states import State
from resources.store.corpus_tables import TABLES, Table
from resources.texts.extracted_text import CODE, extract_texts
from resources.texts.markdown import page_markdown

_REGION_FIELDS = [field.name for field in fields(Region) if field.name != "score"]
"""Columns of a region that decide its reading: another confidence alone reads nothing again."""
_NOT_READ = "not_read"


@dataclass(frozen=True, slots=True)
class _OcrInputs:
    """The input of a page's reading: its row of `raw_pages`, its regions, and a preferred text layer."""

    page: Row
    regions: Sequence[Row]
    layer: str | None


class OcrResults(EngineTable):
    """The text of every region with how it was read, the page as markdown, and the pictures cut out of it.

    A text that layout has found already is taken as it is, unless the engine's `reread` names its task. Where the
    profile prefers the text layers of PDFs, so is what a sound one says of a text region, as long as readings agree.
    A page with a region that could not be read is `partial`: it keeps what was read, and says what is missing.
    """

    table: ClassVar[Table] = TABLES.readings
    code_version: ClassVar[CodeVersion] = CodeVersion("ocr_results", {1: "the first release"})
    parents = (RawPages, LayoutRegions)
    engine_section: ClassVar[str | None] = "recognition"
    engine: Recognizer
    needs: ClassVar[tuple[str, ...]] = ("pdf", "layout")
    config: ClassVar[type[Resource] | None] = RetryPartial
    reads_regions_of = LayoutRegions

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        pdf: Pdf = resources["pdf"]
        self._prefers_layers = pdf.is_preferred

    @property
    def settings(self) -> Mapping[str, Any]:
        """The step from boxes to outlines, for layouts that have some."""
        cuts = getattr(self.resources["layout"], "polygons", False)
        return {"layout.polygons": "regions are cut out by their outlines"} if cuts else {}

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        return text_layer_settings(self.corpus, shard, "prefer") if self._prefers_layers else {}

    def rows(self, shard: str) -> Iterator[RowSpec]:
        pages = page_rows(self.store, RawPages.table, shard)
        for page, layout in with_parent(self.store, pages, LayoutRegions.table, shard):
            known = {"page_id": page["page_id"], "page_idx": page["page_idx"]}
            boxes = [[region[name] for name in _REGION_FIELDS] for region in layout["regions"] or ()]
            layer = page["text_layer_id"] if self._prefers_layers else None
            yield RowSpec.after(
                layout,
                [self.recipe_hash, *picture_inputs(page), boxes, *layer_made_from(layer)],
                known,
                _OcrInputs(page, layout["regions"], layer),
            )

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[PageToRead]:
        reread = {Task(task) for task in self.engine.reread}
        wanted = Task.TEXT not in reread and any(row.given.layer for row in todo)
        layers = self.corpus.text_layers(shard) if wanted else None
        with self.corpus.reader(shard) as source:
            for row in todo:
                regions = [_region(region) for region in row.given.regions]
                raw = row.given.page
                page = source.page(row.id, raw["page_idx"], raw["sha256"], raw["upright"])
                known = known_texts(regions, reread)
                if layers is not None and (layer := layers.layer(row.id, row.known["page_idx"], row.given.layer)):
                    yield self._with_layer(PageToRead(page, regions, known), layer)
                else:
                    yield PageToRead(page, regions, known)

    def _with_layer(self, page: PageToRead, layer: TextLayer) -> PageToRead:
        """Return a page with what its layer says; what layout has read proves the layer, else samples do."""
        found = extract_texts(layer, page.regions, self.engine.expected_scripts)
        texts = {index: KnownText(text, TextOrigin.TEXT_LAYER) for index, text in found.texts.items()}
        known = {
            index: texts[index] if index in texts and agree(texts[index].content, text.content) else text
            for index, text in page.known.items()
        }
        claimed = {index: text for index, text in texts.items() if index not in known}
        return replace(page, known=known, claimed=claimed, samples=found.samples if claimed else ())

    def results(self, inputs: Iterator[PageToRead]) -> Iterator[PageReading]:
        return read_unknown(self.engine.read, inputs)

    def row_id(self, result: PageReading) -> str:
        return result.page_id

    def row(self, spec: RowSpec, result: PageReading) -> RowResult:
        seconds = sum(text.seconds for text in result.regions if not text.reused)
        return RowResult(spec.id, _columns(result, spec.given.regions), seconds, retry_counts(result.regions))

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        regions = [region for row in table["regions"].to_pylist() for region in row or ()]
        return {
            "regions": len(regions),
            "regions_by_origin": by_origin(regions),
            "regions_failed": sum(region["state"] == State.FAILED for region in regions),
            "pictures": sum(len(crops or ()) for crops in table["image_crops"].to_pylist()),
            "characters": sum(len(region["content"]) for region in regions),
            "text": first_markdown(table, "markdown"),
        }


def by_origin(regions: Iterable[Row]) -> dict[str, int]:
    """Return how many regions have their text from whom; those without an origin are `not_read`."""
    counted = Counter(region["origin"] or _NOT_READ for region in regions)
    of_engines = [origin for origin in TextOrigin if origin is not TextOrigin.PERSON]
    return {origin: counted[origin] for origin in (*of_engines, _NOT_READ)}


def _region(row: Row) -> Region:
    polygon = row["polygon"] and tuple((x, y) for x, y in row["polygon"])
    return Region(row["index"], row["label"], Task(row["task"]), row["score"], tuple(row["bbox"]), polygon, row["text"])


def _columns(reading: PageReading, layout: Sequence[Row]) -> Row:
    """Return the columns of a page; `layout` holds the regions that were to be read."""
    laid_out = {region["index"]: region for region in layout}
    regions = [
        {
            "index": text.index,
            "label": KINDS[Task(laid_out[text.index]["task"])],
            "native_label": text.native_label,
            "bbox_2d": laid_out[text.index]["bbox_2d"],
            "content": text.content,
            "state": text.state,
            "reason": text.reason,
            "finish_reason": text.finish_reason,
            "attempts": text.attempts,
            "seconds": text.seconds,
            "scale": text.scale,
            "origin": text.origin,
        }
        for text in reading.regions
    ]
    return {
        "regions": regions,
        "markdown": page_markdown(reading.regions, reading.crops),
        "image_crops": [{"path": crop.path, "bbox": list(crop.bbox), "label": crop.label} for crop in reading.crops],
        "crop_images": [crop.data for crop in reading.crops],
        "state": reading.state,
        "reason": reading.reason,
    }


def text_layer_settings(corpus: Corpus, shard: str, use: str) -> Mapping[str, str]:
    """Return the settings of a shard that has pages with a text layer, of which the asset makes `use`.

    None of another.
    """
    if not corpus.manifest.shard(shard).text_layers:
        return {}
    return {"pdf.text_layer": use, CODE.name: str(CODE.number)}


def layer_made_from(layer: str | None) -> list[Any]:
    """Return what a row is made from besides: its page's `text_layer_id`, and the code that judges it."""
    return [] if layer is None else [layer, CODE.number]
