"""Finished rows of earlier tables, which are used again."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cached_property

import pyarrow as pa

from kopub.errors import DamagedTable, MissingTable
from kopub.states import FINAL
from kopub.store import ledger
from kopub.store.corpus_tables import TABLES
from kopub.store.table_store import TableStore
from kopub.store.versions import FOLDER as VERSIONS

_log = logging.getLogger(__name__)
Key = tuple[str, str]
"""Id and fingerprint."""


class MovedRows:
    """Finished rows that are stored under other shards than those that now need them.

    If a file is split or joined with another, its pages move to other shards. Their rows are looked for in the tables
    of shards that are no longer `indexed`, and of shards whose file has changed.
    """

    def __init__(
        self, store: TableStore, asset: str, schema: pa.Schema, id_column: str, indexed: Collection[str]
    ) -> None:
        self._store, self._asset, self._schema, self._id_column = store, asset, schema, id_column
        self._indexed = indexed

    def find(self, shard: str, keys: Collection[Key]) -> pa.Table:
        """Return the rows of a shard with these `keys`, once each.

        Their ledger entries are copied. The caller holds the table's lock. Raises `StoreError`.
        """
        by_shard: dict[str, list[Key]] = defaultdict(list)
        for key in keys:
            if (other := self._shards.get(key, shard)) != shard:
                by_shard[other].append(key)
        tables = [self._schema.empty_table()]
        for other, moved in by_shard.items():
            tables.append(
                known_rows(self._store, self._asset, other, self._schema, self._id_column, moved, published=True)
            )
            ledger.carry(self._store, self._asset, other, shard, moved)
        return pa.concat_tables(tables)

    @cached_property
    def _shards(self) -> dict[Key, str]:
        """The shard that holds each row, in its table or in a kept version."""
        published = self._store.published(self._asset)
        if not published:
            return {}
        unindexed = published.keys() - set(self._indexed)
        # If a shard's file changed, its table of pages was replaced, which left a version.
        changed = {name.partition("/")[0] for name in self._store.parts(VERSIONS, TABLES.pages.name).names()}
        shards = {}
        for shard in sorted(unindexed | changed):
            for version in _tables(self._store, self._asset, shard, published=True):
                try:
                    rows = _finished_places(self._store, self._asset, shard, version, self._id_column)
                except (DamagedTable, MissingTable) as error:
                    _log.debug("%s", error)
                else:
                    shards.update(dict.fromkeys(rows, shard))
        return shards


def known_rows(
    store: TableStore,
    asset: str,
    shard: str,
    schema: pa.Schema,
    id_column: str,
    keys: Collection[Key],
    published: bool = False,
) -> pa.Table:
    """Return the finished rows of kept versions with these `keys`, once each.

    With `published`, the table itself is searched too. A version without such rows costs only a read of its keys and
    states, and one version at a time is in memory. Versions of another schema are skipped. Raises `StoreError`.
    """
    missing = set(keys)
    tables = [schema.empty_table()]
    for version in _tables(store, asset, shard, published) if missing else ():
        try:
            places = _finished_places(store, asset, shard, version, id_column)
            table = store.read(asset, shard, version=version) if missing & places.keys() else None
        except MissingTable:
            continue
        except DamagedTable as error:
            _log.warning("%s", error)
            continue
        if table is not None and table.schema.equals(schema):
            # The places are found anew, because the run may have replaced another shard's table since the last read.
            rows = {key: at for key, at in _places(table, id_column).items() if key in missing}
            tables.append(table.replace_schema_metadata(None).take(pa.array(list(rows.values()), pa.int64())))
            missing -= rows.keys()
    return pa.concat_tables(tables)


def _tables(store: TableStore, asset: str, shard: str, published: bool) -> Iterator[str | None]:
    """Yield a table's versions, newest first; with `published`, first None for the table."""
    if published:
        yield None
    for version in store.versions(asset, shard):
        yield version.recipe


def _finished_places(store: TableStore, asset: str, shard: str, version: str | None, id_column: str) -> dict[Key, int]:
    """Return the places of a stored table's finished rows. Raises `MissingTable`, `DamagedTable`."""
    return _places(store.read(asset, shard, [id_column, "fingerprint", "state"], version), id_column)


def _places(table: pa.Table, id_column: str) -> dict[Key, int]:
    """Return the places of a table's finished rows, by key."""
    keys = table.select([id_column, "fingerprint", "state"])
    return {
        (row[id_column], row["fingerprint"]): at for at, row in enumerate(keys.to_pylist()) if row["state"] in FINAL
    }
