"""A vector for every page, from its text."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from kopub_assets.materialize.rows import RowSpec
from kopub_assets.materialize.vectors import VectorTable
from kopub_assets.parsed_texts import ParsedTexts
from resources.code_version import CodeVersion
from resources.embedding.embeddings import Embedding
from resources.store.corpus_tables import TABLES
from resources.store.table import Table


class CorpusTextEmbeddings(VectorTable):
    """The vector of every page's text: float16 of L2 norm 1, compared with query vectors by dot product."""

    table: ClassVar[Table] = TABLES.text_vectors
    code_version: ClassVar[CodeVersion] = CodeVersion("corpus_text_embeddings", {1: "the first release"})
    parents = (ParsedTexts,)

    def rows(self, shard: str) -> Iterator[RowSpec]:
        for row in self.store.read(ParsedTexts.table.name, shard).to_pylist():
            yield RowSpec.after(row, [self.own_recipe, row["text"]], {"page_id": row["page_id"]}, row["text"])

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[str, str]]:
        return ((row.id, row.given) for row in todo)

    def results(self, inputs: Iterator[tuple[str, str]]) -> Iterator[Embedding]:
        return self.engine.embed_texts(inputs)
