"""Rows derived from stored tables: lineage, figures and vectors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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

`recipe` is the table's recipe, which covers everything back to the source. `parameters` (prompts, sampling,
thresholds), `versions` (weights, engine, libraries) and `code_version` (of table and engine) are JSON. Values that
nobody recorded are null.
"""


@dataclass(frozen=True, slots=True)
class MadeWith:
    """The engine that an asset's rows were made with.

    `versions` identifies everything behind the rows: weights, engine and packages. `model` and `revision` name the
    model among them, if there is one. An asset made by code alone has only `code_version`.
    """

    engine: str | None = None
    model: str | None = None
    revision: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    code_version: str | None = None


def is_setting(name: str) -> bool:
    """Return whether an entry of a table's `made_from` is a setting.

    A setting has a dotted key; the other entries are tables and the source.
    """
    return "." in name


def made_with(metadata: Mapping[str, str]) -> MadeWith:
    """Return the engine named in a table's metadata; all fields are empty without any."""
    own = json.loads(metadata.get(MADE_WITH, "{}"))
    engine = next(iter(own.get("engines", ())), {})
    versions = engine.get("weights", {})
    if "model" in versions:
        model, revision = versions["model"], versions.get("revision")
    else:
        # A model that is named like a repository is listed with its revision.
        model, revision = next(((name, revision) for name, revision in versions.items() if "/" in name), (None, None))
    parameters = dict(engine.get("parameters", {}))
    for name, value in engine.items():
        if name not in ("engine", "version", "parameters", "weights"):
            parameters[name] = value
    parameters |= own.get("settings", {})
    for name, value in json.loads(metadata.get(MADE_FROM, "{}")).items():
        if is_setting(name):
            parameters[name] = value
    code_version = None
    if own:
        code_version = _json({"table": own["version"], **({"engine": engine["version"]} if engine else {})})
    return MadeWith(engine.get("engine"), model, revision, parameters, versions, code_version)


def lineage_rows(
    shard: str,
    tables: Mapping[str, pa.Table],
    metadata_of: Mapping[str, Mapping[str, str]],
    ledger: Mapping[str, pa.Table],
) -> pa.Table:
    """Return the `LINEAGE` rows of one shard.

    The arguments hold, by asset, its table, the table's metadata, and its ledger rows. A table has a row per page or,
    with a column `query_id`, per query; only its id, state, reason and fingerprint are used. The ledger may hold other
    rows too, and lacks those made before it was introduced.
    """
    rows = []
    for asset, table in tables.items():
        metadata = metadata_of.get(asset, {})
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
        # A row that was made twice counts as made last.
        runs: dict[tuple[str, str], dict[str, Any]] = {}
        if (entries := ledger.get(asset)) is not None:
            for entry in entries.select(["row_id", "fingerprint", "run_id", "made_at", "gpu_seconds"]).to_pylist():
                runs[entry.pop("row_id"), entry.pop("fingerprint")] = entry
        id_column = "query_id" if "query_id" in table.column_names else "page_id"
        for row in table.select([id_column, "state", "reason", "fingerprint"]).to_pylist():
            rows.append({**same, **row, **runs.get((row[id_column], row["fingerprint"]), {})})
    return pa.Table.from_pylist(rows, LINEAGE)


def _json(value: Mapping[str, Any]) -> str | None:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if value else None


def one_row_a_part(table: pa.Table, column: str) -> pa.Table:
    """Return `page_id` and the struct fields of each list item in `column`, in order."""
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
    """Return `page_id`, place and `vector` of each figure or passage that has a vector.

    `table` has the column `figures` or `passages`. The place of a figure is its `index`, that of a passage its `start`
    and `end`.
    """
    column, place = ("figures", ["index"]) if "figures" in table.column_names else ("passages", ["start", "end"])
    parts = one_row_a_part(table, column).select(["page_id", *place, "vector"])
    return parts.filter(parts["vector"].is_valid())


def region_ids(figures: pa.Table) -> list[str]:
    """Return the region ids of figures, made of `page_id` and `index`."""
    pairs = zip(figures["page_id"].to_pylist(), figures["index"].to_pylist(), strict=True)
    return [f"{page_id}_{index}" for page_id, index in pairs]


def vector_matrix(vectors: pa.ChunkedArray) -> np.ndarray:
    """Return a column of vectors without nulls as an array of shape (rows, width)."""
    return vectors.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, vectors.type.list_size)


def vector_width(schema: pa.Schema) -> int:
    """Return the length of the vectors of pages, figures or passages."""
    if "vector" in schema.names:
        return schema.field("vector").type.list_size
    parts = schema.field("figures" if "figures" in schema.names else "passages")
    return parts.type.value_type.field("vector").type.list_size
