"""Whether a release is what it says: files, hashes, counts, schema, joins, and that `datasets` opens it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from resources.errors import HubError, StoreError
from resources.files import file_sha256
from resources.release import card, manifest, sums
from resources.release.configs import CONFIGS
from resources.release.front_matter import split
from resources.release.hub_calls import insist
from resources.release.inventory import Inventory, in_use, part_path, survey
from resources.release.joins import joins
from resources.release.local import TEXTS
from resources.release.manifest import DATA, Manifest
from resources.release.plain import one_line


def verify(folder: Path, shards: Collection[str] | None = None, load: bool = True) -> Iterator[str]:
    """What is wrong with the release in `folder`, a line each; nothing, when it is sound.

    `shards` are the ones to look into, all when left out: their files are read, a shard and a few
    columns at a time. `load` also opens every config with `datasets`.
    """
    missing = [name for name in TEXTS if not (folder / name).is_file()]
    if missing:
        yield f"{', '.join(missing)} missing: {one_line(folder)} is no release, or was never finished"
        return
    try:
        listed = manifest.parse((folder / manifest.NAME).read_bytes())
        inventory = survey(folder)
    except StoreError as error:
        yield one_line(error)
        return
    chosen = _Chosen(folder, inventory, listed, shards)
    broken = list(chosen.files())
    yield from broken
    if broken:
        return
    yield from chosen.schema()
    yield from joins(folder, inventory, chosen.shards(), complete=not listed.missing)
    if load:
        yield from _loads(folder, inventory)


def fetched(release: str, revision: str | None) -> Path:
    """The folder that `release` names; a repository of the Hub is downloaded, or taken from the cache."""
    folder = Path(release)
    if folder.is_dir():
        return folder
    if release.count("/") != 1 or release.startswith((".", "/", "~")):
        raise StoreError(f"{one_line(release)} is neither a folder nor a repository, `owner/name`")

    def download() -> str:
        from huggingface_hub import snapshot_download

        return snapshot_download(release, repo_type="dataset", revision=revision)

    try:
        return Path(insist(download, release, lambda line: None))
    except HubError as error:
        raise StoreError(f"{error}") from None


@dataclass(frozen=True)
class _Chosen:
    """The shards of a release that are looked into."""

    folder: Path
    inventory: Inventory
    listed: Manifest
    only: Collection[str] | None

    def files(self) -> Iterator[str]:
        """Every file is listed, and every listed file is there with its hash, size and rows."""
        known = sums.parse((self.folder / sums.NAME).read_text("utf-8"))
        if known != {path: file.sha256 for path, file in self.listed.files.items()}:
            yield f"{sums.NAME} and {manifest.NAME} do not list the same files and hashes"
        there = {part.path: part for parts in self.inventory.values() for part in parts}
        for path in sorted(there.keys() - self.listed.files.keys()):
            yield f"{path} is not listed in {manifest.NAME}"
        for path, file in sorted(self.listed.files.items()):
            if path not in there:
                yield f"{path} is missing"
            elif self._is_chosen(path) and (there[path].rows, there[path].bytes) != (file.rows, file.bytes):
                found = f"{there[path].rows} rows and {there[path].bytes} bytes"
                yield f"{path} has {found}, {manifest.NAME} says {file.rows} and {file.bytes}"
            elif self._is_chosen(path) and file_sha256(self.folder / path) != file.sha256:
                yield f"{path} has another SHA-256 than {sums.NAME} says"
        for shard in self.shards():
            for path in (part_path(config, shard) for config in CONFIGS):
                if path not in there and path not in self.listed.files:
                    yield f"{path} is missing"

    def schema(self) -> Iterator[str]:
        """Every config of the card has the features of its files, and files are what their features say."""
        from datasets import Features
        from datasets.info import DatasetInfosDict
        from huggingface_hub import DatasetCardData

        listed, _ = split((self.folder / card.NAME).read_text("utf-8"))
        infos = DatasetInfosDict.from_dataset_card_data(DatasetCardData(**listed))
        for config, parts in self.inventory.items():
            used = in_use(parts)
            if used and config not in infos:
                yield f"{card.NAME} does not list {config}"
                continue
            for part in (part for part in used if self._is_chosen(part.path)):
                features = infos[config].features or Features()
                stored = pq.read_schema(self.folder / part.path)
                if not stored.remove_metadata().equals(features.arrow_schema.remove_metadata()):
                    yield f"{part.path} does not have the columns that {card.NAME} says"

    def shards(self) -> list[str]:
        released = dict.fromkeys(part.shard for parts in self.inventory.values() for part in parts)
        return [shard for shard in released if self.only is None or shard in self.only]

    def _is_chosen(self, path: str) -> bool:
        match = DATA.fullmatch(path)
        return match is not None and (self.only is None or match["shard"] in self.only)


def _loads(folder: Path, inventory: Inventory) -> Iterator[str]:
    """Open every config as a user does, and read its first row."""
    from datasets import IterableDataset, load_dataset
    from datasets.exceptions import DatasetsError

    for config, parts in inventory.items():
        rows = sum(part.rows for part in in_use(parts))
        if not rows:
            continue
        try:
            opened = load_dataset(str(folder), config, split="train", streaming=True)
            assert isinstance(opened, IterableDataset)
            next(iter(opened))
        except (DatasetsError, ValueError, OSError, StopIteration) as error:
            yield f"datasets cannot open {config}: {type(error).__name__}: {one_line(error)}"
