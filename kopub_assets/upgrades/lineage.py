"""How a page or a vector came to be: its row in every table, and what made it."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kopub_assets.graph import GRAPH
from kopub_assets.upgrades.table_versions import Versions, ancestry, contents_of_parents, replaced_parents
from resources.errors import KopubError, SourceError, StoreError, did_you_mean
from resources.pages.corpus import Corpus
from resources.pages.manifest import Manifest
from resources.pages.origins import origins
from resources.parallel import bounded_map
from resources.recognition.read_regions import read_regions
from resources.store.corpus_tables import FIGURE_TABLES, TABLES
from resources.store.page_rows import MADE_WITH, lineage_rows
from resources.store.records import ledger, self_tests
from resources.store.schemas import OCR_RESULTS
from resources.store.shard_store import ShardStore

PAGE, QUERY = "page", "query"
IDS = {kind: (table.name, table.key) for kind, table in ((PAGE, TABLES.pages), (QUERY, TABLES.query_vectors))}
"""Where every id of a kind is listed."""

_COLUMNS = {TABLES.readings.name: [name for name in OCR_RESULTS.names if name != "crop_images"]}
"""Of tables that hold more than a person reads."""
_OPTIONAL = {table.name for table in FIGURE_TABLES}
_READERS = 8
"""Tables looked into at once: on a disk one would do, object storage takes 50 ms to answer each."""


def find(store: ShardStore, row_id: str, shards: Sequence[str]) -> dict[str, str]:
    """The shard of a page or query by its kind: both, when a page and a query have one id. Raises `KopubError`."""
    places = {kind: shard for kind in IDS if (shard := _shard_of(store, row_id, shards, kind))}
    if not places:
        hint = did_you_mean(row_id, sorted(known for kind in IDS for known in _ids(store, shards, kind)))
        raise KopubError(f"there is no page or query {row_id!r}{hint or ': see `kopub status` for what was made'}")
    return places


def chain(store: ShardStore, corpus: Corpus, kind: str, row_id: str, shard: str, asset: str | None) -> dict[str, Any]:
    """Everything that is known of how a page or query came to be, as JSON values.

    With an `asset`, the row of that table and what exactly it was made from, also where those tables
    have been replaced since; without, the rows of all tables as they are now.
    """
    shown = [name for name in GRAPH.names if holds(store, name, shard, kind)]
    versions: Versions = dict.fromkeys(shown) if asset is None else ancestry(store, asset, shard)
    rows = {name: _row(store, name, shard, row_id, version) for name, version in versions.items()}
    tables = {name: table for name, table in rows.items() if table.num_rows}
    metadata = {name: store.metadata(name, shard, versions[name]) for name in tables}
    runs = {name: ledger.read(store, name, shard) for name in tables}
    steps = lineage_rows(shard, tables, metadata, runs).to_pylist()
    for step in steps:
        _complete(step, store, shard, versions, tables[step["asset"]])
        tested = self_tests.of_table(corpus.folder, metadata[step["asset"]].get(MADE_WITH, ""))
        step["self_test"] = tested and str(tested)
    raw = tables[TABLES.pages.name].to_pylist()[0] if TABLES.pages.name in tables else None
    return {
        "id": row_id,
        "kind": kind,
        "shard": shard,
        "source": None if raw is None else _source(corpus, shard, raw),
        "regions": _regions(row_id, tables),
        "steps": steps,
        "missing": _missing(store, shard, asset, versions),
    }


def holds(store: ShardStore, asset: str, shard: str, kind: str) -> bool:
    """Whether an asset has been made and has a row for each page, or each query."""
    return store.has(asset, shard) and IDS[kind][1] in store.columns(asset, shard)


def _shard_of(store: ShardStore, row_id: str, shards: Sequence[str], kind: str) -> str | None:
    asset, column = IDS[kind]

    def look(shard: str) -> tuple[str, bool]:
        return shard, pc.index(store.read(asset, shard, [column])[column], row_id).as_py() >= 0

    return next((shard for shard, found in bounded_map(look, _made(store, asset, shards), _READERS) if found), None)


def _ids(store: ShardStore, shards: Sequence[str], kind: str) -> list[str]:
    asset, column = IDS[kind]

    def read(shard: str) -> list[str]:
        return store.read(asset, shard, [column])[column].to_pylist()

    return [row_id for ids in bounded_map(read, _made(store, asset, shards), _READERS) for row_id in ids]


def _made(store: ShardStore, asset: str, shards: Sequence[str]) -> list[str]:
    made = store.published(asset)
    return [shard for shard in shards if shard in made]


def _row(store: ShardStore, asset: str, shard: str, row_id: str, version: str | None) -> pa.Table:
    table = store.read(asset, shard, _COLUMNS.get(asset), version)
    return table.filter(pc.field("query_id" if "query_id" in table.column_names else "page_id") == row_id)


def _complete(step: dict[str, Any], store: ShardStore, shard: str, versions: Versions, row: pa.Table) -> None:
    """Add to a step what its one row and its table say."""
    asset = step["asset"]
    step["parameters"], step["versions"] = (json.loads(step[name] or "{}") for name in ("parameters", "versions"))
    step["made_at"] = step["made_at"] and step["made_at"].isoformat()
    step["replaced_since"] = versions[asset] is not None
    step["stale"] = replaced_parents(store, asset, shard, versions[asset])
    step["vector"] = _vector(row) if "vector" in row.column_names else None
    if "query" in row.column_names:
        step["query"] = row["query"][0].as_py()


def _vector(row: pa.Table) -> dict[str, Any] | None:
    vector = row["vector"][0].as_py()
    if vector is None:
        return None
    values = np.array(vector, np.float32)
    return {
        "dimensions": len(values),
        "norm": round(float(np.linalg.norm(values)), 4),
        "sha256": hashlib.sha256(values.astype("<f2").tobytes()).hexdigest(),
    }


def _source(corpus: Corpus, shard: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The page's row of the source, with the hash of the bytes that are there now."""
    named = ("doc_id", "page_no", "format", "width", "height", "n_bytes", "license", "sha256")
    now, problem, origin = None, None, None
    file, manifest = raw["source"], corpus.manifest
    try:
        file = manifest.place(manifest.shard(shard).file)
        origin = asdict(origins(manifest, shard)(raw["page_idx"]))
        origin["path"] = _path(manifest, origin["source"], origin["file"])
        with corpus.reader(shard) as source:
            now = source.sha256(raw["page_idx"])
    except SourceError as error:
        problem = str(error)
    return {
        "file": file,
        "row": raw["page_idx"],
        "origin": origin,
        **{name: raw[name] for name in named},
        "upright": raw.get("upright"),
        "sha256_now": now,
        "unchanged": now == raw["sha256"],
        "problem": problem,
    }


