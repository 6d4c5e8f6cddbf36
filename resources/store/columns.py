"""Whether a table has the columns that its readers ask for: one of another release may lack some. Pure."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def lacking(stored: pa.Schema, wanted: Iterable[str], known: pa.Schema | None = None) -> str | None:
    """The first of the `wanted` columns that is not stored, or lacks a field that `known` has of it; None for none.

    A field of a column is named after it: `regions.origin`.
    """
    for name in wanted:
        if name not in stored.names:
            return name
        if known is not None and name in known.names:
            there = set(_fields(name, stored.field(name).type))
            missing = [field for field in _fields(name, known.field(name).type) if field not in there]
            if missing:
                return missing[0]
    return None


def _fields(name: str, kind: pa.DataType) -> Iterator[str]:
    """A column and all fields inside it, by name; a list is what is in it."""
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    yield name
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _fields(f"{name}.{field.name}", field.type)
