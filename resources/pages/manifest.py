"""The shard manifest: a small JSON file that says which files the corpus is made of.

It is read whenever the definitions load, in every process, so it opens no corpus file, asks no
network and imports nothing heavy; one that nodes share on object storage is one request.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from resources.errors import SourceError
from resources.pages.places.corpus_place import CorpusPlace, place_of
from resources.printable import visible
from resources.urls import is_url

NAME = "shards.json"
GOLD = "gold.parquet"
"""The known answers of the corpus, beside its manifest, where there are some."""
VERSION = 1
_SHOWN = 80
"""Characters of a value that a message shows."""
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
"""The corpus of a home that has none of its own."""


def shard_key(index: int) -> str:
    """The partition key of the shard at `index`, from 0."""
    return f"shard_{index:02d}"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Shard(_Entry):
    """One file of pages. `duplicates` are the ids in it that belong to a page of an earlier shard.

    `text_layers` counts its pages whose PDF says what is written on them.
    """

    key: str
    file: str
    format: Literal["arrow", "parquet"]
    rows: int = Field(ge=1)
    bytes: int = Field(ge=1)
    sha256: str
    duplicates: list[str] = []
    text_layers: int = 0


class QueryFile(_Entry):
    """The queries of the corpus. `unknown` are the ground-truth pages that no shard holds."""

    file: str
    rows: int = Field(ge=1)
    sha256: str
    unknown: list[str] = []


class Manifest(_Entry):
    """The shards in order, and the queries, if there are any.

    Files are named relative to the manifest's folder when they lie in it, else by their full path or URL.
    """

    version: Literal[1] = VERSION
    source: str
    revision: str | None = None
    shards: list[Shard] = Field(min_length=1)
    queries: QueryFile | None = None
    _place: CorpusPlace = PrivateAttr()

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if [shard.key for shard in self.shards] != [shard_key(index) for index in range(len(self.shards))]:
            raise ValueError(f"shard keys must run from {shard_key(0)} in order")
        return self

    @classmethod
    def load(cls, where: Path | CorpusPlace) -> Self:
        """The manifest of a home or of the place of its index; of the samples when nothing was indexed on this machine.

        Raises `SourceError`, and `StoreError` where a storage does not answer.
        """
        place = place_of(where)
        return cls._read(place if place.remote or (place.folder / NAME).exists() else CorpusPlace(SAMPLES))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The manifest at `path`. Raises `SourceError`."""
        return cls._read(CorpusPlace(path.parent), path.name)

    @classmethod
    def _read(cls, place: CorpusPlace, name: str = NAME) -> Self:
        path = place.location(name)
        try:
            content = parsed_json(place.read(name))
            version = content.get("version") if isinstance(content, dict) else None
            if version is not None and version != VERSION:
                raise SourceError(
                    f"{path} has format {visible(repr(version), _SHOWN)}, this release reads {VERSION}: "
                    "run `kopub index SOURCE` again"
                )
            manifest = cls.model_validate(content)
        except OSError as error:
            reason = error.strerror if not place.remote else "it is not there"
            raise SourceError(f"{path} cannot be read ({reason}): run `kopub index SOURCE`") from None
        except ValidationError as error:
            raise SourceError(_unusable(path, first_fault(error))) from None
        except ValueError as error:
            raise SourceError(_unusable(path, str(error))) from None
        manifest._place = place
        return manifest

    def to_json(self) -> str:
        """The manifest as it is written."""
        return self.model_dump_json(indent=1) + "\n"

    @property
    def keys(self) -> list[str]:
        """The partition keys, in corpus order."""
        return [shard.key for shard in self.shards]

    @property
    def rows(self) -> int:
        """Pages in the whole corpus."""
        return sum(shard.rows for shard in self.shards)

    def shard(self, key: str) -> Shard:
        """The shard of a partition key. Raises `SourceError`."""
        try:
            return self._by_key[key]
        except KeyError:
            first, last = self.shards[0].key, self.shards[-1].key
            raise SourceError(f"there is no {key}: the corpus has {first} to {last}") from None

    @cached_property
    def _by_key(self) -> dict[str, Shard]:
        return {shard.key: shard for shard in self.shards}

    @property
    def location(self) -> str:
        """Where the corpus came from: the id of a Hub dataset, a URL, or a folder or file on this machine."""
        if self.revision or is_url(self.source):
            return self.source
        place = self.place(self.source)
        return place if is_url(place) else str(Path(place).resolve())

    @property
    def name(self) -> str:
        """What a release calls the corpus: a Hub dataset at its commit, or the folder's own name, no local path."""
        return f"{self.source} at {self.revision}" if self.revision else Path(self.location).name

    @property
    def index(self) -> CorpusPlace:
        """Where the manifest lies."""
        return self._place

    def place(self, file: str) -> str:
        """The path or URL of a file of the manifest."""
        return self._place.location(file)

    @contextmanager
    def held(self, file: str, sha256: str | None = None) -> Iterator[Path]:
        """A file of the manifest on this disk, while the context is open; what is mapped by then stays mapped.

        Raises `SourceError` for one at a URL that is not there, or has another SHA-256, and `StoreError`.
        """
        with self._place.held(file, sha256) as path:
            yield path


def parsed_json(content: bytes) -> Any:
    """The value of a JSON file. Raises `ValueError` when it is no JSON or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def first_fault(error: ValidationError) -> str:
    """The first error of a validation in one line, with the place in the value."""
    first = error.errors()[0]
    where = visible(".".join(map(str, first["loc"])), _SHOWN) or "it"
    return f"{where}: {visible(first['msg'])}"


def _unusable(path: str, reason: str) -> str:
    return f"{path} is not a shard manifest ({reason}): run `kopub index SOURCE` again"
