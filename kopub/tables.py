"""Pages as Arrow tables: one row for each page, region or vector. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from resources.errors import KopubError, did_you_mean

TableName = Literal["pages", "regions", "text_vectors", "image_vectors"]
"""What a table has a row for."""
TABLES: tuple[TableName, ...] = get_args(TableName)
VECTORS: Mapping[str, TableName] = {"text": "text_vectors", "image": "image_vectors"}
"""The table of each kind of vector."""

_PLACED = [
    ("page_id", pa.string()),
    ("index", pa.int32()),
    ("label", pa.string()),
    ("task", pa.string()),
    ("score", pa.float32()),
    ("bbox", pa.list_(pa.float32(), 4)),
    ("bbox_2d", pa.list_(pa.int32(), 4)),
]
REGIONS = pa.schema([*_PLACED, *((name, pa.string()) for name in ("content", "state", "reason", "origin"))])
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


def known(name: str) -> TableName:
    """The name of a table. Raises `KopubError` for another."""
    for table in TABLES:
        if table == name:
            return table
    raise KopubError(f"there is no table {name!r}{did_you_mean(name, TABLES)}; there are {', '.join(TABLES)}")


def empty(name: TableName) -> pa.Schema:
    """The columns of a table without rows; vectors of none have no width."""
    schemas = {"pages": PAGES, "regions": REGIONS}
    return schemas.get(name) or pa.schema([("page_id", pa.string()), ("vector", pa.list_(pa.float16(), 0))])


def vectors(table: pa.Table) -> pa.Table:
    """The rows of `page_id` and `vector` that have a vector, in the same types wherever they were read."""
    width = table.schema.field("vector").type.list_size
    made = table.select(["page_id", "vector"]).filter(table["vector"].is_valid())
    return made.cast(pa.schema([("page_id", pa.string()), ("vector", pa.list_(pa.float16(), width))]))


def collected(
    ids: Sequence[str], shards: Iterable[str], read: Callable[[str], pa.Table | None], none: pa.Schema
) -> pa.Table:
    """The rows of the pages `ids`, in their order, from the tables that `read` gives of each of their shards.

    `none` are the columns where none of them has a table.
    """
    ranks = {page_id: rank for rank, page_id in enumerate(ids)}
    tables, places = [], []
    for shard in shards:
        table = read(shard)
        if table is None:
            continue
        found = np.array([ranks.get(page_id, -1) for page_id in table["page_id"].to_pylist()], np.int64)
        wanted = np.flatnonzero(found >= 0)
        # A table that is wanted whole stays as it is: taking rows would copy it.
        tables.append(table if len(wanted) == table.num_rows else table.take(wanted))
        places.append(found[wanted])
    if not tables:
        return none.empty_table()
    place = np.concatenate(places)
    every = pa.concat_tables(tables)
    return every if np.all(np.diff(place) >= 0) else every.take(np.argsort(place, kind="stable"))
