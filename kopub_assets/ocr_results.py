"""What is written on a page: the text of every region, the page as markdown, and its pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial

import dagster as dg
import pyarrow as pa

from kopub_assets.materialize.dagster_assets import ShardRun, accounting_checks, table_asset
from kopub_assets.materialize.loop import Owed, Row
from kopub_assets.materialize.previews import first_text
from kopub_assets.materialize.upstream import page_rows, settled_by
from kopub_assets.recipes import own_recipe
from resources.config.settings import load_settings
from resources.layout.regions import Region, Task
from resources.pages.corpus import Corpus
from resources.pages.page import Page
from resources.recognition.base import Recognizer
from resources.recognition.read_regions import KINDS
from resources.recognition.readings import PageReading
from resources.store.schemas import OCR_RESULTS
from resources.store.shard_store import ShardStore
from resources.texts.markdown import page_markdown

_REGION_FIELDS = [field.name for field in fields(Region) if field.name != "score"]
"""What a reading depends on: the same box with another confidence is not read again."""


@table_asset(
    "ocr_results",
    "reading",
    OCR_RESULTS,
    own_recipe("ocr_results", load_settings().recognition),
    accounting_checks("ocr_results"),
)
def ocr_results(context: dg.AssetExecutionContext, store: ShardStore, corpus: Corpus, recognition: Recognizer):
    """The text of every region with how it was read, the page as markdown, and the pictures cut out of it.

    A page with a region that could not be read is `failed` and keeps what was read.
    """
    own = own_recipe("ocr_results", recognition)
    took: dict[str, float] = {}

    def make(shard: str, todo: Sequence[Owed]) -> Iterator[tuple[str, Row]]:
        regions = {row.id: row.given for row in todo}
        with corpus.reader(shard) as source:
            stream = (
                (Page(row.id, source.bytes(row.known["page_idx"])), [_region(region) for region in row.given])
                for row in todo
            )
            for reading in recognition.read(stream):
                took[reading.page_id] = sum(text.seconds for text in reading.regions if not text.reused)
                yield reading.page_id, _columns(reading, regions[reading.page_id])

    def describe(table: pa.Table, shard: str) -> dict[str, object]:
        regions = [region for row in table["regions"].to_pylist() for region in row or ()]
        return {
            "regions": len(regions),
            "regions_failed": sum(region["state"] == "failed" for region in regions),
            "pictures": sum(len(crops or ()) for crops in table["image_crops"].to_pylist()),
            "characters": sum(len(region["content"]) for region in regions),
            "text": first_text(table, "markdown"),
            **recognition.report(),
        }

    yield from ShardRun(
        context,
        store,
        OCR_RESULTS,
        own,
        partial(owed, store, own),
        make,
        describe,
        engine=recognition,
        cost=took.__getitem__,
    ).materialize()


def owed(store: ShardStore, own: str, shard: str) -> Iterator[Owed]:
    """A row for every page of a shard."""
    layouts = {row["page_id"]: row for row in store.read("layout_regions", shard).to_pylist()}
    for page in page_rows(store, shard):
        layout = layouts[page["page_id"]]
        known = {"page_id": page["page_id"], "page_idx": page["page_idx"]}
        boxes = [[region[name] for name in _REGION_FIELDS] for region in layout["regions"] or ()]
        yield Owed(page["page_id"], [own, page["sha256"], boxes], known, layout["regions"], settled_by(layout))


def _region(row: Row) -> Region:
    polygon = row["polygon"] and tuple((x, y) for x, y in row["polygon"])
    return Region(row["index"], row["label"], Task(row["task"]), row["score"], tuple(row["bbox"]), polygon)


def _columns(reading: PageReading, layout: Sequence[Row]) -> Row:
    """The columns of a page; `layout` holds the regions that were to be read."""
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
