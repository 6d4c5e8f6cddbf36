"""Two versions of a shard's tables: what is compared of them, and which tables an upgrade made again."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kopub_assets.graph import GRAPH
from kopub_assets.upgrades.plan import differences, settings_changed
from kopub_assets.upgrades.table_versions import Versions
from resources.diff.compare import VECTORS, ShardDiff, compare
from resources.diff.html import Upgrade
from resources.store.corpus_tables import TABLES
from resources.store.page_rows import MADE_FROM, MADE_WITH
from resources.store.shard_store import ShardStore

_COLUMNS: dict[str, Sequence[str]] = {
    TABLES.pages.name: ["page_id", "page_idx", "sha256", "state", "width", "height"],
    TABLES.regions.name: ["page_id", "regions", "state"],
    TABLES.readings.name: ["page_id", "regions", "state"],
    TABLES.texts.name: ["page_id", "state"],
    **{
        vectors.name: [vectors.key, "vector", "state"]
        for vectors in (TABLES.image_vectors, TABLES.text_vectors, TABLES.query_vectors)
    },
}
Tables = dict[str, pa.Table]


def compared_tables(
    store: ShardStore, shard: str, old: Versions, new: Versions, page_id: str | None = None
) -> tuple[Tables, Tables]:
    """What is compared of two versions of a shard, by asset; of one page alone where `page_id` names it.

    Vectors that are the same table in both are left out. Raises `StoreError`.
    """
    same = {asset for asset in VECTORS if old.get(asset) == new.get(asset)}
    before, after = (
        {
            asset: _of_page(store.read(asset, shard, _COLUMNS[asset], version), page_id)
            for asset, version in versions.items()
            if asset in _COLUMNS and asset not in (same if page_id is None else VECTORS)
        }
        for versions in (old, new)
    )
    return before, after


def compare_versions(
    store: ShardStore, shard: str, old: Versions, new: Versions, page_id: str | None = None
) -> ShardDiff:
    """What became of a shard, or of one of its pages. Raises `StoreError`."""
    return compare(*compared_tables(store, shard, old, new, page_id))


def upgrades_between(store: ShardStore, shard: str, old: Versions, new: Versions) -> list[Upgrade]:
    """The tables that differ between two versions of a shard, with the settings that differ."""
    found = []
    for asset in (asset for asset in old if asset in new and old[asset] != new[asset]):
        before, after = (store.metadata(asset, shard, edition[asset]) for edition in (old, new))
        section = GRAPH.by_name[asset].engine_section or asset
        lines = [*map(str, differences(before[MADE_WITH], after[MADE_WITH], asset, section))]
        lines += settings_changed(*(json.loads(metadata[MADE_FROM]) for metadata in (before, after)))
        found.append(Upgrade(asset, before["recipe"], after["recipe"], tuple(lines)))
    return found


def _of_page(table: pa.Table, page_id: str | None) -> pa.Table:
    return table if page_id is None else table.filter(pc.field("page_id") == page_id)
