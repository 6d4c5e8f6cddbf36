"""What the three embedding assets share: their check, their rows, their figures."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.checks import Check, unsound_vectors
from kopub_assets.materialize.engine_table import EngineTable
from kopub_assets.materialize.rows import MadeShard, Row, RowSpec
from resources.embedding.base import Embedder
from resources.embedding.embeddings import Embedding

VECTORS_ARE_SOUND = Check(
    "vectors_are_sound", "Every row with something to embed has a vector of the right width and norm 1, without NaN."
)


class VectorTable(EngineTable):
    """An `EngineTable` whose rows are vectors."""

    engine_section: ClassVar[str | None] = "embedding"
    engine: Embedder
    checks: ClassVar[tuple[Check, ...]] = (*EngineTable.checks, VECTORS_ARE_SOUND)

    @property
    def schema(self) -> pa.Schema:
        assert callable(self.table.schema)
        return self.table.schema(self.engine.dim)

    def row_id(self, result: Embedding) -> str:
        return result.id

    def columns(self, row: RowSpec, result: Embedding) -> Row:
        vector = None if result.vector is None else result.vector.astype(np.float16)
        return {"vector": vector, "state": result.state, "reason": result.reason}

    def problems(self, made: MadeShard) -> Mapping[str, str | None]:
        return {VECTORS_ARE_SOUND.name: unsound_vectors(made.table, self.engine.dim)}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        vectors = table["vector"]
        return {
            "dimensions": table.schema.field("vector").type.list_size,
            "vectors": len(vectors) - vectors.null_count,
        }
