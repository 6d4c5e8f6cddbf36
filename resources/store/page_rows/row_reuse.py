"""Rows that a kept version of a table holds already: an upgrade that is taken back computes nothing."""

import logging
from collections.abc import Collection

import pyarrow as pa

from resources.errors import DamagedTable
from resources.states import FINAL
from resources.store.table_store import TableStore

_log = logging.getLogger(__name__)


def known_rows(
    store: TableStore, asset: str, shard: str, schema: pa.Schema, id_column: str, wanted: Collection[tuple[str, str]]
) -> pa.Table:
    """The finished rows of kept versions that are `wanted`, which are (id, fingerprint), each at most once.

    Of a version without any only those two columns and the state are read; one version at a time is
    in memory. A version of another schema is skipped. Raises `StoreError`.
    """
    missing = set(wanted)
    found = [schema.empty_table()]
    for version in store.versions(asset, shard) if missing else ():
        try:
            rows = _rows(store, asset, shard, version.recipe, id_column, missing)
            table = store.read(asset, shard, version=version.recipe) if rows else None
        except DamagedTable as error:
            _log.warning("%s", error)
            continue
        if table is not None and table.schema.equals(schema):
            found.append(table.replace_schema_metadata(None).take(pa.array(list(rows.values()), pa.int64())))
            missing -= rows.keys()
    return pa.concat_tables(found)


def _rows(
    store: TableStore, asset: str, shard: str, version: str, id_column: str, missing: Collection[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Where in a version the `missing` rows are that it holds, finished."""
    keys = store.read(asset, shard, [id_column, "fingerprint", "state"], version)
    return {
        (row[id_column], row["fingerprint"]): at
        for at, row in enumerate(keys.to_pylist())
        if row["state"] in FINAL and (row[id_column], row["fingerprint"]) in missing
    }
