"""A vector for every figure of a page, from its picture and its caption."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kopub_assets.figures.figure_table import FigureTable
from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.checks import Check, unsound_figure_vectors
from kopub_assets.materialize.engine_table import EngineTable
from kopub_assets.materialize.rows import MadeShard, Row
from resources.code_version import CodeVersion
from resources.embedding.base import Embedder
from resources.embedding.embeddings import Embedding
from resources.figures.figure import FigurePicture
from resources.store.corpus_tables import FIGURE_VECTORS, Table

FIGURE_VECTORS_ARE_SOUND = Check(
    "figure_vectors_are_sound", "Every figure that is ok has a vector of the right width and norm 1, without NaN."
)


class FigureEmbeddings(FigureTable):
    """The vectors of the images and charts of every page: float16 of L2 norm 1, compared with query vectors.

    Made where the profile sets `figures.vectors`: it costs up to half of what a page's picture does for each figure.
    """

    table: ClassVar[Table] = FIGURE_VECTORS
    code_version: ClassVar[CodeVersion] = CodeVersion("figure_embeddings", {1: "the first release"})
    group: ClassVar[str] = "search"
    engine_section: ClassVar[str | None] = "embedding"
    engine: Embedder
    checks: ClassVar[tuple[Check, ...]] = (*EngineTable.checks, FIGURE_VECTORS_ARE_SOUND)
    listed: ClassVar[str] = "figures"

    @classmethod
    def off(cls, resources: Mapping[str, Any]) -> str | None:
        return None if resources["figures"].vectors else "figures.vectors is false"

    @property
    def schema(self) -> pa.Schema:
        assert callable(self.table.schema)
        return self.table.schema(self.engine.dim)

    def typical_seconds(self, megabytes: float) -> float:
        return self.engine.typical_image_seconds

    def of_figures(self, pictures: Iterator[FigurePicture]) -> Iterator[Embedding]:
        return self.engine.embed_figures(pictures, self.figures_wanted.most_pixels)

    def made_of(self, result: Embedding) -> Row:
        return {"vector": None if result.vector is None else result.vector.astype(np.float16)}

    def problems(self, made: MadeShard) -> Mapping[str, str | None]:
        return {FIGURE_VECTORS_ARE_SOUND.name: unsound_figure_vectors(made.table, self.engine.dim)}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        return {"dimensions": self.engine.dim, **self.describe_figures(table["figures"].to_pylist())}
