"""manifest.json: what a release should hold, for telling two releases apart and one that is not whole. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from resources.errors import StoreError
from resources.printable import visible
from resources.release.dataset.part_paths import ALL_CONFIGS

if TYPE_CHECKING:
    from resources.release.dataset.released_files import Inventory

NAME = "manifest.json"
DATA = re.compile(rf"data/(?P<config>{'|'.join(ALL_CONFIGS)})/(?P<shard>shard_[0-9]+)\.parquet")
"""Every path that a release may have data at, and a repository loses when the release has lost it."""
_SHARD = re.compile(r"shard_[0-9]+")
_PLACE = re.compile(rf"data/[a-z_]+/{_SHARD.pattern}\.parquet")
"""Paths that a later version may list too, of configs that this one does not know and leaves out."""
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Listed:
    """A data file as the manifest has it."""

    sha256: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """`shards` are all that the corpus has, released or not; `files` the released ones by path."""

    shards: Sequence[str]
    files: Mapping[str, Listed]

    @property
    def missing(self) -> list[str]:
        """Shards of the corpus that are not in the release."""
        released = {match["shard"] for path in self.files if (match := DATA.fullmatch(path))}
        return [shard for shard in self.shards if shard not in released]


def listed(inventory: "Inventory", shards: Sequence[str], hashes: Mapping[str, str]) -> Manifest:
    """The manifest of a release that holds the parts of `inventory`; `hashes` are theirs by path."""
    parts = (part for of_config in inventory.values() for part in of_config)
    return Manifest(shards, {part.path: Listed(hashes[part.path], part.rows, part.bytes) for part in parts})


def render(manifest: Manifest) -> str:
    files = {path: asdict(file) for path, file in manifest.files.items()}
    return json.dumps({"shards": list(manifest.shards), "files": files}, indent=1) + "\n"


def parse(text: str | bytes) -> Manifest:
    """Raises `StoreError` for what no release wrote, and for one that lists files where no release has any."""
    try:
        content = json.loads(text)
        files = {path: Listed(**file) for path, file in content["files"].items()}
        shards = [shard for shard in content["shards"] if _SHARD.fullmatch(shard)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(f"{NAME} is not that of a release ({type(error).__name__})") from None
    if strange := next((path for path in files if not _PLACE.fullmatch(path)), None):
        raise StoreError(f"{NAME} is not that of a release: it lists {visible(strange, _SHOWN)}, which is no data file")
    if not shards or len(shards) != len(content["shards"]):
        raise StoreError(f"{NAME} is not that of a release: its list of shards is empty, or names what is none")
    return Manifest(shards, {path: file for path, file in files.items() if DATA.fullmatch(path)})
