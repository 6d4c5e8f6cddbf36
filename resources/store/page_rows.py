"""Rows of tables in other forms: lineage, figures, and rows of kept versions."""

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resources.errors import DamagedTable
from resources.states import FINAL
from resources.store.table_store import TableStore

MADE_WITH = "made_with"
"""Key of a table's metadata: JSON of the asset's own recipe, `{"version": …, "engines": [Engine.recipe(), …]}`."""

MADE_FROM = "made_from"
"""Key of a table's metadata: JSON of the contents of its parents by their names, and of settings by dotted key."""

LINEAGE = pa.schema(
    [
        ("shard", pa.string()),
        ("page_id", pa.string()),
        ("query_id", pa.string()),
        ("asset", pa.string()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("fingerprint", pa.string()),
        ("recipe", pa.string()),
        ("engine", pa.string()),
        ("model", pa.string()),
        ("revision", pa.string()),
        ("parameters", pa.string()),
        ("versions", pa.string()),
        ("code_version", pa.string()),
        ("run_id", pa.string()),
        ("made_at", pa.timestamp("us", "UTC")),
        ("gpu_seconds", pa.float64()),
    ]
)
"""One row for each page (or query) and asset.

`recipe` is the table's, back to the source; `parameters` (prompts, sampling, thresholds) and
`versions` (weights, engine, libraries) are JSON, `code_version` the versions of the code of table and engine
as JSON. What nobody recorded is null.
"""


@dataclass(frozen=True, slots=True)
class MadeWith:
    """The engine that an asset's rows were made with; an asset of code alone has none of it but `code_version`.

    `versions` is the identity of all behind the rows: weights, engine, packages. `model` and
    `revision` name the model in it; an engine of files or packages alone has none.
    """

    engine: str | None = None
    model: str | None = None
    revision: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    code_version: str | None = None


def is_setting(name: str) -> bool:
    """Whether an entry of a table's `made_from` is a setting, by its dotted key, and neither a table nor the source."""
    return "." in name


def made_with(metadata: Mapping[str, str]) -> MadeWith:
    """Return what a table's metadata in the store says of its making.

    Nothing where it has none.
    """
    own = json.loads(metadata.get(MADE_WITH, "{}"))
    engine = next(iter(own.get("engines", ())), {})
    versions = engine.get("weights", {})
    model, revision = _model(versions)
    beside = {
        name: value for name, value in engine.items() if name not in ("engine", "version", "parameters", "weights")
    }
    settings = {name: value for name, value in json.loads(metadata.get(MADE_FROM, "{}")).items() if is_setting(name)}
    return MadeWith(
        engine=engine.get("engine"),
        model=model,
        revision=revision,
        parameters={**engine.get("parameters", {}), **beside, **own.get("settings", {}), **settings},
        versions=versions,
        code_version=_json({"table": own["version"], **({"engine": engine["version"]} if engine else {})})
        if own
        else None,
    )


def lineage_rows(
    shard: str,
    tables: Mapping[str, pa.Table],
    made: Mapping[str, Mapping[str, str]],
    ledger: Mapping[str, pa.Table],
) -> pa.Table:
    """`LINEAGE` of one shard.

    All three are by asset: its table, the metadata of it, and its rows of the ledger. A table is of pages or, with a
    column `query_id`, of queries; columns besides the id, state, reason and fingerprint are not looked at. The ledger
    may hold other rows, and none for what was made before it was kept.
    """
    rows = [
        row
        for asset, table in tables.items()
        for row in _asset_rows(shard, asset, table, made.get(asset, {}), ledger.get(asset))
    ]
    return pa.Table.from_pylist(rows, LINEAGE)


def _asset_rows(
    shard: str, asset: str, table: pa.Table, metadata: Mapping[str, str], ledger: pa.Table | None
) -> Iterator[dict[str, Any]]:
    id_column = "query_id" if "query_id" in table.column_names else "page_id"
    by = made_with(metadata)
    same = {
        "shard": shard,
        "asset": asset,
        "recipe": metadata.get("recipe"),
        "engine": by.engine,
        "model": by.model,
        "revision": by.revision,
        "parameters": _json(by.parameters),
        "versions": _json(by.versions),
        "code_version": by.code_version,
    }
    runs = made_in(ledger)
    for row in table.select([id_column, "state", "reason", "fingerprint"]).to_pylist():
        yield {**same, **row, **runs.get((row[id_column], row["fingerprint"]), {})}


def made_in(ledger: pa.Table | None) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the run, time and GPU seconds of every row of a ledger by (id, fingerprint); the newest wins."""
    if ledger is None:
        return {}
    entries = ledger.select(["row_id", "fingerprint", "run_id", "made_at", "gpu_seconds"]).to_pylist()
    return {(entry.pop("row_id"), entry.pop("fingerprint")): entry for entry in entries}


def _model(weights: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Name and revision of the weights, as an engine with a server states them or one that loads a Hub repository."""
    if "model" in weights:
        return weights["model"], weights.get("revision")
    return next(((name, revision) for name, revision in weights.items() if "/" in name), (None, None))


def _json(value: Mapping[str, Any]) -> str | None:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if value else None


def one_row_a_figure(table: pa.Table, column: str) -> pa.Table:
    """`page_id` and the fields of the structs in the lists of `column`, in their order."""
    lists = table[column].combine_chunks()
    parents = pc.call_function("list_parent_indices", [lists])
    structs = pc.call_function("list_flatten", [lists])
    kind = structs.type
    fields = [kind.field(at) for at in range(kind.num_fields)]
    values = structs.flatten() if len(structs) else [pa.array([], field.type) for field in fields]
    page_ids = table["page_id"].combine_chunks().take(parents)
    schema = pa.schema([table.schema.field("page_id"), *fields])
    return pa.Table.from_arrays([page_ids, *values], schema=schema)


def with_vector(table: pa.Table) -> pa.Table:
    """`page_id`, `index` and `vector` of the figures of FIGURE_EMBEDDINGS that have one."""
    found = one_row_a_figure(table, "figures").select(["page_id", "index", "vector"])
    return found.filter(found["vector"].is_valid())


def vector_width(schema: pa.Schema) -> int:
    """Numbers of a vector in a table of vectors, of pages or of the figures of pages."""
    if "vector" in schema.names:
        return schema.field("vector").type.list_size
    return schema.field("figures").type.value_type.field("vector").type.list_size


_log = logging.getLogger(__name__)


def known_rows(
    store: TableStore, asset: str, shard: str, schema: pa.Schema, id_column: str, wanted: Collection[tuple[str, str]]
) -> pa.Table:
    """Return the finished rows of kept versions that are `wanted`, (id, fingerprint), once each.

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
    """Return where in a version the `missing` rows are that it holds, finished."""
    keys = store.read(asset, shard, [id_column, "fingerprint", "state"], version)
    return {
        (row[id_column], row["fingerprint"]): at
        for at, row in enumerate(keys.to_pylist())
        if row["state"] in FINAL and (row[id_column], row["fingerprint"]) in missing
    }
