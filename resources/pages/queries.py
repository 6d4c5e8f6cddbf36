"""Search queries and the pages that answer them."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import SourceError
from resources.fingerprints import fingerprint
from resources.pages.places.corpus_place import CorpusPlace
from resources.printable import first_line

SHARD = "shard"
"""Column of the indexed queries: the partition key of the shard a query belongs to."""

_REQUIRED = ("id", "query", "ground_truth")
_SCHEMA = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("query", pa.string(), nullable=False),
        pa.field("answer", pa.string()),
        pa.field("type", pa.string()),
        pa.field("domain", pa.string()),
        pa.field("ground_truth", pa.list_(pa.string()), nullable=False),
        pa.field(SHARD, pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Query:
    """A question in Korean or English; `ground_truth` are the page ids that answer it, the first one first."""

    query_id: str
    query: str
    answer: str | None = None
    type: str | None = None
    domain: str | None = None
    ground_truth: list[str] = field(default_factory=list)


def read_table(path: Path) -> pa.Table:
    """A small Parquet table. Raises `SourceError`."""
    try:
        # Not `read_table`: that loads pandas.
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise SourceError(f"{path} cannot be read: it has {twice[0]} in two columns")
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read: {first_line(error)}") from None


@cache
def shard_fingerprints(index: CorpusPlace, file: str, sha256: str) -> dict[str, str]:
    """Fingerprints of the indexed queries by shard, read once for all; `sha256` tells an index from the next.

    Raises `SourceError`, and `StoreError` where they are fetched.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with index.held(file) as path:
        table = read_table(path)
    for row in table.to_pylist():
        rows[row[SHARD]].append(row)
    return {shard: fingerprint(queries) for shard, queries in rows.items()}


def parse_queries(questions: pa.Table, annotations: pa.Table | None, name: str) -> list[Query]:
    """The queries of a table in the schema of SDS-KoPub-QA.

    Ground truth is a list of page ids, or of page numbers in the whole corpus, which `annotations`
    (file_id, page_indices) turns into ids. A query id that comes again gets a number. Raises
    `SourceError` that begins with `name`.
    """
    missing = [column for column in _REQUIRED if column not in questions.column_names]
    if missing:
        found = ", ".join(questions.column_names)
        raise SourceError(f"{name} has the columns {found}; wanted {', '.join(_REQUIRED)} too")
    page_ids = None if annotations is None else _page_ids(annotations, name)
    queries = [_query(row, at, page_ids, name) for at, row in enumerate(questions.to_pylist())]
    return _with_unique_ids(queries)


def assign(
    queries: Iterable[Query], shard_of: Mapping[str, str], keys: Sequence[str], before: Mapping[str, str]
) -> list[str]:
    """The partition key of each query: the shard of its first ground-truth page that is in the corpus.

    A query without one stays in the shard where it was `before`, by its id, or goes to one by the hash of its id, the
    same on every machine.
    """
    return [
        next((shard_of[page] for page in query.ground_truth if page in shard_of), None)
        or before.get(query.query_id)
        or _by_hash(query.query_id, keys)
        for query in queries
    ]


def to_table(queries: Sequence[Query], shards: Sequence[str]) -> pa.Table:
    """The queries as they are indexed, each with its shard."""
    rows = [asdict(query) | {SHARD: shard} for query, shard in zip(queries, shards, strict=True)]
    return pa.Table.from_pylist(rows, _SCHEMA)


def digest(table: pa.Table) -> str:
    """SHA-256 of the indexed queries; unlike that of their file it does not depend on who wrote the Parquet."""
    content = json.dumps(table.to_pylist(), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def from_table(table: pa.Table, shard: str | None = None) -> list[Query]:
    """The indexed queries of one shard, or of all, in their order."""
    return [
        Query(**{name: value for name, value in row.items() if name != SHARD})
        for row in table.to_pylist()
        if shard in (None, row[SHARD])
    ]


def _query(row: dict, at: int, page_ids: Mapping[int, str] | None, name: str) -> Query:
    if row["id"] is None or not str(row["query"] or "").strip():
        raise SourceError(f"{name}: row {at} has no {'id' if row['id'] is None else 'query'}")
    pages = row["ground_truth"] or []
    if not isinstance(pages, list):
        pages = [pages]
    try:
        truth = [page if isinstance(page, str) else (page_ids or {})[page] for page in pages if page is not None]
    except (KeyError, TypeError) as error:
        raise SourceError(
            f"{name}: row {at} names page {error} of the corpus, and no annotations (file_id, page_indices) say its id"
        ) from None
    return Query(
        query_id=str(row["id"]),
        query=str(row["query"]),
        answer=_text(row.get("answer")),
        type=_text(row.get("type")),
        domain=_text(row.get("domain")),
        ground_truth=list(dict.fromkeys(truth)),
    )


def _page_ids(annotations: pa.Table, name: str) -> dict[int, str]:
    """Page id by page number in the corpus: pages of a file are numbered from 1 in the order of its indices."""
    if not {"file_id", "page_indices"} <= set(annotations.column_names):
        found = ", ".join(annotations.column_names)
        raise SourceError(f"the annotations of {name} have the columns {found}; wanted file_id and page_indices")
    kind = annotations.schema.field("page_indices").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        raise SourceError(f"the annotations of {name} have page_indices of type {kind}; wanted lists of integers")
    return {
        index: f"{row['file_id']}_{page}"
        for row in annotations.select(["file_id", "page_indices"]).to_pylist()
        for page, index in enumerate(row["page_indices"] or [], start=1)
    }


def _with_unique_ids(queries: Iterable[Query]) -> list[Query]:
    taken: set[str] = set()
    unique = []
    for query in queries:
        query_id, again = query.query_id, 1
        while query_id in taken:
            again += 1
            query_id = f"{query.query_id}#{again}"
        taken.add(query_id)
        unique.append(replace(query, query_id=query_id))
    return unique


def _by_hash(query_id: str, keys: Sequence[str]) -> str:
    digest = hashlib.sha256(query_id.encode("utf-8", "surrogatepass")).digest()
    return keys[int.from_bytes(digest[:8]) % len(keys)]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
