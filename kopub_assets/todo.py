"""Which rows of a shard a run would make: what is owed, less what is finished somewhere already."""

from pkgutil import resolve_name

import pyarrow as pa
import pyarrow.compute as pc

from kopub_assets.shard_loop import Key
from resources.shards import ShardStore
from resources.states import FINAL

_OWED = frozenset(
    {"layout_regions", "ocr_results", "parsed_texts", "corpus_image_embeddings", "corpus_text_embeddings"}
)
"""Assets whose module says what a shard owes from the tables above it alone. The others read the corpus itself."""
_KEY = ["page_id", "fingerprint", "state"]


def rows_to_make(store: ShardStore, asset: str, shard: str, own: str) -> int | None:
    """How many rows a run of the asset would compute, by their fingerprints; None where it takes the corpus to say.

    Counts what a killed run or a kept version has finished as done, as the run does. Raises `StoreError`.
    """
    if asset not in _OWED:
        return None
    # An asset's module is part of Dagster's definitions, which nobody needs who only wants a plan of what they made.
    owed = resolve_name(f"kopub_assets.{asset}:owed")
    tables = [store.read(asset, shard, _KEY)]
    tables += [store.read(asset, shard, _KEY, version.recipe) for version in store.versions(asset, shard)]
    journal = store.parts(".journal", asset, shard)
    tables += [journal.read(name).select(_KEY) for name in journal.names()]
    finished = {key for table in tables for key in _finished(table)}
    return sum((row.id, row.fingerprint) not in finished for row in owed(store, own, shard))


def _finished(table: pa.Table) -> list[Key]:
    final = table.filter(pc.field("state").isin(FINAL))
    return list(zip(final["page_id"].to_pylist(), final["fingerprint"].to_pylist(), strict=True))