def _path(manifest: Manifest, source: str, file: str) -> str:
    """Where the file of a source lies, for a person."""
    place = manifest.location_of(manifest.source(source))
    return place if place.rpartition("/")[2] == file else f"{place}/{file}"


def _regions(page_id: str, tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """The page's regions in reading order, each with what was read from it."""
    layout, readings = (
        next(iter(tables[name]["regions"].to_pylist()), None) if name in tables else None
        for name in (TABLES.regions.name, TABLES.readings.name)
    )
    try:
        regions = read_regions(page_id, layout, readings)
    except StoreError:
        # The readings are of an older layout, which their step says: it is stale.
        regions = read_regions(page_id, layout, None)
    return [asdict(region) for region in regions]


def _missing(store: ShardStore, shard: str, asset: str | None, versions: Versions) -> list[str]:
    """What a table was made from, back to the source, that is not kept any more."""
    if asset is None:
        return []
    needed = {asset}
    for name in reversed(GRAPH.names):
        if name in needed:
            needed.update(_read_by(store, shard, name, versions))
    return [name for name in GRAPH.names if name in needed and name not in versions]


def _read_by(store: ShardStore, shard: str, asset: str, versions: Versions) -> Iterator[str]:
    """The parents that a table was made from; of one that is not kept, those that it must have had."""
    if asset in versions:
        yield from contents_of_parents(store, asset, shard, versions[asset])
    else:
        yield from (parent for parent in GRAPH.parents(asset) if parent not in _OPTIONAL)
