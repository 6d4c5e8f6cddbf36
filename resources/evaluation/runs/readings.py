"""What the tables of a store say of every page, as the scorers want it."""

from collections.abc import Iterable, Iterator, Mapping

from resources.evaluation.benchmark import Reading
from resources.recognition.read_regions import read_regions
from resources.states import State
from resources.store.corpus_tables import TABLES
from resources.store.footer_cache import FooterCache
from resources.store.shard_store import ShardStore
from resources.store.table_source import IsOfCorpus

_READ = {
    TABLES.regions.name: ["page_id", "regions", "state", "reason"],
    TABLES.readings.name: ["page_id", "regions", "markdown", "state", "reason"],
    TABLES.texts.name: ["page_id", "text", "state", "reason"],
}
"""The columns of each asset that decide a score."""


def contents(store: ShardStore, keys: Iterable[str], is_of_corpus: IsOfCorpus) -> dict[str, dict[str, str]]:
    """By shard and asset, the fingerprint of the rows; only of shards that have been read to the end."""
    footers = FooterCache(store)
    tables = {asset: footers.tables(asset) for asset in _READ}
    return {
        shard: {asset: found[shard].content for asset, found in tables.items()}
        for shard in keys
        if all(shard in found and is_of_corpus(asset, shard) for asset, found in tables.items())
    }


def readings(store: ShardStore, shards: Iterable[str]) -> Iterator[tuple[str, Reading]]:
    """(page id, reading) of every page of the shards. Raises `StoreError` for tables that do not fit together."""
    for shard in shards:
        layout, read, texts = ({row["page_id"]: row for row in _rows(store, asset, shard)} for asset in _READ)
        for page_id, row in read.items():
            yield page_id, _reading(page_id, layout.get(page_id), row, texts.get(page_id))


def _rows(store: ShardStore, asset: str, shard: str) -> list[dict]:
    return store.read(asset, shard, _READ[asset]).to_pylist()


def _reading(page_id: str, layout: Mapping | None, read: Mapping, parsed: Mapping | None) -> Reading:
    if layout is None or parsed is None:
        return Reading(None, "its tables do not hold the same pages")
    return Reading(
        state=State(read["state"]),
        reason=read["reason"],
        markdown=read["markdown"] or "",
        text=parsed["text"] or "",
        regions=read_regions(page_id, layout["regions"], read["regions"]),
    )
