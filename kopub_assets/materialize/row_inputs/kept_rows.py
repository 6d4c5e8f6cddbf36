"""Rows that need not be made again, and the table that they and the new ones make up. Pure."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kopub_assets.materialize.row_inputs.rows import Key, RowSpec
from resources.states import FINAL, State


def keys(rows: pa.Table, id_column: str) -> Iterator[Key]:
    """The keys of the rows of a table, in their order."""
    return zip(rows[id_column].to_pylist(), rows["fingerprint"].to_pylist(), strict=True)


def unfinished(
    specs: Sequence[RowSpec], known: Sequence[pa.Table], id_column: str, retry_partial: bool = False
) -> list[RowSpec]:
    """The rows of `specs` that no `known` table holds finished; `failed` rows are tried again."""
    final = [state for state in FINAL if not (retry_partial and state is State.PARTIAL)]
    finished: set[Key] = set()
    for table in known:
        # A filter copies what it keeps: the keys, not the vectors and pictures beside them.
        states = table.select([id_column, "fingerprint", "state"])
        finished |= set(keys(states.filter(pc.field("state").isin(final)), id_column))
    return [spec for spec in specs if spec.key not in finished]


def assembled(specs: Sequence[RowSpec], known: pa.Table, id_column: str) -> pa.Table:
    """The newest of the `known` rows, which come oldest first, for every one of `specs`, in their order.

    The known columns are written anew: a kept row may have moved within its shard.
    """
    newest = {key: position for position, key in enumerate(keys(known, id_column))}
    found = [spec for spec in specs if spec.key in newest]
    table = known.take(pa.array([newest[spec.key] for spec in found], pa.int64())).combine_chunks()
    for name in found[0].known if found else ():
        column = known.schema.get_field_index(name)
        values = pa.array([spec.known[name] for spec in found], known.schema.field(column).type)
        table = table.set_column(column, known.schema.field(column), values)
    return table
