"""The shard manifest, a JSON file that lists what the corpus consists of.

Every process reads it whenever the definitions load, so this opens no corpus file, uses no network and imports nothing
heavy; a manifest shared on object storage takes one request.
"""

import json
import re
import shlex
from collections.abc import Collection
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from kopub.errors import SourceError, did_you_mean, visible
from kopub.files import is_url
from kopub.fingerprints import fingerprint
from kopub.folders import SAMPLES
from kopub.pages.places import CorpusPlace, place_of
from kopub.states import phrase

NAME = "shards.json"
BEGUN = "indexing.txt"
"""The file that names the source of a home whose first index is not finished."""
LEFT_OUT = "left_out.txt"
"""The list of files that are not in the corpus: per line, the name, the reason and the source, separated by tabs."""
GOLD = "gold.parquet"
"""The file of known answers beside the manifest, if the corpus has any."""
VERSION = 2
_OLDER = 1
"""The format of a corpus with one source, which is still read."""
_KEY = re.compile(r"shard_(\d{2,})")
_SHOWN = 80
"""Most characters of a value shown in a message."""


def shard_key(number: int) -> str:
    """Return the partition key for a number, from 0."""
    return f"shard_{number:02d}"


def shard_number(key: str) -> int:
    """Return the number in a partition key. Raises `ValueError` for any other text."""
    match = _KEY.fullmatch(key)
    if match is None or shard_key(number := int(match[1])) != key:
        raise ValueError(f"{visible(repr(key), _SHOWN)} is not a shard key")
    return number


class _FileEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CorpusSource(_FileEntry):
    """A folder, file, URL or Hub dataset that pages come from.

    `name` is unique in the corpus. `place` is what a person named, made relative if it is below the index. `dpi` is the
    resolution at which its PDFs were drawn. `indexed_at` is when its index last changed. `failed` counts pages that
    could not be made for a reason that may be temporary. `queries` counts its queries in the table of queries.
    `copies_of` names the sources that already have some of its files, which are left out of this one. `left` counts
    pages that a first look left for later.
    """

    name: str
    place: str
    revision: str | None = None
    dpi: int | None = None
    indexed_at: datetime | None = None
    documents: int | None = None
    failed: int = 0
    queries: int = 0
    copies_of: list[str] = []
    left: int = 0


class Shard(_FileEntry):
    """One file of pages, from the source named `source`.

    `duplicates` are the ids in it that belong to a page of an earlier shard. `text_layers` counts its pages with a text
    layer.
    """

    key: str
    file: str
    format: Literal["arrow", "parquet"]
    rows: int = Field(ge=1)
    bytes: int = Field(ge=1)
    sha256: str
    duplicates: list[str] = []
    text_layers: int = 0
    source: str = ""


class QueryFile(_FileEntry):
    """The queries of the corpus. `unknown` are the ground-truth pages that no shard holds."""

    file: str
    rows: int = Field(ge=1)
    sha256: str
    unknown: list[str] = []


