"""Two versions of a page: before the last upgrade, and now."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kopub_assets.upgrades.shard_diff import compare_versions, upgrades_between
from kopub_assets.upgrades.table_versions import CURRENT, PREVIOUS, edition
from resources.diff.compare import ShardDiff
from resources.diff.html import Upgrade, compared_page
from resources.store.corpus_tables import TABLES
from resources.store.shard_store import ShardStore

_COMPARED = (TABLES.regions.name, TABLES.readings.name)
"""The tables whose replaced versions are worth a look."""


def replaced_shards(store: ShardStore, shards: Iterable[str]) -> list[str]:
    """The shards of which layouts or readings before an upgrade are kept. Raises `StoreError`.

    A shard that was of another corpus then, with none of its pages, has nothing to compare.
    """
    return [shard for shard in shards if any(_has_pages_of_before(store, asset, shard) for asset in _COMPARED)]


def _has_pages_of_before(store: ShardStore, asset: str, shard: str) -> bool:
    kept = store.versions(asset, shard) if store.has(asset, shard) else []
    if not kept:
        return False
    before, now = (
        set(store.read(asset, shard, ["page_id"], version=version)["page_id"].to_pylist())
        for version in (kept[0].recipe, None)
    )
    return not before.isdisjoint(now)


def shard_versions(store: ShardStore, shard: str) -> tuple[ShardDiff, Sequence[Upgrade]]:
    """What the last upgrade changed in a shard, and which tables it made again. Raises `StoreError`."""
    old, new = edition(store, shard, PREVIOUS), edition(store, shard, CURRENT)
    return compare_versions(store, shard, old, new), upgrades_between(store, shard, old, new)


def page_versions(store: ShardStore, shard: str, page_id: str) -> Mapping[str, Any] | None:
    """What the last upgrade changed in a page, for a template; None where it is the same. Raises `StoreError`."""
    old, new = edition(store, shard, PREVIOUS), edition(store, shard, CURRENT)
    changed = compare_versions(store, shard, old, new, page_id).changed
    if not changed:
        return None
    shown = compared_page(changed[0])
    return {
        "sides": list(zip(("before", "now"), shown["sides"], strict=True)),
        "states": list(changed[0].states.items()),
        "changes": [
            {
                "kinds": ", ".join(change["change"].kinds),
                "labels": " → ".join(change["labels"]),
                "texts": change["texts"],
            }
            for change in shown["changes"]
        ],
    }
