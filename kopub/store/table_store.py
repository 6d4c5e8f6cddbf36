"""The store: one Parquet table per asset and shard, replaced whole."""

import hashlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from kopub.engine import ProfileOnly, Resource
from kopub.errors import DamagedTable, MissingTable, first_line
from kopub.files import replace_bytes, write_new
from kopub.fingerprints import fingerprint
from kopub.states import phrase
from kopub.store.append_log import REASONS, AppendLog, Journal
from kopub.store.faults import is_damage, translate_errors
from kopub.store.locks import DiskLock, Lock, ObjectLock, acquire_lock, find_lock, release_lock
from kopub.store.objects import Objects, fetched_once
from kopub.store.versions import FOLDER, Version, Versions

_log = logging.getLogger(__name__)
_LOCKS = ".locks"
JOURNAL = ".journal"
"""Folder of the finished rows of unfinished tables."""
_METADATA_PREFIX = b"kopub."
_COMPRESSION = "zstd"
_PROOF, _PROVED = b"proof", b"proved"
"""Keys of a file's metadata: the SHA-256 of the bytes before its footer, and a flag that there must be one. A program
that reads a table and writes it again keeps only the flag."""
_SAID = b"said"
"""Key of the fingerprint of the metadata that says how a table was made."""
KEPT = 2
"""Number of replaced versions kept of each table."""