class Manifest(_FileEntry):
    """The sources, their shards in the order of keys, and the queries.

    A shard keeps its key as long as its file is in the corpus. `retired` holds the keys of removed shards, with the
    SHA-256 of their files: no other file gets such a key, and the same file gets it back. Files are named relative to
    the manifest's folder if they are in it, else by their full path or URL. `written` is when the file of each shard
    was last written, by key, in nanoseconds; files at URLs have no entry.
    """

    version: Literal[2] = VERSION
    sources: list[CorpusSource] = Field(min_length=1)
    shards: list[Shard] = Field(min_length=1)
    queries: QueryFile | None = None
    retired: dict[str, str] = {}
    written: dict[str, int] = {}
    _place: CorpusPlace = PrivateAttr()

    @model_validator(mode="after")
    def _check(self) -> Self:
        numbers = [shard_number(shard.key) for shard in self.shards]
        if numbers != sorted(set(numbers)):
            raise ValueError("the shards are not in the order of their keys, each with a key of its own")
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError("two sources have one name")
        if strange := {shard.source for shard in self.shards} - set(names):
            raise ValueError(phrase("there is no source {name}", visible(min(strange), _SHOWN)))
        return self

    @classmethod
    def load(cls, where: Path | CorpusPlace) -> Self:
        """Return the manifest of a home, or of a corpus's place.

        It is the samples' manifest if nothing was indexed on this machine. Raises `SourceError`, also if the first
        indexing did not end, and `StoreError` if a storage does not answer.
        """
        place = place_of(where)
        if not place.remote and not place.has(NAME) and place.has(BEGUN):
            source = place.read(BEGUN).decode(errors="replace")
            form = "{place} has no index yet, because that of {source} was not finished: `kopub index {typed}` goes on"
            raise SourceError(form, place, source, shlex.quote(source))
        if not place.remote and not (place.folder / NAME).exists():
            place = CorpusPlace(SAMPLES)
        path = place.location(NAME)
        try:
            content = parsed_json(place.read(NAME))
            version = content.get("version") if isinstance(content, dict) else None
            if version not in (None, _OLDER, VERSION):
                form = "{path} has format {version}, this release reads {own}: run `kopub index SOURCE` again"
                raise SourceError(form, path, visible(repr(version), _SHOWN), VERSION)
            if version == _OLDER:
                older = _OlderManifest.model_validate(content)
                count = older.queries.rows if older.queries else 0
                name = older.source if older.revision else name_of(place.location(older.source))
                source = CorpusSource(name=name, place=older.source, revision=older.revision, queries=count)
                shards = [shard.model_copy(update={"source": name}) for shard in older.shards]
                manifest = cls(sources=[source], shards=shards, queries=older.queries)
            else:
                manifest = cls.model_validate(content)
        except OSError as error:
            reason = error.strerror if not place.remote else "it is not there"
            raise SourceError("{path} cannot be read ({error}): run `kopub index SOURCE`", path, reason) from None
        except ValueError as error:
            reason = first_fault(error) if isinstance(error, ValidationError) else str(error)
            form = "{path} is not a shard manifest ({error}): run `kopub index SOURCE` again"
            raise SourceError(phrase(form, path, reason)) from None
        manifest._place = place
        return manifest

    def to_json(self) -> str:
        """Return the manifest as the text of its file."""
        return self.model_dump_json(indent=1) + "\n"

    @property
    def keys(self) -> list[str]:
        """The partition keys, in corpus order."""
        return [shard.key for shard in self.shards]

    @property
    def rows(self) -> int:
        """Number of pages in the whole corpus."""
        return sum(shard.rows for shard in self.shards)

    @property
    def left(self) -> int:
        """The number of pages that first looks left for later."""
        return sum(source.left for source in self.sources)

    def shard(self, key: str) -> Shard:
        """Return the shard of a partition key. Raises `SourceError`."""
        try:
            return self._by_key[key]
        except KeyError:
            raise SourceError("there is no shard {shard}: `kopub shards` lists them all", key) from None

    @cached_property
    def _by_key(self) -> dict[str, Shard]:
        return {shard.key: shard for shard in self.shards}

    def source(self, name: str) -> CorpusSource:
        """Return the source with a name or place. Raises `SourceError`."""
        for source in self.sources:
            if name in (source.name, source.place, self.location_of(source)):
                return source
        names = [source.name for source in self.sources]
        form = "there is no source {name}{guess}; the corpus has {names}"
        raise SourceError(form, visible(name, _SHOWN), did_you_mean(name, names), ", ".join(names))

    def named(self, place: str) -> CorpusSource | None:
        """Return the source at a path, URL or Hub id, else None."""
        places = {place, place.rstrip("/"), *(() if is_url(place) else [str(Path(place).resolve())])}
        return next((source for source in self.sources if self.location_of(source) in places), None)

    def shards_of(self, source: str) -> list[Shard]:
        """Return the shards of the source with this name."""
        return [shard for shard in self.shards if shard.source == source]

    def shards_to_search(self, shards: Collection[str], sources: Collection[str], since: str = "") -> frozenset[str]:
        """Return the keys of `shards` of any of `sources` that were indexed `since` a date.

        The date is written YYYY-MM-DD. Empty if none of them is given, which means all. Raises `SourceError`.
        """
        if not sources and not since:
            return frozenset(shards)
        named_sources = list(map(self.source, sources)) or self.sources
        if since:
            try:
                first = date.fromisoformat(since)
            except ValueError:
                raise SourceError("{day!r} is no date: write it as 2026-01-31", since) from None
            recent: list[CorpusSource] = []
            for source in named_sources:
                if source.indexed_at is not None and source.indexed_at.astimezone().date() >= first:
                    recent.append(source)
            named_sources = recent
            if not named_sources:
                raise SourceError("nothing was indexed since {day}: `kopub sources` says when each source was", since)
        names = [source.name for source in named_sources]
        of_sources = {shard.key for shard in self.shards if shard.source in names}
        if shards and not of_sources & set(shards):
            named = phrase("{names} is not of {sources}", ", ".join(shards), ", ".join(names))
            raise SourceError("{reason}: `kopub sources --json` lists the shards of each", named)
        return frozenset(of_sources & set(shards) if shards else of_sources)

    def location_of(self, source: CorpusSource) -> str:
        """Return a source's place: a Hub dataset's id, a URL, or a local path."""
        if source.revision or is_url(source.place):
            return source.place
        place = self.place(source.place)
        return place if is_url(place) else str(Path(place).resolve())

    @property
    def location(self) -> str:
        """The places of the sources, separated by commas."""
        return ", ".join(map(self.location_of, self.sources))

    @property
    def name(self) -> str:
        """The name of the corpus in a release: Hub datasets with commits, and folder names."""
        names = [f"{source.name} at {source.revision}" if source.revision else source.name for source in self.sources]
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))

    @property
    def index(self) -> CorpusPlace:
        """The place from which the manifest was loaded."""
        return self._place

    def place(self, file: str) -> str:
        """Return the path or URL of a file of the manifest."""
        return self._place.location(file)


class _OlderManifest(_FileEntry):
    """A manifest in the previous format, which had one source."""

    version: Literal[1] = _OLDER
    source: str
    revision: str | None = None
    shards: list[Shard] = Field(min_length=1)
    queries: QueryFile | None = None


def name_of(location: str) -> str:
    """Return the short name of a source: the last part of its path or URL."""
    if is_url(location):
        return location.rstrip("/").rpartition("/")[2] or location
    path = Path(location).resolve()
    return path.name or str(path)


def parsed_json(content: bytes) -> Any:
    """Parse JSON. Raises `ValueError` for other bytes, or nesting that is too deep."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def first_fault(error: ValidationError) -> str:
    """Return the first error of a validation in one line, with its place."""
    first = error.errors()[0]
    where = visible(".".join(map(str, first["loc"])), _SHOWN) or "it"
    return f"{where}: {visible(first['msg'])}"


def shard_source(shard: Shard) -> str:
    """Return the fingerprint of a shard's file as indexed, which `raw_pages` reads."""
    return fingerprint([Path(shard.file).name, shard.rows, shard.sha256, shard.duplicates])
