"""Whether a release is what it says: files, hashes, counts, schema, joins, and that `datasets` opens it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow.parquet as pq

from resources.errors import HubError, StoreError
from resources.files import file_sha256
from resources.release.card import dataset_card
from resources.release.card.escaping import one_line
from resources.release.card.front_matter import split
from resources.release.dataset import checksums, release_manifest
from resources.release.dataset.configs import CONFIGS
from resources.release.dataset.joins import joins
from resources.release.dataset.release_manifest import DATA, Manifest
from resources.release.dataset.released_files import Inventory, in_use, part_path, survey
from resources.release.hub.calls import insist
from resources.release.local import TEXTS

Item = TypeVar("Item")


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
        listed = release_manifest.parse((folder / release_manifest.NAME).read_bytes())
        inventory = survey(folder)
    except StoreError as error:
        yield one_line(error)
        return
    chosen = _Chosen(folder, inventory, listed, shards)
    # Joins are between columns, so those have to be right.
    broken = list(chosen.files()) or list(chosen.schema())
    yield from broken
    if broken:
        return
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
        """Every file is listed, and every listed file is there with its hash, size and rows.

        Shards that are not chosen do not count: another run may be writing them.
        """
        known = self._chosen(checksums.parse((self.folder / checksums.NAME).read_text("utf-8")))
        listed = self._chosen(self.listed.files)
        there = self._chosen({part.path: part for parts in self.inventory.values() for part in parts})
        if known != {path: file.sha256 for path, file in listed.items()}:
            yield f"{checksums.NAME} and {release_manifest.NAME} do not list the same files and hashes"
        for path in sorted(there.keys() - listed.keys()):
            yield f"{path} is not listed in {release_manifest.NAME}"
        for path, file in sorted(listed.items()):
            if path not in there:
                yield f"{path} is missing"
            elif (there[path].rows, there[path].bytes) != (file.rows, file.bytes):
                found = f"{there[path].rows} rows and {there[path].bytes} bytes"
                yield f"{path} has {found}, {release_manifest.NAME} says {file.rows} and {file.bytes}"
            elif file_sha256(self.folder / path) != file.sha256:
                yield f"{path} has another SHA-256 than {checksums.NAME} says"
        for shard in self.shards():
            for path in (part_path(config, shard) for config in CONFIGS):
                if path not in there and path not in listed:
                    yield f"{path} is missing"

    def schema(self) -> Iterator[str]:
        """Every config of the card has the features of its files, and files are what their features say."""
        from datasets import Features
        from datasets.info import DatasetInfosDict
        from huggingface_hub import DatasetCardData
        from yaml import YAMLError

        try:
            listed, _ = split((self.folder / dataset_card.NAME).read_text("utf-8"))
            infos = DatasetInfosDict.from_dataset_card_data(DatasetCardData(**listed))
        except (YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
            yield f"{dataset_card.NAME} is not that of a release ({type(error).__name__})"
            return
        for config, parts in self.inventory.items():
            used = in_use(parts)
            if used and config not in infos:
                yield f"{dataset_card.NAME} does not list {config}"
                continue
            for part in (part for part in used if self._is_chosen(part.path)):
                features = infos[config].features or Features()
                stored = pq.read_schema(self.folder / part.path)
                if not stored.remove_metadata().equals(features.arrow_schema.remove_metadata()):
                    yield f"{part.path} does not have the columns that {dataset_card.NAME} says"

    def shards(self) -> list[str]:
        released = dict.fromkeys(part.shard for parts in self.inventory.values() for part in parts)
        return [shard for shard in released if self.only is None or shard in self.only]

    def _chosen(self, by_path: Mapping[str, Item]) -> dict[str, Item]:
        if self.only is None:
            return dict(by_path)
        return {path: item for path, item in by_path.items() if self._is_chosen(path)}

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
