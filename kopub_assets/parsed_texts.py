"""A page as plain text, the way a search reads it, and whether that text looks right."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import dagster as dg
import pyarrow as pa

from kopub_assets.materialize.dagster_assets import ShardRun, accounting_checks, table_asset
from kopub_assets.materialize.loop import Made, Owed, Row
from kopub_assets.materialize.previews import first_text
from kopub_assets.materialize.upstream import settled_by
from kopub_assets.recipes import own_recipe
from resources.recognition.read_regions import region_texts
from resources.states import State
from resources.store.schemas import PARSED_TEXTS
from resources.store.shard_store import ShardStore
from resources.texts.plain_text import page_text
from resources.texts.text_quality import Box, doubtful, doubts, total

OWN = own_recipe("parsed_texts")
TEXTS_LOOK_RIGHT = "texts_look_right"
_NAMED, _SHOWN = 5, 50
"""Doubtful pages in a check's sentence, and in the table that the UI shows: both live in the event log."""
_COLUMNS = ("index", "native_label", "content", "bbox_2d", "finish_reason")


@table_asset(
    "parsed_texts",
    "reading",
    PARSED_TEXTS,
    OWN,
    [
        *accounting_checks("parsed_texts"),
        dg.AssetCheckSpec(
            TEXTS_LOOK_RIGHT,
            asset="parsed_texts",
            description="No text is garbled, repeats itself, lacks its Hangul or most of what its regions should "
            "hold; names those that look so, worst first.",
        ),
    ],
)
def parsed_texts(context: dg.AssetExecutionContext, store: ShardStore):
    """The text of every page in reading order, without markup. A page without a character is `blank`.

    A text that looks wrong keeps its state: `doubt` and `doubts` say so.
    """

    def make(shard: str, todo: Sequence[Owed]) -> Iterator[tuple[str, Row]]:
        for page in todo:
            text = page_text(region_texts(page.given))
            found = doubts(text, boxes_of(page.given))
            yield (
                page.id,
                {
                    "text": text,
                    "n_chars": len(text),
                    "doubt": total(found),
                    "doubts": [doubt.says for doubt in found],
                    "state": State.OK if text else State.BLANK,
                },
            )

    def describe(table: pa.Table, shard: str) -> dict[str, object]:
        wrong = doubtful(table)
        records = [
            dg.TableRecord({"page": page.page_id, "doubt": round(page.doubt, 3), "says": "; ".join(page.doubts)})
            for page in wrong[:_SHOWN]
        ]
        return {
            "characters": sum(filter(None, table["n_chars"].to_pylist())),
            "text": first_text(table, "text"),
            "doubtful": len(wrong),
            "doubtful_share": len(wrong) / table.num_rows if table.num_rows else 0.0,
            **({"doubtful_pages": dg.MetadataValue.table(records)} if records else {}),
        }

    yield from ShardRun(
        context,
        store,
        PARSED_TEXTS,
        OWN,
        partial(owed, store, OWN),
        make,
        describe,
        warnings={TEXTS_LOOK_RIGHT: _look_wrong},
    ).materialize()


def owed(store: ShardStore, own: str, shard: str) -> Iterator[Owed]:
    """A row for every page of a shard."""
    for row in store.read("ocr_results", shard, ["page_id", "regions", "state", "reason"]).to_pylist():
        regions = row["regions"] or []
        read = [{name: region[name] for name in _COLUMNS} for region in regions]
        yield Owed(row["page_id"], [own, read], {"page_id": row["page_id"]}, regions, settled_by(row))


def boxes_of(regions: Iterable[Row]) -> list[Box]:
    """The regions of a page that were to be read, as rows of `ocr_results` hold them."""
    return [
        Box(
            region["native_label"],
            (region["bbox_2d"][2] - region["bbox_2d"][0]) * (region["bbox_2d"][3] - region["bbox_2d"][1]),
            len("".join(region["content"].split())),
            region["finish_reason"] == "length",
        )
        for region in regions
        if region["finish_reason"] != "skipped"
    ]


def _look_wrong(made: Made) -> str | None:
    wrong = doubtful(made.table)
    if not wrong:
        return None
    first = "; ".join(f"{page.page_id} {page.doubt:.2f}: {', '.join(page.doubts)}" for page in wrong[:_NAMED])
    return f"{len(wrong)} of {made.table.num_rows} pages look wrong: {first}"
