"""The rows of parents, joined by page."""

from collections.abc import Iterator, Sequence

from kopub_assets.materialize.row_inputs.rows import Row
from resources.errors import StoreError
from resources.store.shard_store import ShardStore
from resources.store.table import Table

_PAGE_COLUMNS = ["page_id", "page_idx", "sha256", "width", "height", "text_layer_id", "state", "reason"]


def page_rows(store: ShardStore, pages: Table, shard: str) -> list[Row]:
    """The pages of a shard in their order, without their images. Raises `StoreError`."""
    return store.read(pages.name, shard, _PAGE_COLUMNS).to_pylist()


def with_parent(
    store: ShardStore, pages: Sequence[Row], parent: Table, shard: str, columns: Sequence[str] | None = None
) -> Iterator[tuple[Row, Row]]:
    """Each page with its row of `parent`. Raises `StoreError` when the parent lacks one."""
    rows = {row["page_id"]: row for row in store.read(parent.name, shard, columns).to_pylist()}
    lacking = [page["page_id"] for page in pages if page["page_id"] not in rows]
    if lacking:
        raise StoreError(
            f"{parent} of {shard} lacks {len(lacking)} of {len(pages)} pages ({lacking[0]} first): "
            f"materialize {parent} again"
        )
    return ((page, rows[page["page_id"]]) for page in pages)