class TableStore:
    """Tables under `url`, at `<asset>/<shard>.parquet`; any fsspec URL or folder.

    A table is published by one rename (local) or one upload (object storage): a killed writer leaves either the old
    table or the new one, and a writer that lost its lock publishes nothing. Asset and shard names are the platform's
    own, never taken from page data. A table replaced by one of another recipe is kept as a version, in
    `.versions/<asset>/<shard>/`.
    """

    url: str
    keep_versions: int

    def __init__(self, url: str, keep_versions: int = KEPT) -> None:
        self.url, self.keep_versions = url, keep_versions

    def has(self, asset: str, shard: str) -> bool:
        return self._objects.has(self._path(asset, shard))

    def published(self, asset: str) -> dict[str, str]:
        """Return the shards of an asset's tables, each with a mark that identifies its file.

        A file that replaces another has a different mark.
        """
        marks: dict[str, str] = {}
        for file in self._objects.listed(f"{self._root}/{asset}"):
            if file["name"].endswith(".parquet"):
                marks[PurePosixPath(file["name"]).stem] = fingerprint({key: str(value) for key, value in file.items()})
        return marks

    def read(
        self, asset: str, shard: str, columns: Sequence[str] | None = None, version: str | None = None
    ) -> pa.Table:
        """Return the table, or only `columns` of it.

        It is the current table, or the kept `version` with that recipe. A whole table is checked against the hash with
        which it was written, and columns by the checksums of their pages. Raises `MissingTable`, also for a version
        that is not kept, and `DamagedTable`.
        """
        # `read_table` would load Arrow's datasets, and with them pandas, which takes a fifth of a second.
        with self._reading(asset, shard, version, whole=columns is None) as file:
            if columns is None:
                return _prove(file.read_buffer())
            table = pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True)
            if absent := set(columns) - set(table.schema_arrow.names):
                raise pa.ArrowInvalid(phrase("no column {absent}", ", ".join(sorted(absent))))
            return table.read(list(columns)).select(list(columns))

    def open(self, asset: str, shard: str) -> pq.ParquetFile:
        """Return the table as an open file, for reading single rows. Raises `StoreError`."""
        path = self._path(asset, shard)
        with self._translate_errors(asset, shard, None):
            return pq.ParquetFile(self._opened(path), page_checksum_verification=True)

    def find(self, asset: str, shard: str) -> tuple[pa.Table, dict[str, str]] | None:
        """Return the table and its metadata; None if not made yet. Raises `StoreError`."""
        try:
            table = self.read(asset, shard)
        except MissingTable:
            return None
        with self._translate_errors(asset, shard, None):
            return table, _stored_metadata(table.schema.metadata)

    def find_sound(
        self, asset: str, shard: str, warn: Callable[[str], None] = _log.warning
    ) -> tuple[pa.Table, dict[str, str]] | None:
        """Return what `find` does, or None with a warning if the table is damaged.

        This is for a caller that can make the table again. Raises `StoreError`.
        """
        try:
            return self.find(asset, shard)
        except DamagedTable as error:
            warn(f"{str(error).partition(';')[0]}: it is made again")
            return None

    def arrow_schema(self, asset: str, shard: str, version: str | None = None) -> pa.Schema:
        """Return the columns of the table with their types, without reading rows."""
        with self._reading(asset, shard, version) as file:
            return pq.read_schema(file)

    def columns(self, asset: str, shard: str, version: str | None = None) -> list[str]:
        return self.arrow_schema(asset, shard, version).names

    def metadata(self, asset: str, shard: str, version: str | None = None) -> dict[str, str]:
        """Return the metadata with which the table was written."""
        with self._reading(asset, shard, version) as file:
            return _stored_metadata(pq.read_metadata(file).metadata)

    def footer(self, asset: str, shard: str) -> tuple[int, dict[str, str]]:
        """Return the table's number of rows and its metadata in one read."""
        with self._reading(asset, shard) as file:
            footer = pq.read_metadata(file)
            return footer.num_rows, _stored_metadata(footer.metadata)

    def versions(self, asset: str, shard: str) -> list[Version]:
        """Return the kept versions that differ from the current table, newest first.

        If the current table is damaged, all versions are returned. Raises `StoreError`.
        """
        kept = self._versions(asset, shard)
        recipes, versions, now = kept.recipes(), [], None
        with suppress(MissingTable, DamagedTable):
            now = self.metadata(asset, shard).get("recipe") if recipes else None
        for recipe in recipes:
            if recipe == now:
                continue
            try:
                with self._translate_errors(asset, shard, recipe):
                    versions.append(kept.describe(recipe))
            except MissingTable:
                # A run that publishes the shard has just evicted this version.
                continue
            except DamagedTable as error:
                self._objects.set_aside(kept.path(recipe), error)
        return versions

    def write(
        self, asset: str, shard: str, table: pa.Table, metadata: Mapping[str, str], replaces: bool = True
    ) -> None:
        """Replace the table.

        Raises `StoreError` if it cannot be written; the old table is then untouched. `replaces` is false if the caller
        knows that there is no old table.
        """
        path, versions, lock = self._path(asset, shard), self._versions(asset, shard), self._lock(asset, shard)
        recipe, is_first = metadata.get("recipe", ""), not replaces
        # Tables without a recipe, such as scores, have no versions.
        replaces = replaces and bool(recipe)
        if lock is not None:
            lock.check()
        if replaces and self.keep_versions:
            with self._translate_errors(asset, shard, None):
                replaces = versions.keep(path, recipe)
        # After the publication, another process may hold the lock and have kept a version of this table.
        outdated = versions.outdated(self.keep_versions, recipe) if replaces else []
        stamped = {_METADATA_PREFIX + key.encode(): value.encode() for key, value in metadata.items()}
        content = _parquet(table.replace_schema_metadata({**stamped, _SAID: _fingerprint_of(stamped)}))
        if isinstance(lock, ObjectLock):
            lock.publish(path, content.to_pybytes(), is_first)
        else:
            self._put(path, content, replace_bytes)
        versions.remove(outdated)

    def update(self, asset: str, shard: str, table: pa.Table, metadata: Mapping[str, str]) -> None:
        """Write the table, unless it already has these rows and metadata. Raises `StoreError`."""
        try:
            stored = self.find(asset, shard)
        except DamagedTable:
            stored = None
        if stored is None or stored[1] != metadata or not stored[0].equals(table):
            self.write(asset, shard, table, metadata)

    @contextmanager
    def exclusive(self, asset: str, shard: str, wait: bool = True) -> Iterator[None]:
        """Let one process at a time make a table.

        The others wait or, without `wait`, raise `BusyTable` at once. The context may end in another thread. Raises
        `StoreError`.
        """
        what, name = phrase("{asset} of {shard}", asset, shard), self._lock_name(asset, shard)
        lock = DiskLock(f"{name}.lock", what) if self._objects.local else ObjectLock(self._objects, name, what)
        acquire_lock(name, lock, what, wait)
        try:
            yield
        finally:
            release_lock(name)

    @property
    def local(self) -> bool:
        """Return whether the tables are on a disk of this machine."""
        return self._objects.local

    def fetched_once(self) -> AbstractContextManager[None]:
        """Fetch each small table once for all reads of this thread until the context ends.

        This has an effect only on object storage.
        """
        return fetched_once()

    def journal(self, asset: str, shard: str, schema: pa.Schema) -> Journal:
        return Journal(self.parts(JOURNAL, asset, shard), schema, self.parts(REASONS, asset))

    def location(self, asset: str, shard: str | None = None) -> str:
        """Return the path or URL of a table, or of an asset's folder."""
        inside = f"/{asset}" if shard is None else f"/{asset}/{shard}.parquet"
        return self._objects.fs.unstrip_protocol(self._root + inside).removeprefix("file://")

    def parts(self, *folder: str, saves_work: bool = True) -> AppendLog:
        """Return the log of small tables in a folder beside the tables.

        The folder's name begins with a dot. If an asset and a shard follow, their lock applies. `saves_work` is false
        if nobody can make its rows again.
        """

        def lock() -> Lock | None:
            return self._lock(*folder[1:]) if len(folder) == 3 else None

        def put(path: str, table: pa.Table, new: bool) -> bool:
            if new and not self.local:
                return self._objects.create(path, _parquet(table).to_pybytes())
            self._put(path, _parquet(table), write_new)
            return True

        return AppendLog(self._objects, "/".join((self._root, *folder)), put, lock, saves_work)

    @property
    def _objects(self) -> Objects:
        return Objects.at(self.url)[0]

    @property
    def _root(self) -> str:
        return Objects.at(self.url)[1]

    def _lock_name(self, asset: str, shard: str) -> str:
        return f"{self._root}/{_LOCKS}/{asset}.{shard}"

    def _lock(self, asset: str, shard: str) -> Lock | None:
        """Return the lock of a table if this process holds it."""
        return find_lock(self._lock_name(asset, shard))

    def _path(self, asset: str, shard: str) -> str:
        return f"{self._root}/{asset}/{shard}.parquet"

    def _versions(self, asset: str, shard: str) -> Versions:
        return Versions(self._objects, f"{self._root}/{FOLDER}/{asset}/{shard}")

    @contextmanager
    def _reading(self, asset: str, shard: str, version: str | None = None, whole: bool = False) -> Iterator[Any]:
        with self._translate_errors(asset, shard, version):
            path = self._path(asset, shard) if version is None else self._versions(asset, shard).path(version)
            with translate_errors(path, "read"), self._opened(path, whole) as file:
                yield file

    def _opened(self, path: str, whole: bool = False) -> Any:
        if self._objects.local:
            # Arrow opens the file itself, because its threads may outlive a command and must not need Python then.
            return pa.OSFile(path)
        return pa.BufferReader(self._objects.whole(path)) if whole else self._objects.open(path)

    @contextmanager
    def _translate_errors(self, asset: str, shard: str, version: str | None) -> Iterator[None]:
        """Turn read errors into `MissingTable` and `DamagedTable`."""
        try:
            yield
        except FileNotFoundError:
            if version is None:
                form = "{asset} of {shard} has not been made yet: `kopub run` makes it"
                raise MissingTable(form, asset, shard) from None
            raise MissingTable("{asset} of {shard} is not kept at recipe {version}", asset, shard, version) from None
        except Exception as error:
            if not is_damage(error):
                raise
            path = self._path(asset, shard) if version is None else self._versions(asset, shard).path(version)
            form = "materialize {asset} to make it again"
            then = phrase(form, asset) if version is None else "it is only an old version: delete it"
            raise DamagedTable("{path} is damaged ({error}); {remedy}", path, first_line(error), then) from None

    def _put(self, path: str, content: pa.Buffer, write_local: Callable[[Path, pa.Buffer], object]) -> None:
        objects = self._objects
        if objects.local:
            write_local(Path(path), content)
        else:
            objects.put(path, content.to_pybytes())


