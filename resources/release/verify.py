"""Whether a release is what it says: files, hashes, counts, schema, joins, and that `datasets` opens it."""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow.parquet as pq

from resources.errors import HubError, StoreError
from resources.files import file_sha256
from resources.printable import visible
from resources.release import loading
from resources.release.card import dataset_card
from resources.release.card.front_matter import split
from resources.release.dataset import checksums, release_manifest
from resources.release.dataset.joins import joins
from resources.release.dataset.part_paths import CONFIGS, part_path
from resources.release.dataset.release_manifest import DATA, Manifest
from resources.release.dataset.released_files import Inventory, in_use, list_parts, waiting_lines
from resources.release.hub.calls import insist
from resources.release.local import TEXTS
from resources.release.place import is_temporary
from resources.release.published import PublishedRelease
from resources.release.writers import wait
from resources.urls import is_url

Item = TypeVar("Item")
Count = Callable[[Path, Mapping[str, Sequence[str]]], loading.Counts]
"""By config, the rows that `datasets` gives of the shards that are named."""

_HASHED = tuple(name for name in TEXTS if name != checksums.NAME)
_SHOWN = 200
"""Characters of what a library or a path says."""
_LOOKS = 3
"""Looks at a release that is being written."""
_PATIENCE = 60.0
"""Seconds that writing a shard may take until the next look."""


def verify(
    folder: Path, shards: Collection[str] | None = None, load: bool = True, count: Count = loading.count
) -> Iterator[str]:
    """What is wrong with the release in `folder`, a line each; nothing, when it is sound.

    `shards` are the ones to look into, all when left out: their files are read, a shard and a few
    columns at a time. `load` also counts the rows that `datasets` gives of every config; `count` says how.
    A release that a run writes meanwhile is looked at again, for what does not fit then may fit when it is done.
    """
    for _ in range(_LOOKS):
        before = _description(folder)
        found = list(_problems(folder, shards, load, count))
        # Only a whole release has to fit: the shards of one run are written by nobody else.
        if not found or shards is not None or not (wait(folder, _PATIENCE) or _description(folder) != before):
            yield from found
            return
    yield f"{visible(str(folder), _SHOWN)} is being written by a run: verify it when that is done"


def unproved(folder: Path) -> list[str]:
    """What the checksums of a release say nothing of, a line each: those of an older version list data files alone."""
    sums = _sums(folder) if (folder / checksums.NAME).is_file() else {}
    left_out = [name for name in _HASHED if name not in sums]
    if len(left_out) < len(_HASHED) or not sums:
        return []
    return [
        f"{checksums.NAME} is of an older version and has no hash of {', '.join(left_out)}: release again to add them"
    ]


def _description(folder: Path) -> list[str]:
    return [file_sha256(folder / name) if (folder / name).is_file() else "" for name in TEXTS]


def _problems(folder: Path, shards: Collection[str] | None, load: bool, count: Count) -> Iterator[str]:
    missing = [name for name in TEXTS if not (folder / name).is_file()]
    if missing:
        yield f"{', '.join(missing)} missing: {visible(str(folder), _SHOWN)} is no release, or was never finished"
        return
    try:
        listed = release_manifest.parse((folder / release_manifest.NAME).read_bytes())
        inventory = list_parts(folder)
    except StoreError as error:
        yield visible(str(error), _SHOWN)
        return
    chosen = _Chosen(folder, inventory, listed, shards)
    # Joins are between columns, so those have to be right.
    broken = [*chosen.files(), *_texts(folder), *(_strangers(folder) if shards is None else ())] or list(
        chosen.schema()
    )
    yield from broken
    if broken:
        return
    if shards is None:
        yield from _lacking(listed)
        yield from waiting_lines(inventory)
    yield from joins(folder, inventory, chosen.shards(), complete=not listed.missing)
    if load:
        yield from _counts(folder, inventory, chosen.shards(), count)


def _texts(folder: Path) -> Iterator[str]:
    """Texts that are not those whose hashes are listed, which are all of them or, in an older release, none."""
    sums = _sums(folder)
    if not any(name in sums for name in _HASHED):
        return
    for name in _HASHED:
        if name not in sums:
            yield f"{checksums.NAME} has no hash of {name}"
        elif file_sha256(folder / name) != sums[name]:
            yield f"{name} has another SHA-256 than {checksums.NAME} says"


def _strangers(folder: Path) -> Iterator[str]:
    """Files that no release has; those that git and the Hub's client keep beside one count as none."""
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder).as_posix()
        is_known = place in TEXTS or DATA.fullmatch(place) or place == ".gitattributes"
        if path.is_dir() or is_known or place.startswith((".git/", ".cache/huggingface/")) or is_temporary(path.name):
            continue
        yield f"{visible(place, _SHOWN)} is no file of a release: move it out"


def _sums(folder: Path) -> dict[str, str]:
    return checksums.parse((folder / checksums.NAME).read_text("utf-8", "replace"))


def _lacking(listed: Manifest) -> Iterator[str]:
    if missing := listed.missing:
        yield (
            f"{len(missing)} of {len(listed.shards)} shards of the corpus are not in the release, {missing[0]} first: "
            "run `kopub run --asset hf_release`"
        )


@contextmanager
def fetched(release: str, revision: str | None) -> Iterator[Path]:
    """The folder that `release` names; one at a URL is downloaded, and removed in the end; one of the Hub is downloaded
    into the Hub's cache, or taken from it. Raises `StoreError`.
    """
    if is_url(release):
        with tempfile.TemporaryDirectory(prefix="kopub-verify-") as folder:
            PublishedRelease.at(release).download(Path(folder))
            yield Path(folder)
    else:
        yield _folder_or_repository(release, revision)


def _folder_or_repository(release: str, revision: str | None) -> Path:
    folder = Path(release)
    if folder.is_dir():
        return folder
    if release.count("/") != 1 or release.startswith((".", "/", "~")):
        raise StoreError(f"{visible(release, _SHOWN)} is neither a folder, a URL nor a repository, `owner/name`")

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
        known = self._chosen({path: sha256 for path, sha256 in _sums(self.folder).items() if path not in _HASHED})
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


def _counts(folder: Path, inventory: Inventory, shards: Collection[str], count: Count) -> Iterator[str]:
    """Read every config as a user does, and compare its rows with those that the files hold."""
    held = {
        config: {part.shard: part.rows for part in in_use(parts) if part.shard in shards}
        for config, parts in inventory.items()
    }
    for config, rows in count(folder, {config: list(parts) for config, parts in held.items() if parts}).items():
        owed = sum(held[config].values())
        if isinstance(rows, str):
            yield f"datasets cannot open {config}: {visible(rows, _SHOWN)}"
        elif rows != owed:
            yield f"datasets gives {rows} rows of {config}, its files hold {owed}"
