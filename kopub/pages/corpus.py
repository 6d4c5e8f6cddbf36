"""The pages and queries of every shard of the corpus, read from the source files."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from kopub.engine import ProfileOnly, Resource
from kopub.errors import SourceError, first_line, quoted
from kopub.files import is_url
from kopub.fingerprints import fingerprint
from kopub.pages.manifest import GOLD, Manifest, shard_source
from kopub.pages.page import problem_with_id
from kopub.pages.places import CACHE_GB, CorpusPlace
from kopub.states import Reason
from kopub.store.corpus_tables import TABLES

if TYPE_CHECKING:
    from kopub.pages.documents.text_layer import StoredLayers
    from kopub.pages.page import PackedPixels
    from kopub.pages.page_reader import ImageReader
    from kopub.store.table_source import Source

UPRIGHT = True
UPRIGHT_FIELD = (
    "Set pages upright before they are read: paper on a background, skews and quarter turns. Pages whose PDF prints "
    "their text, and those with a layout known beforehand, are left as they are."
)
_ID_PARTS = re.compile(r"(?P<doc>[^/]+)_(?P<page>[0-9]+)")
"""`{document}_{page, from 1}`, the form of the ids of SDS KoPub."""
_MAX_PAGE_NO = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row of a shard.

    A row with a `problem` is to be quarantined, or `failed`, and its `data` may be None. `damage` says which part of
    the page its image lacks.

    `page_id` is unique in the corpus and safe in a file name, unless the row's own id is unusable: then it is
    `{shard_key}/row_{row}`.
    """

    row: int
    page_id: str
    doc_id: str | None
    page_no: int | None
    license: str | None
    source: str
    data: bytes | memoryview | None
    text_layer_id: str | None
    problem: str | None
    failed: bool
    damage: str | None


@dataclass(frozen=True, slots=True)
class Query:
    """A question in Korean or English.

    `ground_truth` are the ids of the pages that answer it, in order.
    """

    query_id: str
    query: str
    answer: str | None = None
    type: str | None = None
    domain: str | None = None
    ground_truth: list[str] = field(default_factory=list)


class KeptPixels:
    """The pixels of pages that a run decoded, by the SHA-256 of their files.

    They are for its later steps. As many are kept as fit into an eighth of the memory that is free at its start.
    """

    def __init__(self) -> None:
        self._room = psutil.virtual_memory().available // 8
        self._pages: dict[str, PackedPixels] = {}

    def keep(self, sha256: str, pixels: "PackedPixels") -> None:
        if len(pixels.data) <= self._room and sha256 not in self._pages:
            self._pages[sha256] = pixels
            self._room -= len(pixels.data)

    def find(self, sha256: str) -> "PackedPixels | None":
        return self._pages.get(sha256)


