"""What the assets without parents read: their part of the corpus, as a fingerprint."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from resources.fingerprints import fingerprint
from resources.pages.corpus import Corpus
from resources.pages.queries import SHARD, read_table


def pages_of(corpus: Corpus, shard: str) -> str:
    """The file of a shard as it was indexed."""
    entry = corpus.manifest.shard(shard)
    return fingerprint([Path(entry.file).name, entry.rows, entry.sha256, entry.duplicates])


def queries_of(corpus: Corpus, shard: str) -> str:
    """The queries of a shard as they were indexed; those of other shards do not count."""
    queries = corpus.manifest.queries
    by_shard = _by_shard(corpus.manifest.path(queries.file), queries.sha256) if queries else {}
    return by_shard.get(shard, fingerprint([]))


SOURCES: dict[str, Callable[[Corpus, str], str]] = {"raw_pages": pages_of, "query_embeddings": queries_of}


@cache
def _by_shard(path: Path, sha256: str) -> dict[str, str]:
    """Read once for all shards; `sha256` tells one index of the same file from the next."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_table(path).to_pylist():
        rows[row[SHARD]].append(row)
    return {shard: fingerprint(queries) for shard, queries in rows.items()}
