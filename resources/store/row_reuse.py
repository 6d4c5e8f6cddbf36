"""Rows that other tables hold already: those that an upgrade replaced, and those of shards that were divided."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cached_property

import pyarrow as pa

from resources.errors import DamagedTable, NotMade
from resources.states import FINAL
from resources.store.corpus_tables import TABLES
from resources.store.records import ledger
from resources.store.table_store import TableStore
from resources.store.versions import FOLDER as VERSIONS

_log = logging.getLogger(__name__)
Key = tuple[str, str]
"""Id and fingerprint."""


class MovedRows:
    """Finished rows of a table that lie in other shards than those that want them.

    A file that is divided, or joined with another, takes its pages to other shards. They are looked for in the tables
    of shards that are not `indexed` any more, and of those whose file has changed. `tables` are read once.
    """

    def __init__(
        self, store: TableStore, asset: str, schema: pa.Schema, id_column: str, indexed: Collection[str]
    ) -> None:
        self._store, self._asset, self._schema, self._id_column = store, asset, schema, id_column
        self._indexed = indexed

    def find(self, shard: str, wanted: Collection[Key]) -> pa.Table:
        """Return the rows that are `wanted` in a shard, each at most once, with their entries in the ledger.

        Whoever asks holds the lock of the table. Raises `StoreError`.
        """
        by_shard: dict[str, list[Key]] = defaultdict(list)
        for key in wanted:
            if (other := self._shards.get(key, shard)) != shard:
                by_shard[other].append(key)
        found = [self._schema.empty_table()]
        for other, keys in by_shard.items():
            found.append(
                known_rows(self._store, self._asset, other, self._schema, self._id_column, keys, published=True)
            )
            ledger.carry(self._store, self._asset, other, shard, keys)
        return pa.concat_tables(found)

    @cached_property
    def _shards(self) -> dict[Key, str]:
        """Return the shard that holds each row, in its table or a version of it."""
        published = self._store.published(self._asset)
        if not published:
            return {}
        left = published.keys() - set(self._indexed)
        # A shard whose file changed has a table of pages that was replaced.
        changed = {name.partition("/")[0] for name in self._store.parts(VERSIONS, TABLES.pages.name).names()}
        shards = {}
        for shard in sorted(left | changed):
            for version in _tables(self._store, self._asset, shard, published=True):
                try:
                    rows = _finished(self._store, self._asset, shard, version, self._id_column)
                except (DamagedTable, NotMade) as error:
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
    wanted: Collection[Key],
    published: bool = False,
) -> pa.Table:
    """Return the finished rows of kept versions that are `wanted`, once each; `published` asks the table too.

    Of a version without any only the keys and the state are read; one version at a time is
    in memory. A version of another schema is skipped. Raises `StoreError`.
    """
    missing = set(wanted)
    found = [schema.empty_table()]
    for version in _tables(store, asset, shard, published) if missing else ():
        try:
            held = _finished(store, asset, shard, version, id_column)
            rows = {key: at for key, at in held.items() if key in missing}
            table = store.read(asset, shard, version=version) if rows else None
        except NotMade:
            continue
        except DamagedTable as error:
            _log.warning("%s", error)
            continue
        if table is not None and table.schema.equals(schema):
            found.append(table.replace_schema_metadata(None).take(pa.array(list(rows.values()), pa.int64())))
            missing -= rows.keys()
    return pa.concat_tables(found)


def _tables(store: TableStore, asset: str, shard: str, published: bool) -> Iterator[str | None]:
    """Return the versions of a table, newest first; before them, with `published`, None for the table itself."""
    if published:
        yield None
    for version in store.versions(asset, shard):
        yield version.recipe


def _finished(store: TableStore, asset: str, shard: str, version: str | None, id_column: str) -> dict[Key, int]:
    """Return the finished rows of a table with their places. Raises `NotMade`, `DamagedTable`."""
    keys = store.read(asset, shard, [id_column, "fingerprint", "state"], version)
    return {
        (row[id_column], row["fingerprint"]): at for at, row in enumerate(keys.to_pylist()) if row["state"] in FINAL
    }
