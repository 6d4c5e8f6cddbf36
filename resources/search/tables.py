"""What a search needs of a store: its tables by name and shard. A folder of a release can be one, too."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa


class SearchedTables(Protocol):
    """The tables of a corpus; `ShardStore` is one. Each method raises `StoreError`."""

    def has(self, asset: str, shard: str) -> bool:
        """Whether a table has been made."""
        ...

    def published(self, asset: str) -> Mapping[str, str]:
        """The shards whose table has been made, each with what tells it from the one that it replaced."""
        ...

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table, or only `columns` of it."""
        ...

    def metadata(self, asset: str, shard: str) -> Mapping[str, str]:
        """What a table was written with."""
        ...
