"""A vector for every page, from its picture."""

from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg

from kopub_assets.materialize.loop import Owed
from kopub_assets.materialize.upstream import page_rows, settled_by
from kopub_assets.materialize.vectors import materialize_vectors, vector_asset
from kopub_assets.recipes import own_recipe
from resources.embedding.base import Embedder
from resources.embedding.embeddings import Embedding
from resources.pages.corpus import Corpus
from resources.store.schemas import page_embeddings
from resources.store.shard_store import ShardStore


@vector_asset("corpus_image_embeddings", page_embeddings)
def corpus_image_embeddings(context: dg.AssetExecutionContext, store: ShardStore, corpus: Corpus, embedding: Embedder):
    """The vector of every page image: float16 of L2 norm 1, compared by dot product."""
    own = own_recipe("corpus_image_embeddings", embedding)

    def make(shard: str, todo: Sequence[Owed]) -> Iterator[Embedding]:
        with corpus.reader(shard) as source:
            yield from embedding.embed_images(source.page(row.id, *row.given) for row in todo)

    yield from materialize_vectors(context, store, embedding, page_embeddings, partial(owed, store, own), make)


def owed(store: ShardStore, own: str, shard: str) -> Iterator[Owed]:
    """A row for every page of a shard."""
    for page in page_rows(store, shard):
        known = {"page_id": page["page_id"]}
        yield Owed(page["page_id"], [own, page["sha256"]], known, (page["page_idx"], page["sha256"]), settled_by(page))
