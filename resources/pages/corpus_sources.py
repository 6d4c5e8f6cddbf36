"""What tables read of a corpus itself, by asset and shard: what tells those of one corpus from those of another."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from resources.fingerprints import fingerprint
from resources.pages.manifest import Manifest
from resources.pages.page_reader import shard_source
from resources.pages.queries import shard_fingerprints
from resources.store.corpus_tables import TABLES

if TYPE_CHECKING:
    from resources.store.table_source import Source


def queries_source(manifest: Manifest, shard: str) -> str:
    """Fingerprint of the queries of a shard as they were indexed; those of other shards do not count."""
    queries = manifest.queries
    by_shard = shard_fingerprints(manifest.index, queries.file, queries.sha256) if queries else {}
    return by_shard.get(shard, fingerprint([]))


def corpus_source(manifest: Manifest, other: "Callable[[], Source]") -> "Source":
    """What the tables of pages and of queries read of the corpus; `other` is asked once for those of further assets."""
    known: list[Source] = []

    def source(asset: str, shard: str) -> str | None:
        if asset == TABLES.pages.name:
            return shard_source(manifest.shard(shard))
        if asset == TABLES.query_vectors.name:
            return queries_source(manifest, shard)
        if not known:
            known.append(other())
        return known[0](asset, shard)

    return source
