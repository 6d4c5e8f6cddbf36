"""How much vectors changed, by the cosine of old and new. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class CosineChange:
    """Cosines of old and new vectors: all there are, their mean, and (cosine, id), the lowest first.

    `problem` says why there are none.
    """

    compared: int = 0
    mean: float | None = None
    lowest: Sequence[tuple[float, str]] = ()
    problem: str | None = None


def cosine_change(old: pa.Table, new: pa.Table, id_column: str, most: int) -> CosineChange:
    """Of the rows that have a vector in both tables; at most `most` of them by id."""
    dims = [table.schema.field("vector").type.list_size for table in (old, new)]
    if dims[0] != dims[1]:
        return CosineChange(problem=f"vectors of {dims[0]} and of {dims[1]} dimensions cannot be compared")
    before, after = (_by_id(table, id_column) for table in (old, new))
    ids = [row_id for row_id in before if row_id in after]
    if not ids:
        return CosineChange(problem="no row has a vector in both")
    a, b = (np.stack([side[row_id] for row_id in ids]).astype(np.float32) for side in (before, after))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = np.divide(np.sum(a * b, axis=1), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    order = np.argsort(cosines, kind="stable")[:most]
    lowest = [(round(float(cosines[at]), 6), ids[at]) for at in order]
    return CosineChange(len(ids), round(float(cosines.mean()), 6), lowest)


def _by_id(table: pa.Table, id_column: str) -> dict[str, np.ndarray]:
    there = table.filter(table["vector"].is_valid())
    column = there["vector"].combine_chunks()
    # A filtered fixed-size list is whole: its values lie row after row.
    values = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, column.type.list_size)
    return dict(zip(there[id_column].to_pylist(), values, strict=True))
