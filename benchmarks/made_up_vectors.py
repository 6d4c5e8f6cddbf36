"""Random vectors, and tables that hold them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def noise(chance: np.random.Generator, count: int, dim: int) -> np.ndarray:
    return chance.standard_normal((count, dim), np.float32)


def column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """Return the vectors as a column of float16."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), vectors.shape[1])


def with_vectors(rows: Sequence[dict[str, Any]], schema: pa.Schema, vectors: np.ndarray) -> pa.Table:
    """Return a table of the rows and their vectors."""
    at = schema.get_field_index("vector")
    return pa.Table.from_pylist(list(rows), schema).set_column(at, schema.field(at), column(vectors))


def with_random_vectors(rows: Sequence[dict[str, Any]], schema: pa.Schema, chance: np.random.Generator) -> pa.Table:
    """Return a table of the rows with a random vector each."""
    return with_vectors(rows, schema, unit(noise(chance, len(rows), schema.field("vector").type.list_size)))
