"""A vector for every query."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

import dagster as dg

from kopub_assets.materialize.loop import Owed
from kopub_assets.materialize.vectors import materialize_vectors, vector_asset
from kopub_assets.recipes import own_recipe
from kopub_assets.sources import queries_of
from resources.embedding.base import Embedder
from resources.embedding.embeddings import Embedding
from resources.pages.corpus import Corpus
from resources.store import schemas
from resources.store.shard_store import ShardStore


@vector_asset("query_embeddings", schemas.query_embeddings)
def query_embeddings(context: dg.AssetExecutionContext, store: ShardStore, corpus: Corpus, embedding: Embedder):
    """The vector of every query, with its answer and the pages that hold it.

    A query belongs to the shard of its first ground-truth page. A corpus without queries gives
    empty tables.
    """
    own = own_recipe("query_embeddings", embedding)

    def owed(shard: str) -> Iterator[Owed]:
        queries = corpus.queries(shard)
        if not queries:
            context.log.info(f"{shard} has no queries: its table of query vectors is empty")
        for query in queries:
            yield Owed(query.query_id, [own, query.query], asdict(query))

    def make(shard: str, todo: Sequence[Owed]) -> Iterator[Embedding]:
        return embedding.embed_queries((row.id, row.known["query"]) for row in todo)

    yield from materialize_vectors(
        context, store, embedding, schemas.query_embeddings, owed, make, "query_id", partial(queries_of, corpus)
    )
