"""What the three embedding assets share: their check, their rows, their run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa

from kopub_assets.materialize.checks import unsound_vectors
from kopub_assets.materialize.dagster_assets import ShardRun, accounting_checks, blocking_check, table_asset
from kopub_assets.materialize.loop import Made, Owed, Row
from kopub_assets.recipes import own_recipe
from resources.config.settings import load_settings
from resources.embedding.base import Embedder
from resources.embedding.embeddings import Embedding
from resources.store.shard_store import ShardStore

_SOUND = "vectors_are_sound"

TableOf = Callable[[int], pa.Schema]
"""The schema of an embedding table, by the width of its vectors."""


def vector_asset(name: str, table_of: TableOf) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """A `table_asset` whose rows are vectors."""
    embedding = load_settings().embedding
    says = "Every `ok` row has a vector of the right width and norm 1, without NaN."
    checks = [*accounting_checks(name), blocking_check(_SOUND, name, says)]
    return table_asset(name, "search", table_of(embedding.dim), own_recipe(name, embedding), checks)


def materialize_vectors(
    context: dg.AssetExecutionContext,
    store: ShardStore,
    embedding: Embedder,
    table_of: TableOf,
    owed: Callable[[str], Iterable[Owed]],
    make: Callable[[str, Sequence[Owed]], Iterable[Embedding]],
    id_column: str = "page_id",
    source: Callable[[str], str] | None = None,
) -> Iterator[Any]:
    """A `ShardRun` whose rows are the embeddings that `make` yields."""
    own = own_recipe(context.asset_key.path[-1], embedding)
    worked_on: set[str] = set()

    def sound(made: Made) -> str | None:
        return unsound_vectors(made.table, embedding.dim)

    def rows(shard: str, todo: Sequence[Owed]) -> Iterator[tuple[str, Row]]:
        worked_on.add(shard)
        return map(_row, make(shard, todo))

    def describe(table: pa.Table, shard: str) -> dict[str, Any]:
        return {**_describe(table), **(embedding.report() if shard in worked_on else {})}

    yield from ShardRun(
        context,
        store,
        table_of(embedding.dim),
        own,
        owed,
        rows,
        describe,
        {_SOUND: sound},
        id_column=id_column,
        engine=embedding,
        source=source,
    ).materialize()


def _row(made: Embedding) -> tuple[str, Row]:
    vector = None if made.vector is None else made.vector.astype(np.float16)
    return made.id, {"vector": vector, "state": made.state, "reason": made.reason}


def _describe(table: pa.Table) -> dict[str, Any]:
    vectors = table["vector"]
    return {"dimensions": table.schema.field("vector").type.list_size, "vectors": len(vectors) - vectors.null_count}
