"""The rows of a page: regions, steps and facts."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from PIL import Image

from kopub.boxes import Box
from kopub.errors import KopubError, StoreError, did_you_mean
from kopub.states import State


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture region (image, chart) cut out of its page; markdown links to `path`."""

    path: str
    label: str
    box: Box[float]
    data: bytes = field(repr=False)
    """The encoded JPEG."""

    # Quoted, because pyright's check of the public types does not follow it otherwise.
    @property
    def image(self) -> "Image.Image":
        """The decoded picture."""
        return Image.open(io.BytesIO(self.data))


@dataclass(frozen=True, slots=True)
class Step:
    """The making of a table's row: its engine, model, parameters and run.

    None stands for what was not recorded.
    """

    asset: str
    state: State
    reason: str | None
    engine: str | None
    model: str | None
    revision: str | None
    parameters: Mapping[str, Any]
    """Prompts, sampling, thresholds."""
    versions: Mapping[str, Any]
    """Versions of weights, engine and packages."""
    code_version: Mapping[str, Any]
    recipe: str | None
    fingerprint: str
    run_id: str | None
    made_at: datetime | None
    gpu_seconds: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a page without its texts.

    Sizes are in pixels of the upright page.
    """

    width: int | None
    height: int | None
    sha256: str | None
    license: str | None
    source: str | None
    reason: str | None
    states: Mapping[str, State]
    doubts: tuple[str, ...]


TableName = Literal["pages", "regions", "text_vectors", "image_vectors"]
"""The subjects of a table's rows."""
TABLES: tuple[TableName, ...] = get_args(TableName)
VECTORS: Mapping[str, TableName] = {"text": "text_vectors", "image": "image_vectors"}
"""The table of each kind of vector."""

REGIONS = pa.schema(
    [
        ("page_id", pa.string()),
        ("index", pa.int32()),
        ("label", pa.string()),
        ("task", pa.string()),
        ("score", pa.float32()),
        ("bbox", pa.list_(pa.float32(), 4)),
        ("bbox_2d", pa.list_(pa.int32(), 4)),
        ("content", pa.string()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("origin", pa.string()),
    ]
)
"""A row for each region, in reading order."""
PAGES = pa.schema(
    [
        ("page_id", pa.string()),
        ("doc_id", pa.string()),
        ("page_no", pa.int32()),
        ("shard", pa.string()),
        ("state", pa.string()),
        ("doubt", pa.float32()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("sha256", pa.string()),
        ("license", pa.string()),
        ("source", pa.string()),
        ("text", pa.string()),
        ("markdown", pa.string()),
    ]
)
"""A row for each page."""


def table_name(name: str) -> TableName:
    """Return `name` if it is that of a table. Raises `KopubError` otherwise."""
    for table in TABLES:
        if table == name:
            return table
    raise KopubError(f"there is no table {name!r}{did_you_mean(name, TABLES)}; there are {', '.join(TABLES)}")


def empty(name: TableName) -> pa.Schema:
    """Return the columns of a table without rows, in which vectors have no width."""
    schemas = {"pages": PAGES, "regions": REGIONS}
    return schemas.get(name) or pa.schema([("page_id", pa.string()), ("vector", pa.list_(pa.float16(), 0))])


def vectors(table: pa.Table) -> pa.Table:
    """Return `page_id` and `vector` of the rows that have a vector.

    Types are the same for every source.
    """
    width = table.schema.field("vector").type.list_size
    rows = table.select(["page_id", "vector"]).filter(table["vector"].is_valid())
    return rows.cast(pa.schema([("page_id", pa.string()), ("vector", pa.list_(pa.float16(), width))]))


def collect_rows(
    ids: Sequence[str], shards: Iterable[str], read: Callable[[str], pa.Table | None], none: pa.Schema
) -> pa.Table:
    """Return the rows of the pages `ids`, in their order.

    `read` returns the tables of each of their shards. `none` are the columns if none of them has a table. Raises
    `StoreError` for vectors of several lengths.
    """
    ranks = {page_id: rank for rank, page_id in enumerate(ids)}
    tables, places = [], []
    for shard in shards:
        table = read(shard)
        if table is None:
            continue
        table_ranks = np.array([ranks.get(page_id, -1) for page_id in table["page_id"].to_pylist()], np.int64)
        rows = np.flatnonzero(table_ranks >= 0)
        # A table that is needed whole stays as it is, since taking rows would copy it.
        tables.append(table if len(rows) == table.num_rows else table.take(rows))
        places.append(table_ranks[rows])
    if not tables:
        return none.empty_table()
    if any(table.schema != tables[0].schema for table in tables):
        line = "the vectors of these pages have several lengths, as in an upgrade that has not ended"
        raise StoreError(f"{line}: run `kopub run`, or take the pages of one shard: pages.where(shard=...)")
    place = np.concatenate(places)
    every = pa.concat_tables(tables)
    return every if np.all(np.diff(place) >= 0) else every.take(np.argsort(place, kind="stable"))


CATALOGUE = pa.schema(
    [
        ("page_id", pa.string()),
        ("doc_id", pa.dictionary(pa.int32(), pa.string())),
        ("page_no", pa.int32()),
        ("shard", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int32()),
        ("state", pa.dictionary(pa.int32(), pa.string())),
        ("doubt", pa.float32()),
    ]
)
"""The columns of a page that are in memory for a whole corpus."""


def catalogue_of(shards: Sequence[str], tables: Sequence[pa.Table]) -> pa.Table:
    """Return the catalogues of the shards as one.

    Each row names its shard and its row number there.
    """
    if not tables:
        return CATALOGUE.empty_table()
    counts = [table.num_rows for table in tables]
    rows = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    encoded = [value.encode() for value in shards]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    own = {
        "shard": pa.DictionaryArray.from_arrays(
            numbers_array(numbers),
            pa.StringArray.from_buffers(len(shards), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))),
        ),
        "row": numbers_array(rows),
    }
    stored = pa.concat_tables(tables)
    columns = []
    for declared in CATALOGUE:
        if declared.name in own:
            columns.append(own[declared.name])
            continue
        column = stored[declared.name]
        if pa.types.is_dictionary(declared.type) and not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        columns.append(column.cast(declared.type))
    return pa.Table.from_arrays(columns, schema=CATALOGUE).combine_chunks()


def numbers_array(values: np.ndarray) -> pa.Array:
    """Return the numbers as an Arrow array, without a copy.

    The first array that Arrow makes from Python values loads pandas, which takes 0.3 s and 40 MB.
    """
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
