"""A page as plain text, the way a search reads it."""

from collections.abc import Iterator, Sequence

import dagster as dg
import pyarrow as pa

from kopub_assets.common import ShardRun, accounting_checks, table_asset
from kopub_assets.inherited import settled_by
from kopub_assets.previews import first_text
from kopub_assets.recipes import own_recipe
from kopub_assets.shard_loop import Owed, Row
from resources.recognition.base import RegionText
from resources.recognition.text import page_text
from resources.shards import ShardStore
from resources.states import State
from resources.tables import PARSED_TEXTS

OWN = own_recipe("parsed_texts")


@table_asset("parsed_texts", "reading", PARSED_TEXTS, OWN, accounting_checks("parsed_texts"))
def parsed_texts(context: dg.AssetExecutionContext, store: ShardStore):
    """The text of every page in reading order, without markup. A page without a character is `blank`."""

    def owed(shard: str) -> Iterator[Owed]:
        for row in store.read("ocr_results", shard, ["page_id", "regions", "state", "reason"]).to_pylist():
            texts = [[region["index"], region["native_label"], region["content"]] for region in row["regions"] or ()]
            yield Owed(row["page_id"], [OWN, texts], {"page_id": row["page_id"]}, texts, settled_by(row))

    def make(shard: str, todo: Sequence[Owed]) -> Iterator[tuple[str, Row]]:
        for page in todo:
            text = page_text([RegionText(*region) for region in page.given])
            yield page.id, {"text": text, "n_chars": len(text), "state": State.OK if text else State.BLANK}

    def describe(table: pa.Table, shard: str) -> dict[str, object]:
        return {"characters": sum(filter(None, table["n_chars"].to_pylist())), "text": first_text(table, "text")}

    yield from ShardRun(context, store, PARSED_TEXTS, OWN, owed, make, describe).materialize()
