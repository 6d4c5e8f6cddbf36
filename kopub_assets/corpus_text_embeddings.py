"""A vector for every page, from its text."""

from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg

from kopub_assets.materialize.loop import Owed
from kopub_assets.materialize.upstream import settled_by
from kopub_assets.materialize.vectors import materialize_vectors, vector_asset
from kopub_assets.recipes import own_recipe
from resources.embedding.base import Embedder
from resources.embedding.embeddings import Embedding
from resources.store.schemas import page_embeddings
from resources.store.shard_store import ShardStore


@vector_asset("corpus_text_embeddings", page_embeddings)
def corpus_text_embeddings(context: dg.AssetExecutionContext, store: ShardStore, embedding: Embedder):
    """The vector of every page's text: float16 of L2 norm 1, compared with query vectors by dot product."""
    own = own_recipe("corpus_text_embeddings", embedding)

    def make(shard: str, todo: Sequence[Owed]) -> Iterator[Embedding]:
        return embedding.embed_texts((row.id, row.given) for row in todo)

    yield from materialize_vectors(context, store, embedding, page_embeddings, partial(owed, store, own), make)


def owed(store: ShardStore, own: str, shard: str) -> Iterator[Owed]:
    """A row for every page of a shard."""
    for row in store.read("parsed_texts", shard).to_pylist():
        known = {"page_id": row["page_id"]}
        yield Owed(row["page_id"], [own, row["text"]], known, row["text"], settled_by(row))
