"""The table of all pages that an opened corpus has in memory. Pure.

Arrays are made from buffers: the first one that is made of Python values loads pandas, which takes 0.3 s and 40 MB.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

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
"""What is known of every page at once."""


def placed(shards: Sequence[str], tables: Sequence[pa.Table]) -> pa.Table:
    """The catalogues of the shards in one, each row with its shard and its number there."""
    if not tables:
        return CATALOGUE.empty_table()
    counts = [table.num_rows for table in tables]
    rows = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
    numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    own = {"shard": pa.DictionaryArray.from_arrays(array_of(numbers), _strings(shards)), "row": array_of(rows)}
    read = pa.concat_tables(tables)
    columns = [own[field.name] if field.name in own else _typed(read[field.name], field) for field in CATALOGUE]
    return pa.Table.from_arrays(columns, schema=CATALOGUE).combine_chunks()


def _typed(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.cast(field.type)


def array_of(values: np.ndarray) -> pa.Array:
    """The numbers, not copied."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _strings(values: Sequence[str]) -> pa.StringArray:
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
