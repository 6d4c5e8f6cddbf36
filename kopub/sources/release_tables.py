"""A release as the tables that a search reads: those of a store, made of the files of the release."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from kopub.sources.release import PAGES, ReleaseSource
from resources.errors import StoreError
from resources.states import State
from resources.store.corpus_tables import TABLES
from resources.store.page_rows import MADE_WITH
from resources.store.schemas import OCR_RESULTS, STATE

_CONFIGS = {
    TABLES.pages.name: PAGES,
    TABLES.readings.name: "regions",
    TABLES.texts.name: PAGES,
    TABLES.text_vectors.name: "text_embeddings",
    TABLES.image_vectors.name: "image_embeddings",
    TABLES.query_vectors.name: "queries",
}
"""The config that holds what a search reads of a table."""
_RECIPE = frozenset({"engine", "version", "parameters", "weights"})
_UNSAID = {"finish_reason": "stop", "attempts": 1, "seconds": 0.0}
"""What a release does not say of a reading."""
_STATE = next(field for field in STATE if field.name == "state")
_READINGS = pa.schema([OCR_RESULTS.field("page_id"), OCR_RESULTS.field("regions")])


class ReleaseTables:
    """The tables of `release`, as far as a search reads them; `recipe` is that of the engine that embeds questions."""

    def __init__(self, release: ReleaseSource, recipe: Iterable[str]) -> None:
        self._release = release
        self._beside = frozenset(recipe) - _RECIPE

    def has(self, asset: str, shard: str) -> bool:
        return shard in self.published(asset)

    def published(self, asset: str) -> Mapping[str, str]:
        """The shards of a table, each with what tells its file from another."""
        if asset not in _CONFIGS:
            return {}
        stamps = {shard: self._release.stamp(_CONFIGS[asset], shard) for shard in self._release.shards}
        return {shard: stamp for shard, stamp in stamps.items() if stamp is not None}

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        """`columns` of a table. Raises `StoreError`."""
        if asset not in _CONFIGS or columns is None:
            raise StoreError(f"a release does not hold all of {asset}")
        if asset == TABLES.readings.name:
            return self._readings(shard).select(list(columns))
        rows = self._release.rows(_CONFIGS[asset], shard)
        table = rows.read([name for name in rows.columns if name in columns and name != _STATE.name])
        if "page_idx" in columns:
            table = table.append_column("page_idx", pa.array(range(table.num_rows), pa.int32()))
        if _STATE.name in columns:
            table = table.append_column(_STATE, pa.array(self._states(asset, shard, table.num_rows), _STATE.type))
        return table.select(list(columns))

    def metadata(self, asset: str, shard: str) -> Mapping[str, str]:
        """The engines that a table was made with, as far as the lineage tells them."""
        columns = ["asset", "engine", "parameters", "versions", "code_version"]
        lineage = self._release.rows("lineage", shard).read(columns)
        row = next((row for row in lineage.to_pylist() if row["asset"] == asset and row["engine"]), None)
        return {MADE_WITH: json.dumps({"engines": [self._engine(row)] if row else []})}

    def _engine(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe of an engine; a lineage has what stands beside its parameters among these."""
        parameters: dict[str, Any] = json.loads(row["parameters"] or "{}")
        beside = {name: parameters.pop(name) for name in self._beside & parameters.keys()}
        version = json.loads(row["code_version"] or "{}").get("engine")
        own = {"engine": row["engine"], "version": version, "parameters": parameters}
        return {**own, "weights": json.loads(row["versions"] or "{}"), **beside}

    def _states(self, asset: str, shard: str, count: int) -> list[str]:
        if _CONFIGS[asset] != PAGES:
            # The other files hold what was made alone.
            return [State.OK] * count
        return [states[asset] for states in self._release.rows(PAGES, shard).read(["states"])["states"].to_pylist()]

    def _readings(self, shard: str) -> pa.Table:
        columns = ["page_id", "index", "label", "native_label", "bbox_2d", "content", "state", "reason"]
        read = self._release.rows("regions", shard).read(columns).to_pylist()
        rows = [
            {"page_id": page_id, "regions": [{**_UNSAID, **row} for row in of_page if row["content"] is not None]}
            for page_id, of_page in groupby(read, lambda row: row["page_id"])
        ]
        return pa.Table.from_pylist(rows, _READINGS)
