"""Small tables that are only ever added to: one Parquet file each, below one folder of the store."""

from collections.abc import Callable, Iterable
from contextlib import suppress

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import StoreError


class Parts:
    """The files below `folder`, by their names relative to it; `put` writes one whole."""

    def __init__(self, fs: fsspec.AbstractFileSystem, folder: str, put: Callable[[str, pa.Table], None]) -> None:
        self._fs = fs
        self._folder = folder
        self._put = put

    def names(self) -> list[str]:
        """All there are, in the order of their names."""
        self._fs.invalidate_cache()
        found = self._fs.find(self._folder) if self._fs.exists(self._folder) else []
        prefix = f"{self._folder}/"
        return sorted(path.removeprefix(prefix) for path in found if path.endswith(".parquet"))

    def add(self, name: str, table: pa.Table) -> None:
        """Raises `StoreError` when it cannot be written."""
        self._put(f"{self._folder}/{name}", table)

    def read(self, name: str) -> pa.Table:
        """Raises `StoreError` when it is damaged."""
        path = f"{self._folder}/{name}"
        try:
            with self._fs.open(path, "rb") as file:
                # Not `read_table`: that loads Arrow's datasets, and with them pandas, to read one small file.
                return pq.ParquetFile(file).read()
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise StoreError(f"{path} is not a readable table ({error}): delete it") from None

    def remove(self, names: Iterable[str]) -> None:
        """What somebody else has removed meanwhile is gone as well."""
        for name in names:
            with suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._folder}/{name}")