def _parquet(table: pa.Table) -> pa.Buffer:
    """Return a table as Parquet, with the SHA-256 of all before the footer in it."""
    sink = pa.BufferOutputStream()
    file = _HashingStream(sink)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _PROVED: b"1"})
    with pq.ParquetWriter(file, table.schema, compression=_COMPRESSION, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_PROOF: file.sha256.hexdigest()})
    return sink.getvalue()


class _HashingStream(io.RawIOBase):
    """A file object that writes bytes to a stream and hashes them."""

    def __init__(self, sink: pa.BufferOutputStream) -> None:
        self.sha256 = hashlib.sha256()
        self._sink = sink

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sink.tell()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self._sink.write(data)
        return len(data)


def _prove(content: pa.Buffer) -> pa.Table:
    """Return the table of a file. Raises `pa.ArrowInvalid` if its rows were changed."""
    file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    table = file.read()
    # A file holds its metadata twice; of the copy in its Arrow schema, only the types count.
    metadata = dict(file.metadata.metadata or {})
    metadata.pop(b"ARROW:schema", None)
    # Files of earlier releases have no proof.
    if metadata.pop(_PROVED, None) or _PROOF in metadata:
        footer = int.from_bytes(content[-8:-4], "little") + 8
        if metadata.pop(_PROOF, b"").decode() != hashlib.sha256(content[:-footer]).hexdigest():
            raise pa.ArrowInvalid("its rows were changed after they were written")
    return table.replace_schema_metadata(metadata)


def _stored_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return the metadata stored with a table. Raises `pa.ArrowInvalid` if it was changed."""
    own = {key: value for key, value in (metadata or {}).items() if key.startswith(_METADATA_PREFIX)}
    # Files of earlier releases have no fingerprint.
    if metadata and metadata.get(_SAID, expected := _fingerprint_of(own)) != expected:
        raise pa.ArrowInvalid("what it says of its making was changed after it was written")
    return {key.removeprefix(_METADATA_PREFIX).decode(): value.decode() for key, value in own.items()}


def _fingerprint_of(metadata: Mapping[bytes, bytes]) -> bytes:
    return hashlib.sha256(repr(sorted(metadata.items())).encode()).hexdigest().encode()


class ShardStore(Resource, TableStore):
    """The configured store: tables at `<asset>/<shard>.parquet` under `url`.

    `url` is any fsspec URL or folder.
    """

    url: ProfileOnly[str] = Field(
        description="Folder or fsspec URL (s3://bucket/prefix, memory://store) of the tables."
    )
    keep_versions: int = Field(
        default=KEPT,
        ge=0,
        description="Replaced versions of each table to keep; each is as large as a table.",
    )
    allow_downgrade: bool = Field(
        default=False, description="Replace tables that a newer release of KoPub made, instead of refusing to."
    )
