"""The lineage of a page or vector: its rows, and how they were made."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kopub.diff.compare import VECTORS, ShardDiff, compare
from kopub.diff.html import Upgrade
from kopub.errors import KopubError, SourceError, StoreError, did_you_mean
from kopub.pages.corpus import Corpus
from kopub.pages.page_reader import origins
from kopub.parallel import bounded_map
from kopub.store import ledger, run_records
from kopub.store.corpus_tables import (
    CHUNK_VECTORS,
    DOCUMENT_CHUNKS,
    FIGURE_TABLES,
    FIGURE_VECTORS,
    PASSAGE_VECTORS,
    TABLES,
)
from kopub.store.rows import MADE_FROM, MADE_WITH, lineage_rows
from kopub.store.table_store import ShardStore
from kopub.tables.graph import GRAPH
from kopub.tables.hf_release import HfRelease
from kopub.tables.provenance import footer_of
from kopub.tables.search_sink import SearchSink
from kopub.tables.staleness import differences, settings_changed
from kopub.texts.regions import join_regions

Versions = dict[str, str | None]
"""A version for each table of a shard: the recipe of a kept version, or None for the present table."""
Tables = dict[str, pa.Table]

PAGE, QUERY = "page", "query"
IDS = {kind: (table.name, table.key) for kind, table in ((PAGE, TABLES.pages), (QUERY, TABLES.query_vectors))}
"""The table and column that list all ids of a kind."""

_OPTIONAL = {table.name for table in (*FIGURE_TABLES, PASSAGE_VECTORS, DOCUMENT_CHUNKS, CHUNK_VECTORS)}
_READERS = 8
"""Tables read at once: on a disk one would do, but object storage takes 50 ms to answer each."""


def find(store: ShardStore, row_id: str, shards: Sequence[str]) -> dict[str, str]:
    """Return the shards of a page or query, by kind.

    Both kinds are present if a page and a query have the same id. Raises `KopubError`.
    """
    places: dict[str, str] = {}
    for kind in IDS:
        for shard, ids in _ids(store, shards, kind):
            if pc.index(ids, row_id).as_py() >= 0:
                places[kind] = shard
                break
    if not places:
        every: list[str] = []
        for kind in IDS:
            for _, ids in _ids(store, shards, kind):
                every += ids.to_pylist()
        hint = did_you_mean(row_id, sorted(every))
        form = "there is no page or query {row!r}{guess}"
        raise KopubError(form, row_id, hint or ": see `kopub status` for what was made")
    return places


def chain(store: ShardStore, corpus: Corpus, kind: str, row_id: str, shard: str, asset: str | None) -> dict[str, Any]:
    """Return all that is known of a page or query, as JSON values.

    With an `asset`, that is the row of its table and exactly what it was made from, even if those tables have been
    replaced since; without, the rows of all tables as they are now.
    """
    names = [name for name in GRAPH.names if holds(store, name, shard, kind)]
    versions: Versions = dict.fromkeys(names) if asset is None else ancestry(store, asset, shard)
    tables: Tables = {}
    for name, version in versions.items():
        columns = None
        if name == TABLES.readings.name:
            # Pictures are most of this table, and none is shown. An older release may have made it without a column.
            columns = [column for column in store.columns(name, shard, version) if column != "crop_images"]
        table = store.read(name, shard, columns, version)
        row = table.filter(pc.field("query_id" if "query_id" in table.column_names else "page_id") == row_id)
        if row.num_rows:
            tables[name] = row
    metadata = {name: store.metadata(name, shard, versions[name]) for name in tables}
    runs = {name: ledger.read(store, name, shard) for name in tables}
    steps = lineage_rows(shard, tables, metadata, runs).to_pylist()
    for step in steps:
        _complete(step, store, shard, versions, tables[step["asset"]])
        tested = run_records.of_table(corpus.folder, metadata[step["asset"]].get(MADE_WITH, ""))
        step["self_test"] = tested and str(tested)
    raw, layout, readings = None, None, None
    if TABLES.pages.name in tables:
        (raw,) = tables[TABLES.pages.name].to_pylist()
    if TABLES.regions.name in tables:
        layout = tables[TABLES.regions.name]["regions"][0].as_py()
    if TABLES.readings.name in tables:
        readings = tables[TABLES.readings.name]["regions"][0].as_py()
    try:
        regions = join_regions(row_id, layout, readings)
    except StoreError:
        # The readings belong to an older layout; their step is shown as stale.
        regions = join_regions(row_id, layout, None)
    names = {"box": "bbox", "box_2d": "bbox_2d"}
    return {
        "id": row_id,
        "kind": kind,
        "shard": shard,
        "source": None if raw is None else _source(corpus, shard, raw),
        "regions": [{names.get(name, name): value for name, value in asdict(region).items()} for region in regions],
        "steps": steps,
        "missing": _missing(store, shard, asset, versions),
    }


def holds(store: ShardStore, asset: str, shard: str, kind: str) -> bool:
    """Return whether an asset has a row for each page, or each query."""
    return store.has(asset, shard) and IDS[kind][1] in store.columns(asset, shard)


def _ids(store: ShardStore, shards: Sequence[str], kind: str) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield each shard that has ids of a kind, with the ids."""
    asset, column = IDS[kind]
    published = store.published(asset)

    def read(shard: str) -> tuple[str, pa.ChunkedArray]:
        return shard, store.read(asset, shard, [column])[column]

    return bounded_map(read, [shard for shard in shards if shard in published], _READERS)


