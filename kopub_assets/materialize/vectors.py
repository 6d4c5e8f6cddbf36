"""What the three embedding assets share: their check, their rows, their figures."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.checks import Check, unsound_vectors
from kopub_assets.materialize.row_table import RowTable
from kopub_assets.materialize.rows import MadeShard, Row, RowSpec
from resources.embedding.base import Embedder
from resources.embedding.embeddings import Embedding

VECTORS_ARE_SOUND = Check(
    "vectors_are_sound", "Every row with something to embed has a vector of the right width and norm 1, without NaN."
)


class VectorTable(RowTable):
    """A `RowTable` whose rows are vectors."""

    group: ClassVar[str] = "search"
    engine_section: ClassVar[str | None] = "embedding"
    engine: Embedder
    checks: ClassVar[tuple[Check, ...]] = (*RowTable.checks, VECTORS_ARE_SOUND)

    def __init__(self, resources: Mapping[str, Any]) -> None:
        super().__init__(resources)
        self._embedded: set[str] = set()

    @property
    def schema(self) -> pa.Schema:
        assert callable(self.table.schema)
        return self.table.schema(self.engine.dim)

    @abstractmethod
    def embed(self, shard: str, todo: Sequence[RowSpec]) -> Iterable[Embedding]:
        """One embedding for each row of `todo`, in any order. Raises `EngineError`, `SourceError`."""

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[str, Row]]:
        self._embedded.add(shard)
        for made in self.embed(shard, todo):
            vector = None if made.vector is None else made.vector.astype(np.float16)
            yield made.id, {"vector": vector, "state": made.state, "reason": made.reason}

    def problems(self, made: MadeShard) -> Mapping[str, str | None]:
        return {VECTORS_ARE_SOUND.name: unsound_vectors(made.table, self.engine.dim)}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        vectors = table["vector"]
        return {
            "dimensions": table.schema.field("vector").type.list_size,
            "vectors": len(vectors) - vectors.null_count,
            **(self.engine.report() if shard in self._embedded else {}),
        }