class Corpus(Resource):
    """The corpus that is indexed in `home`, or at `url`.

    It is the samples when nothing was indexed on this machine.
    """

    home: ProfileOnly[str] = Field(
        description="Folder of this machine: the index, where it is not shared, and what was fetched."
    )
    url: ProfileOnly[str] = Field(default="", description="Folder or fsspec URL of an index that nodes share.")
    cache_gb: float = Field(default=CACHE_GB, gt=0, description="Gigabytes of fetched files that are kept.")
    upright: bool = Field(default=UPRIGHT, description=UPRIGHT_FIELD)

    @property
    def folder(self) -> Path:
        """The home, which keeps this machine's own files besides the index."""
        return Path(self.home)

    @property
    def place(self) -> CorpusPlace:
        """The folder or URL of the index."""
        return CorpusPlace(self.folder, self.url, self.cache_gb)

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest.load(self.place)

    @cached_property
    def kept_pixels(self) -> KeptPixels:
        """The pixels of pages that this run has decoded, for its later steps."""
        return KeptPixels()

    @property
    def gold(self) -> Path | None:
        """The file of known answers beside an index on this machine, if there is one."""
        place = self.manifest.place(GOLD)
        return Path(place) if not is_url(place) and Path(place).is_file() else None

    def rows(self, shard_key: str) -> Iterator[SourceRow]:
        """Yield a shard's rows in file order, as many as were indexed. Raises `SourceError`."""
        from kopub.pages.documents.text_layer import layer_id
        from kopub.pages.page_reader import open_shard

        shard = self.manifest.shard(shard_key)
        source = Path(shard.file).name
        duplicates = set(shard.duplicates)
        seen: set[str] = set()
        for at, row in enumerate(open_shard(self.manifest, shard_key).rows(shard.rows)):
            problem = None
            if row.id is None:
                problem = Reason(
                    "row {row}: {reason}" if row.problem else "row {row} has no id", row=at, reason=row.problem
                )
            elif (fault := problem_with_id(row.id)) is not None:
                problem = Reason("row {row}: the id {id} {problem}", row=at, id=quoted(row.id), problem=fault)
            elif row.id in duplicates or row.id in seen:
                problem = Reason("row {row}: an earlier page has the id {id} already", row=at, id=quoted(row.id))
            # The slash distinguishes a stand-in from every usable id.
            page_id = row.id if problem is None and row.id is not None else f"{shard_key}/row_{at}"
            seen.add(page_id)
            doc_id, page_no = row.file_name, row.page_number
            if parts := _ID_PARTS.fullmatch(page_id):
                # Its columns say more than its id.
                doc_id = parts["doc"] if doc_id is None else doc_id
                page_no = int(parts["page"]) if page_no is None else page_no
            yield SourceRow(
                row=at,
                page_id=page_id,
                doc_id=doc_id,
                page_no=page_no if page_no is not None and 0 <= page_no <= _MAX_PAGE_NO else None,
                license=row.license,
                source=source,
                data=row.image,
                text_layer_id=layer_id(row.text_layer),
                problem=problem or row.problem,
                failed=problem is None and row.failed,
                damage=row.damage,
            )

    @contextmanager
    def reader(self, shard_key: str) -> "Iterator[ImageReader]":
        """Return random access to a shard's page images. Raises `SourceError`."""
        from kopub.pages.page_reader import ImageReader, open_shard

        yield ImageReader(open_shard(self.manifest, shard_key), shard_key, self.kept_pixels)

    def text_layers(self, shard_key: str) -> "StoredLayers":
        """Return the text layers of a shard's pages, without their images. Raises `SourceError`."""
        from kopub.pages.documents.text_layer import StoredLayers
        from kopub.pages.page_reader import open_shard

        file = open_shard(self.manifest, shard_key)
        return StoredLayers(file.place, shard_key, file.text_layers())

    def queries(self, shard_key: str) -> list[Query]:
        """Return the queries that belong to a shard, in their order. Raises `SourceError`."""
        self.manifest.shard(shard_key)
        if self.manifest.queries is None:
            return []
        file = self.manifest.queries.file
        with self.manifest.index.held(file) as path:
            table = read_table(path)
        if digest(table) != self.manifest.queries.sha256:
            form = "{place} changed since it was indexed: run `kopub index` again"
            raise SourceError(form, self.manifest.place(file))
        return from_table(table, shard_key)

    @cached_property
    def unknown_pages(self) -> frozenset[str]:
        """The pages of ground truth that no shard holds."""
        return frozenset(self.manifest.queries.unknown if self.manifest.queries else ())


def queries_source(manifest: Manifest, shard: str) -> str:
    """Return the fingerprint of one shard's queries as they were indexed."""
    queries = manifest.queries
    by_shard = shard_fingerprints(manifest.index, queries.file, queries.sha256) if queries else {}
    return by_shard.get(shard, fingerprint([]))


def corpus_source(manifest: Manifest, other: "Callable[[], Source]") -> "Source":
    """Return fingerprints of pages and queries; `other`, called once, gives other assets'."""
    others: list[Source] = []

    def source(asset: str, shard: str) -> str | None:
        if asset == TABLES.pages.name:
            return shard_source(manifest.shard(shard))
        if asset == TABLES.query_vectors.name:
            return queries_source(manifest, shard)
        if not others:
            others.append(other())
        return others[0](asset, shard)

    return source


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


def read_table(path: Path) -> pa.Table:
    """Return a small Parquet table. Raises `SourceError`."""
    try:
        # `read_table` would load pandas.
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise SourceError("{path} cannot be read: it has {column} in two columns", path, twice[0])
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise SourceError("{path} cannot be read: {error}", path, first_line(error)) from None


