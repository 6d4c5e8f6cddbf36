"""A vector for every query."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import ClassVar

from kopub_assets.materialize.rows import RowSpec
from kopub_assets.materialize.vectors import VectorTable
from resources.code_version import CodeVersion
from resources.embedding.embeddings import Embedding
from resources.pages.corpus_sources import queries_source
from resources.store.corpus_tables import TABLES, Table

_log = logging.getLogger(__name__)


class QueryEmbeddings(VectorTable):
    """The vector of every query, with its answer and the pages that hold it.

    A query belongs to the shard of its first ground-truth page. A corpus without queries gives
    empty tables.
    """

    table: ClassVar[Table] = TABLES.query_vectors
    kinds: ClassVar[frozenset[str]] = frozenset({"query"})
    code_version: ClassVar[CodeVersion] = CodeVersion("query_embeddings", {1: "the first release"})

    def prepare(self) -> None:
        self.engine.prepare_texts()

    def source(self, shard: str) -> str:
        """The queries of a shard as they were indexed; those of other shards do not count."""
        return queries_source(self.corpus.manifest, shard)

    def expected_rows(self, shard: str, made: int | None) -> int:
        return len(self.corpus.queries(shard))

    def rows(self, shard: str) -> Iterator[RowSpec]:
        queries = self.corpus.queries(shard)
        if not queries:
            _log.info("%s has no queries: its table of query vectors is empty", shard)
        for query in queries:
            yield RowSpec(query.query_id, [self.own_recipe, query.query], asdict(query))

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[str, str]]:
        return ((row.id, row.known["query"]) for row in todo)

    def results(self, inputs: Iterator[tuple[str, str]]) -> Iterator[Embedding]:
        return self.engine.embed_queries(inputs)
