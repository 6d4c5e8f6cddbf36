"""Where things are on a page: regions with labels, in reading order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg
import pyarrow as pa

from kopub_assets.materialize.checks import without_regions
from kopub_assets.materialize.dagster_assets import ShardRun, accounting_checks, blocking_check, table_asset
from kopub_assets.materialize.loop import Made, Owed, Row
from kopub_assets.materialize.previews import first_page
from kopub_assets.materialize.upstream import page_rows, settled_by
from kopub_assets.recipes import own_recipe
from resources.config.gates import Gates
from resources.config.settings import load_settings
from resources.layout.base import LayoutDetector
from resources.layout.regions import Region
from resources.pages.corpus import Corpus
from resources.store.schemas import LAYOUT_REGIONS
from resources.store.shard_store import ShardStore

PAGES_HAVE_REGIONS = "pages_have_regions"


@table_asset(
    "layout_regions",
    "reading",
    LAYOUT_REGIONS,
    own_recipe("layout_regions", load_settings().layout),
    check_specs=[
        *accounting_checks("layout_regions"),
        blocking_check(PAGES_HAVE_REGIONS, "layout_regions", "The share of pages without regions did not jump."),
    ],
)
def layout_regions(
    context: dg.AssetExecutionContext, store: ShardStore, corpus: Corpus, layout: LayoutDetector, gates: Gates
):
    """The regions of every page: label, task, score, box in pixels and on a 0-1000 grid, in reading order.

    A page with ink but without regions is `failed`, never silently empty.
    """
    own = own_recipe("layout_regions", layout)

    def make(shard: str, todo: Sequence[Owed]) -> Iterator[tuple[str, Row]]:
        pages = {row.id: row.given for row in todo}
        with corpus.reader(shard) as source:
            stream = (source.page(row.id, row.given["page_idx"], row.given["sha256"]) for row in todo)
            for found in layout.detect(stream):
                size = pages[found.page_id]["width"], pages[found.page_id]["height"]
                regions = [region_row(region, *size) for region in found.regions]
                yield found.page_id, {"regions": regions, "state": found.state, "reason": found.reason}

    def jumped(made: Made) -> str | None:
        return without_regions(made.table, made.previous, gates)

    def describe(table: pa.Table, shard: str) -> dict[str, object]:
        labels = Counter(region["label"] for regions in table["regions"].to_pylist() for region in regions or ())
        return {
            "regions": labels.total(),
            "regions_by_label": dict(labels.most_common()),
            "page": first_page(corpus, shard, page_rows(store, shard), table),
            **layout.report(),
        }

    yield from ShardRun(
        context,
        store,
        LAYOUT_REGIONS,
        own,
        partial(owed, store, own),
        make,
        describe,
        blocking={PAGES_HAVE_REGIONS: jumped},
        engine=layout,
        regions=_tasks,
    ).materialize()


def owed(store: ShardStore, own: str, shard: str) -> Iterator[Owed]:
    """A row for every page of a shard."""
    for page in page_rows(store, shard):
        known = {"page_id": page["page_id"]}
        yield Owed(page["page_id"], [own, page["sha256"]], known, page, settled_by(page))


def _tasks(table: pa.Table) -> dict[str, int]:
    return dict(Counter(region["task"] for regions in table["regions"].to_pylist() for region in regions or ()))


def region_row(region: Region, width: int, height: int) -> Row:
    """A region as its table holds it; `bbox_2d` is the box on a grid of 0 to 1000, rounded to the nearest line."""
    x1, y1, x2, y2 = region.bbox
    return {
        "index": region.index,
        "label": region.label,
        "task": region.task.value,
        "score": region.score,
        "bbox": list(region.bbox),
        "bbox_2d": [round(1000 * v / extent) for v, extent in ((x1, width), (y1, height), (x2, width), (y2, height))],
        "polygon": None if region.polygon is None else [list(point) for point in region.polygon],
    }