def _complete(step: dict[str, Any], store: ShardStore, shard: str, versions: Versions, row: pa.Table) -> None:
    """Add the facts from a step's row and table to it."""
    asset = step["asset"]
    step["parameters"], step["versions"] = (json.loads(step[name] or "{}") for name in ("parameters", "versions"))
    step["made_at"] = step["made_at"] and step["made_at"].isoformat()
    step["replaced_since"] = versions[asset] is not None
    step["stale"] = replaced_parents(store, asset, shard, versions[asset])
    step["vector"] = None
    if "vector" in row.column_names and (vector := row["vector"][0].as_py()) is not None:
        values = np.array(vector, np.float32)
        step["vector"] = {
            "dimensions": len(values),
            "norm": round(float(np.linalg.norm(values)), 4),
            "sha256": hashlib.sha256(values.astype("<f2").tobytes()).hexdigest(),
        }
    if "query" in row.column_names:
        step["query"] = row["query"][0].as_py()


def _source(corpus: Corpus, shard: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page's row of the source, with the present hash of its bytes."""
    columns = ("doc_id", "page_no", "format", "width", "height", "n_bytes", "license", "sha256")
    now, problem, origin = None, None, None
    file, manifest = raw["source"], corpus.manifest
    try:
        file = manifest.place(manifest.shard(shard).file)
        origin = asdict(origins(manifest, shard)(raw["page_idx"]))
        # The place of the file, as a person would write it.
        place = manifest.location_of(manifest.source(origin["source"]))
        origin["path"] = place if place.rpartition("/")[2] == origin["file"] else f"{place}/{origin['file']}"
        with corpus.reader(shard) as source:
            now = source.sha256(raw["page_idx"])
    except (SourceError, StoreError) as error:
        problem = str(error)
    return {
        "file": file,
        "row": raw["page_idx"],
        "origin": origin,
        **{name: raw[name] for name in columns},
        "upright": raw.get("upright"),
        "sha256_now": now,
        "unchanged": now == raw["sha256"],
        "problem": problem,
    }


def _missing(store: ShardStore, shard: str, asset: str | None, versions: Versions) -> list[str]:
    """Return the tables that a table was made from and that are no longer kept."""
    if asset is None:
        return []
    ancestors = {asset}
    for name in reversed(GRAPH.names):
        if name in ancestors and name in versions:
            ancestors.update(contents_of_parents(store, name, shard, versions[name]))
        elif name in ancestors:
            # It is not kept, and must have had these.
            ancestors.update(parent for parent in GRAPH.parents(name) if parent not in _OPTIONAL)
    return [name for name in GRAPH.names if name in ancestors and name not in versions]


CURRENT, PREVIOUS = "current", "previous"
COMPARED = tuple(asset for asset in GRAPH.names if asset not in (HfRelease.table.name, SearchSink.table.name))
"""The assets that are compared: a release and a sink have a history of their own."""


def ancestry(store: ShardStore, asset: str, shard: str, version: str | None = None) -> Versions:
    """Return a table and everything it was made from, back to the source.

    Tables that are no longer kept are left out.
    """
    versions: Versions = {asset: version}
    for parent, content in contents_of_parents(store, asset, shard, version).items():
        for candidate in _versions(store, parent, shard):
            if footer_of(store, parent, shard, candidate).content == content:
                # A table's own record of a parent takes precedence over that of another parent.
                versions = {**ancestry(store, parent, shard, candidate), **versions, parent: candidate}
                break
    return {name: versions[name] for name in GRAPH.names if name in versions}


def replaced_parents(store: ShardStore, asset: str, shard: str, version: str | None = None) -> list[str]:
    """Return the parents whose content has changed since the table was made."""
    replaced: list[str] = []
    for parent, content in contents_of_parents(store, asset, shard, version).items():
        if not store.has(parent, shard) or footer_of(store, parent, shard).content != content:
            replaced.append(parent)
    return replaced


def edition(store: ShardStore, shard: str, name: str) -> Versions:
    """Return the versions of a shard's tables that make up an edition.

    `name` is `current`, `previous`, or the recipe of a table, to which the others then belong; a recipe may be cut
    short. `previous` is every table as it was before its last replacement, with what it was made from. Raises
    `StoreError` if there is no such version, or more than one.
    """
    assets = [asset for asset in COMPARED if store.has(asset, shard)]
    if not assets:
        raise StoreError("{shard} has not been made yet: `kopub run` makes it", shard)
    if name == CURRENT:
        return dict.fromkeys(assets)
    if name == PREVIOUS:
        versions: Versions = {}
        for asset in reversed(assets):
            if asset not in versions:
                older = store.versions(asset, shard)
                if replaced_parents(store, asset, shard):
                    # An upgrade is under way, and this table is still the one from before.
                    versions = {**ancestry(store, asset, shard), **versions}
                elif older:
                    versions = {**ancestry(store, asset, shard, older[0].recipe), **versions}
                else:
                    versions[asset] = None
        if not any(versions.values()):
            raise StoreError("{shard} has no older version: nothing was replaced, or store.keep_versions is 0", shard)
        return versions
    recipes: dict[tuple[str, str | None], str] = {}
    for asset in assets:
        for version in _versions(store, asset, shard):
            recipes[asset, version] = version or store.metadata(asset, shard).get("recipe", "")
    matches = [table for table, recipe in recipes.items() if recipe.startswith(name)]
    if len(matches) != 1 or not name:
        choice = ", ".join(f"{version} ({asset})" for asset, version in recipes if version) or "none"
        form = (
            "{shard} has several versions {name!r}: say current, previous or one that is kept: {choice}"
            if matches
            else "{shard} has no version {name!r}: say current, previous or one that is kept: {choice}"
        )
        raise StoreError(form, shard, name, choice)
    return _belonging(store, shard, assets, *matches[0])


def _belonging(store: ShardStore, shard: str, assets: list[str], asset: str, version: str | None) -> Versions:
    """Return a table with its ancestors and descendants, and the others as they are now."""
    versions = ancestry(store, asset, shard, version)
    contents = {name: footer_of(store, name, shard, recipe).content for name, recipe in versions.items()}
    for name in assets:
        if name not in versions:
            for candidate in _versions(store, name, shard):
                of = contents_of_parents(store, name, shard, candidate)
                if all(of[parent] == contents[parent] for parent in of if parent in contents):
                    versions[name] = candidate
                    contents[name] = footer_of(store, name, shard, candidate).content
                    break
    return versions


def _versions(store: ShardStore, asset: str, shard: str) -> Iterator[str | None]:
    """Yield the present version of a table, then the kept ones, newest first."""
    if store.has(asset, shard):
        yield None
        yield from (version.recipe for version in store.versions(asset, shard))


def contents_of_parents(store: ShardStore, asset: str, shard: str, version: str | None) -> Mapping[str, str]:
    """Return the content of each parent that a table was made from. Raises `StoreError`."""
    made_from = footer_of(store, asset, shard, version).made_from
    return {parent: made_from[parent] for parent in GRAPH.parents(asset) if parent in made_from}


_COMPARED_COLUMNS: dict[str, Sequence[str]] = {
    TABLES.pages.name: ["page_id", "page_idx", "sha256", "state", "width", "height"],
    TABLES.regions.name: ["page_id", "regions", "state"],
    TABLES.readings.name: ["page_id", "regions", "state"],
    TABLES.texts.name: ["page_id", "text", "state"],
    FIGURE_VECTORS.name: ["page_id", "figures", "state"],
    PASSAGE_VECTORS.name: ["page_id", "passages", "state"],
    TABLES.image_vectors.name: ["page_id", "vector", "state"],
    TABLES.text_vectors.name: ["page_id", "vector", "state"],
    TABLES.query_vectors.name: ["query_id", "vector", "state"],
}


def compared_tables(
    store: ShardStore, shard: str, old: Versions, new: Versions, page_id: str | None = None
) -> tuple[Tables, Tables]:
    """Return the rows to compare of two versions of a shard, by asset.

    With `page_id`, only the rows of that page. Tables of vectors that are the same in both are left out. Raises
    `StoreError`.
    """
    left_out = set(VECTORS)
    if page_id is None:
        left_out = {asset for asset in VECTORS if old.get(asset) == new.get(asset)}
    before: Tables = {}
    after: Tables = {}
    for tables, versions in ((before, old), (after, new)):
        for asset, version in versions.items():
            if asset in _COMPARED_COLUMNS and asset not in left_out:
                columns = _COMPARED_COLUMNS[asset]
                # A table from before pages were set upright lacks the column that says so.
                if asset == TABLES.pages.name and "upright" in store.columns(asset, shard, version):
                    columns = [*columns, "upright"]
                table = store.read(asset, shard, columns, version)
                tables[asset] = table if page_id is None else table.filter(pc.field("page_id") == page_id)
    return before, after


def compare_versions(
    store: ShardStore, shard: str, old: Versions, new: Versions, page_id: str | None = None
) -> ShardDiff:
    """Compare two versions of a shard or of one of its pages. Raises `StoreError`."""
    return compare(*compared_tables(store, shard, old, new, page_id))


def upgrades_between(store: ShardStore, shard: str, old: Versions, new: Versions) -> list[Upgrade]:
    """Return the tables that differ between two versions, with their changed settings."""
    upgrades = []
    for asset in old:
        if asset not in new or old[asset] == new[asset]:
            continue
        before, after = store.metadata(asset, shard, old[asset]), store.metadata(asset, shard, new[asset])
        section = GRAPH.by_name[asset].engine_section or asset
        lines = [*map(str, differences(before[MADE_WITH], after[MADE_WITH], asset, section))]
        lines += settings_changed(json.loads(before[MADE_FROM]), json.loads(after[MADE_FROM]))
        upgrades.append(Upgrade(asset, before["recipe"], after["recipe"], tuple(lines)))
    return upgrades
