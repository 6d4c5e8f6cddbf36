"""The tables that a search reads, and the memory-mapped Arrow files that it keeps of them.

A file's name holds the version of the tables that it was made from and the CRC-32 of its bytes. A file
of another table, or one that a killed process or a bad disk left, is therefore never used.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from resources.errors import StoreError
from resources.files import replace_bytes
from resources.freed_memory import give_back

FORMAT = 2
"""Of the files. Raise it with their schemas: files of another format are made again."""


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


class ArrowCache:
    """The Arrow files of a folder, made when they are missing. Several processes may share it.

    Where the folder cannot be written, what was made is not kept, and `problem` says why.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem: str | None = None

    def get(self, kind: str, shard: str, version: str, make: Callable[[], pa.Table]) -> pa.Table:
        """The table that `make` makes from what `version` names: mapped when it was made before.

        Raises what `make` raises.
        """
        folder = self.folder / kind
        stem = f"{shard}.{FORMAT}-{version}"
        for path in folder.glob(f"{stem}.*.arrow"):
            table = _mapped(path)
            if table is not None:
                return table
        content = _encoded(make())
        # The rows were Python objects on the way, of all shards one after the other.
        give_back()
        path = folder / f"{stem}.{zlib.crc32(content):08x}.arrow"
        try:
            replace_bytes(path, content)
            for other in folder.glob(f"{shard}.*.arrow"):
                if other != path:
                    other.unlink(missing_ok=True)
        except (StoreError, OSError) as error:
            # The home may be read-only: the caller has the table in memory, and a later search makes it again.
            self.problem = str(error)
            return pa.ipc.open_file(content).read_all()
        mapped = _mapped(path)
        # What is mapped, the system may drop.
        return pa.ipc.open_file(content).read_all() if mapped is None else mapped


def _mapped(path: Path) -> pa.Table | None:
    """The table in a file, without a copy; None when its bytes are not those that were written."""
    try:
        content = pa.memory_map(str(path)).read_buffer()
    except (OSError, pa.ArrowInvalid):
        # Another process replaced it just now, or it is empty, which cannot be mapped.
        return None
    if f"{zlib.crc32(content):08x}" != path.suffixes[-2].removeprefix("."):
        return None
    return pa.ipc.open_file(content).read_all()


def _encoded(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        # In one batch, so that vectors are one matrix.
        writer.write_table(table.combine_chunks())
    return sink.getvalue()