@cache
def shard_fingerprints(index: CorpusPlace, file: str, sha256: str) -> dict[str, str]:
    """Return the fingerprints of the indexed queries by shard.

    The queries are read once for all shards; `sha256` distinguishes one index from the next. Raises `SourceError`, and
    `StoreError` if they are fetched.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with index.held(file) as path:
        table = read_table(path)
    for row in table.to_pylist():
        rows[row[SHARD]].append(row)
    return {shard: fingerprint(queries) for shard, queries in rows.items()}


def parse_queries(questions: pa.Table, annotations: pa.Table | None, name: str) -> list[Query]:
    """Return the queries of a table in the schema of SDS-KoPub-QA.

    Ground truth is a list of page ids, or of page numbers in the whole corpus, which `annotations` (file_id,
    page_indices) turns into ids. A repeated query id gets a number. Raises a `SourceError` that begins with `name`.
    """
    if not set(_REQUIRED) <= set(questions.column_names):
        columns = ", ".join(questions.column_names)
        form = "{name} has the columns {columns}; wanted {required} too"
        raise SourceError(form, name, columns, ", ".join(_REQUIRED))
    page_ids = {} if annotations is None else _page_ids(annotations, name)
    queries: list[Query] = []
    ids: set[str] = set()
    for at, row in enumerate(questions.to_pylist()):
        if row["id"] is None or not str(row["query"] or "").strip():
            form = "{name}: row {row} has no id" if row["id"] is None else "{name}: row {row} has no query"
            raise SourceError(form, name, at)
        pages = row["ground_truth"] or []
        if not isinstance(pages, list):
            pages = [pages]
        try:
            truth = [page if isinstance(page, str) else page_ids[page] for page in pages if page is not None]
        except (KeyError, TypeError) as error:
            form = (
                "{name}: row {row} names page {page} of the corpus, and no annotations (file_id, page_indices) say "
                "its id"
            )
            raise SourceError(form, name, at, error) from None
        query_id, again = str(row["id"]), 1
        while query_id in ids:
            again += 1
            query_id = f"{row['id']}#{again}"
        ids.add(query_id)
        more = {name: str(row[name]) for name in ("answer", "type", "domain") if row.get(name) is not None}
        queries.append(Query(query_id, str(row["query"]), ground_truth=list(dict.fromkeys(truth)), **more))
    return queries


def to_table(
    queries: Iterable[Query], shard_of: Mapping[str, str], keys: Sequence[str], before: Mapping[str, str]
) -> pa.Table:
    """Return the queries as the indexed table, each with the partition key of its shard.

    It is the shard of its first ground-truth page in the corpus. A query without one stays in the shard that its id had
    `before`, or goes to a shard chosen by the hash of its id, the same on every machine.
    """
    rows: list[dict[str, Any]] = []
    for query in queries:
        shard = next(filter(None, map(shard_of.get, query.ground_truth)), before.get(query.query_id))
        if not shard:
            digest = hashlib.sha256(query.query_id.encode("utf-8", "surrogatepass")).digest()
            shard = keys[int.from_bytes(digest[:8]) % len(keys)]
        rows.append(asdict(query) | {SHARD: shard})
    return pa.Table.from_pylist(rows, _SCHEMA)


def digest(table: pa.Table) -> str:
    """Return the SHA-256 of the indexed queries, whichever program wrote the Parquet file."""
    content = json.dumps(table.to_pylist(), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def from_table(table: pa.Table, shard: str | None = None) -> list[Query]:
    """Return the indexed queries of one shard, or of all, in order."""
    queries: list[Query] = []
    for row in table.to_pylist():
        own = row.pop(SHARD)
        if shard in (None, own):
            queries.append(Query(**row))
    return queries


def _page_ids(annotations: pa.Table, name: str) -> dict[int, str]:
    """Return page ids by page number in the corpus; a file's pages count from 1."""
    if not {"file_id", "page_indices"} <= set(annotations.column_names):
        columns = ", ".join(annotations.column_names)
        form = "the annotations of {name} have the columns {columns}; wanted file_id and page_indices"
        raise SourceError(form, name, columns)
    kind = annotations.schema.field("page_indices").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        form = "the annotations of {name} have page_indices of type {kind}; wanted lists of integers"
        raise SourceError(form, name, kind)
    page_ids: dict[int, str] = {}
    for row in annotations.select(["file_id", "page_indices"]).to_pylist():
        for page, index in enumerate(row["page_indices"] or [], start=1):
            page_ids[index] = f"{row['file_id']}_{page}"
    return page_ids
