"""Where a home and its tables lie: what a command needs that only reads tables. Loads no engine and no Dagster."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from resources.config.environment import read_environment
from resources.config.overrides import put
from resources.config.places import store_url
from resources.config.profile_files import profile_path, read_profile
from resources.config.section_names import SECTIONS, VALUES
from resources.errors import ConfigError
from resources.pages.manifest import Manifest

if TYPE_CHECKING:
    from resources.store.table_store import TableStore

STORE = "store"


class _Store(BaseModel):
    """The one key of the section that says where tables lie."""

    model_config = ConfigDict(extra="ignore")

    url: str = ""


class _Profile(BaseModel):
    """The one section that is read."""

    model_config = ConfigDict(extra="ignore")

    store: _Store = Field(default_factory=_Store)


@dataclass(frozen=True)
class Located:
    """A home, the name of its profile, and the folder or URL of its tables."""

    home: Path
    profile_name: str
    store_url: str

    @cached_property
    def manifest(self) -> Manifest:
        """The index of the corpus. Raises `SourceError`."""
        return Manifest.load(self.home)

    @cached_property
    def store(self) -> "TableStore":
        """The tables."""
        from resources.store.table_store import TableStore

        return TableStore(self.store_url)


def locate(environ: Mapping[str, str]) -> Located:
    """The home and the tables that these environment variables and their profile name. Raises `ConfigError`.

    Of the profile the place of the tables alone is looked at: another mistake in it is for those to find who use it.
    """
    environment = read_environment(environ, SECTIONS, VALUES)
    path = profile_path(environment.profile)
    values = {STORE: read_profile(path).get(STORE) or {}}
    for override in environment.overrides:
        if override.path[0] == STORE:
            put(override, values, _Profile)
    try:
        given = _Profile.model_validate(values).store.url
        return Located(environment.home, path.stem, store_url(given) if given else str(environment.home / STORE))
    except (ValidationError, ValueError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ConfigError(f"profile {path.stem}: store.url: {problem}") from None
