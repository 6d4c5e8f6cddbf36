"""Kept versions of replaced tables, the last few of each asset and shard."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from kopub.errors import StoreError
from kopub.files import replace_file
from kopub.store.objects import Objects

FOLDER = ".versions"
RECIPE = b"kopub.recipe"
"""Key of the recipe in a table's metadata."""


@dataclass(frozen=True, slots=True)
class Version:
    """A kept table: its recipe, time, rows and size in bytes.

    On a local disk the time is when the table was made; on object storage, when it was replaced.
    """

    recipe: str
    made_at: datetime
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, order=True)
class _Version:
    """A kept file; `number` grows with each kept table, since clocks may mislead."""

    number: int
    recipe: str
    path: str


class Versions:
    """The kept versions of one table, at `<folder>/<number>-<recipe>.parquet`."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects = objects
        self._folder = folder

    def recipes(self) -> list[str]:
        """Return the recipes of the kept versions, newest first."""
        return list(dict.fromkeys(entry.recipe for entry in self._entries()))

    def path(self, recipe: str) -> str:
        """Return the path of the version with a recipe. Raises `FileNotFoundError` if none is kept."""
        for entry in self._entries():
            if entry.recipe == recipe:
                return entry.path
        raise FileNotFoundError(recipe)

    def describe(self, recipe: str) -> Version:
        path = self.path(recipe)
        with self._objects.open(path) as file:
            rows, size = pq.read_metadata(file).num_rows, file.seek(0, os.SEEK_END)
        return Version(recipe, self._objects.modified(path), rows, size)

    def keep(self, table: str, current: str) -> bool:
        """Keep the table at path `table`, unless its recipe is `current`.

        Returns whether there was a table. The table itself stays in place. On a local disk both names share one file,
        so a version takes space only once the table is replaced. Elsewhere, the recipe is read from the copied bytes
        themselves, because another writer may replace the table meanwhile. Raises `StoreError`; nothing is lost then.
        """
        try:
            content = None if self._objects.local else self._objects.get(table)
            metadata = pq.read_metadata(table if content is None else pa.BufferReader(content)).metadata or {}
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError("{table} cannot be read ({error}); run again", table, error.strerror or error) from error
        recipe = metadata.get(RECIPE, b"").decode()
        if recipe in ("", current):
            return True
        number = max((entry.number for entry in self._entries()), default=0) + 1
        copy = f"{self._folder}/{number:06d}-{recipe}.parquet"
        if content is None:
            replace_file(Path(copy), lambda temporary: _link(table, temporary))
        else:
            self._objects.put(copy, content)
        return True

    def outdated(self, most: int, current: str) -> list[str]:
        """Return the paths of all but the newest `most` versions.

        Any of the `current` recipe are among them.
        """
        entries, paths = self._entries(), []
        recipes = list(dict.fromkeys(entry.recipe for entry in entries if entry.recipe != current))[:most]
        for entry in entries:
            if entry.recipe in recipes:
                # Only the newest of a recipe is kept; after a kill there may be a second one.
                recipes.remove(entry.recipe)
            else:
                paths.append(entry.path)
        return paths

    def remove(self, paths: Iterable[str]) -> None:
        """Remove these versions. Raises `StoreError`."""
        for path in paths:
            try:
                self._objects.remove(path)
            except OSError as error:
                form = "{path} cannot be removed ({error}): remove it"
                raise StoreError(form, path, error.strerror or error) from error

    def _entries(self) -> list[_Version]:
        """Return the kept files, newest first; after a kill, a recipe may occur twice."""
        entries = []
        for file in self._objects.listed(self._folder):
            path = PurePosixPath(file["name"])
            if path.suffix == ".parquet":
                number, _, recipe = path.stem.partition("-")
                entries.append(_Version(int(number), recipe, file["name"]))
        return sorted(entries, reverse=True)


def _link(table: str, name: Path) -> None:
    """Give the file a second name, or copy it if hard links are not supported."""
    try:
        os.link(table, name)
    except OSError:
        shutil.copyfile(table, name)
