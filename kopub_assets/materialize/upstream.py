"""What a row takes over from its parents: their rows, and their ends."""

from typing import Any

from kopub_assets.materialize.loop import Row
from resources.states import State
from resources.store.shard_store import ShardStore

_PAGE_COLUMNS = ["page_id", "page_idx", "sha256", "width", "height", "state", "reason"]


def page_rows(store: ShardStore, shard: str) -> list[dict[str, Any]]:
    """The pages of a shard in their order, without their images."""
    return store.read("raw_pages", shard, _PAGE_COLUMNS).to_pylist()


def settled_by(parent: Row) -> Row | None:
    """A row whose parent is not `ok` ends as the parent did, for the same reason; None where there is work to do."""
    if parent["state"] == State.OK:
        return None
    return {"state": parent["state"], "reason": parent["reason"]}
