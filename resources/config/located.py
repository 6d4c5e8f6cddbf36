"""Finds a home and its tables, for commands that only read tables.

Loads no engine and no Dagster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from resources.config.environment import put, read_environment
from resources.config.places import store_url
from resources.config.profile_files import find_profile
from resources.errors import ConfigError
from resources.pages.manifest import Manifest
from resources.pages.places import CACHE_GB, CorpusPlace

if TYPE_CHECKING:
    from resources.store.table_store import TableStore

ENGINES = ("layout", "recognition", "embedding", "notes", "reranking")
"""The sections that choose an engine."""
SECTIONS = (
    *ENGINES,
    "figures",
    "documents",
    "corpus",
    "store",
    "release",
    "hub",
    "pdf",
    "gates",
    "upgrades",
    "search",
    "reading_room",
)
VALUES = ("shards_per_run",)
"""Keys that are no sections."""


STORE, CORPUS = "store", "corpus"


class _Store(BaseModel):
    """The one key of the section that says where tables lie."""

    model_config = ConfigDict(extra="ignore")

    url: str = ""


class _Corpus(BaseModel):
    """The section that says where the index lies."""

    model_config = ConfigDict(extra="ignore")

    url: str = ""
    cache_gb: float = Field(default=CACHE_GB, gt=0)


class _LocatedProfile(BaseModel):
    """The sections of a profile that are read here."""

    model_config = ConfigDict(extra="ignore")

    store: _Store = Field(default_factory=_Store)
    corpus: _Corpus = Field(default_factory=_Corpus)


@dataclass(frozen=True)
class Location:
    """A home, the name of its profile, and the places of its tables and index."""

    home: Path
    profile_name: str
    store_url: str
    index_url: str = ""
    cache_gb: float = CACHE_GB

    @property
    def corpus(self) -> CorpusPlace:
        """The place where the corpus is indexed."""
        return CorpusPlace(self.home, self.index_url, self.cache_gb)

    @cached_property
    def manifest(self) -> Manifest:
        """The index of the corpus.

        Raises `SourceError`.
        """
        return Manifest.load(self.corpus)

    @cached_property
    def store(self) -> "TableStore":
        """The store of the home's tables."""
        from resources.store.table_store import TableStore

        return TableStore(self.store_url)


def locate(environ: Mapping[str, str]) -> Location:
    """Return the home and the tables that these environment variables name.

    Their profile names the tables. Raises `ConfigError`. Of the profile these places alone are looked at: other
    mistakes in it are found by the commands that use it.
    """
    environment = read_environment(environ, SECTIONS, VALUES)
    profile = find_profile(environment.profile)
    values = {section: profile.sections.get(section) or {} for section in (STORE, CORPUS)}
    for override in environment.overrides:
        if override.path[0] in values:
            put(override, values, _LocatedProfile)
    try:
        given = _LocatedProfile.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"profile {profile.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    tables = _absolute(profile.name, STORE, given.store.url) or str(environment.home / STORE)
    index = _absolute(profile.name, CORPUS, given.corpus.url).rstrip("/")
    return Location(environment.home, profile.name, tables, index, given.corpus.cache_gb)


def _absolute(profile: str, section: str, url: str) -> str:
    """Return the absolute path, or the URL that a package opens; empty for none."""
    try:
        return store_url(url) if url else url
    except ValueError as error:
        raise ConfigError(f"profile {profile}: {section}.url: {error}") from None
