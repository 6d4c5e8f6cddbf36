"""A vector for every page, from its picture."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from kopub_assets.materialize.rows import RowSpec, page_rows, picture_made_from
from kopub_assets.materialize.vectors import VectorTable
from kopub_assets.raw_pages import RawPages
from resources.code_version import CodeVersion
from resources.embedding.embeddings import Embedding
from resources.pages.page import Page
from resources.store.corpus_tables import TABLES, Table


class CorpusImageEmbeddings(VectorTable):
    """The vector of every page image: float16 of L2 norm 1, compared by dot product."""

    table: ClassVar[Table] = TABLES.image_vectors
    kinds: ClassVar[frozenset[str]] = frozenset({"image"})
    code_version: ClassVar[CodeVersion] = CodeVersion("corpus_image_embeddings", {1: "the first release"})
    parents = (RawPages,)

    def typical_seconds(self, megabytes: float) -> float:
        return self.engine.typical_image_seconds

    def rows(self, shard: str) -> Iterator[RowSpec]:
        for page in page_rows(self.store, RawPages.table, shard):
            yield RowSpec.after(page, [self.own_recipe, *picture_made_from(page)], {"page_id": page["page_id"]}, page)

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[Page]:
        with self.corpus.reader(shard) as source:
            for row in todo:
                page = row.given
                yield source.page(row.id, page["page_idx"], page["sha256"], page["upright"])

    def results(self, inputs: Iterator[Page]) -> Iterator[Embedding]:
        return self.engine.embed_images(inputs)
