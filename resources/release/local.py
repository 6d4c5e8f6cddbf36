"""A release in a folder of this machine: what `datasets.load_dataset` opens, and what is published elsewhere."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import yaml
from filelock import FileLock, Timeout
from pydantic import Field

from resources.code_version import CodeVersion
from resources.engine import Engine
from resources.errors import StoreError
from resources.files import file_sha256, replace_file
from resources.release.base import PageImages, ReleaseDescription, ReleasedFile, ReleaseInput
from resources.release.card import (
    compose_card,
    front_matter,
    is_listed,
    render_attribution,
    render_card,
    split_card,
    stamped,
)
from resources.release.dataset import build_configs, write_parquet
from resources.release.files import (
    ALL_CONFIGS,
    ATTRIBUTION,
    CARD,
    CHECKSUMS,
    DATA_PATH,
    MANIFEST,
    ManifestEntry,
    ReleaseManifest,
    ReleasePart,
    data_checksums,
    features_of,
    list_parts,
    manifest_of,
    parse_checksums,
    parse_manifest,
    part_path,
    render_checksums,
    render_manifest,
)
from resources.resource import ProfileOnly
from resources.urls import is_url

TEXTS = (CARD, ATTRIBUTION, MANIFEST, CHECKSUMS)
"""What a release holds besides its data."""

_BEING_MADE = "# A release that is being made\n\nIts card is written when the shards of this run are in.\n"


class LocalRelease(Engine):
    """A dataset folder: `data/<config>/<shard>.parquet`, and the `TEXTS` that describe them.

    A run writes the files of its shards into `staged`, and then replaces the release whole (`replacing.py`); one at a
    URL is published from its folder on this machine (`published.py`). Every file is replaced whole, and the card's YAML
    is there before the first of them, so any folder can be loaded at any moment.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "release.local",
        {
            1: "the first release",
            2: "reasons and parameters name no folder of a machine, and markdown links to no script and no file",
        },
    )
    speed_only: ClassVar[frozenset[str]] = frozenset({"folder", "made_in"})

    folder: ProfileOnly[str] = Field(description="Folder or fsspec URL of the release; made when it is missing.")
    made_in: ProfileOnly[str] = Field(
        default="", description="Folder of this machine for a release at a URL; `$KOPUB_HOME/release` when left out."
    )
    title: str = Field(default="Pages, text and vectors", description="Title of the dataset card.")
    license: str | None = Field(default=None, description="Hub id of the licence of pages that state none.")
    publish_under: str | None = Field(
        default=None, description="Hub id of the licence of the release; left out, every page keeps its own."
    )
    page_images: bool = Field(
        default=False, description="Put the page images into `pages`, byte for byte; as large as the corpus itself."
    )

    def publish(self, shard: str, tables: ReleaseInput, images: PageImages | None = None) -> list[ReleasedFile]:
        """Replace the files of one shard and leave all others. Equal tables give equal bytes.

        `images` is called for each page in turn when `page_images` is set. Of the card only the YAML
        follows, which loading depends on. Raises `StoreError` when a table or an image does not fit
        the others, or a file cannot be written.
        """
        built = build_configs(shard, tables, self.page_images)
        asked = {"pages": images if self.page_images else None}
        every = {config: part_path(config, shard) for config in ALL_CONFIGS}
        paths = {config: every[config] for config in built}
        dropped = set(every.values()) - set(paths.values())
        with writing_shard(self.root, shard):
            with self._lock():
                before = self._sums()
                # A file is hashed anew by `finish` when a run dies before its new hash is written.
                self._write_sums({path: sha256 for path, sha256 in before.items() if path not in every.values()})
                begun = self._write_first_yaml(shard, built)
            files = [self._write_part(path, built[config], asked.get(config)) for config, path in paths.items()]
            with self._lock():
                for path in dropped:
                    (self.root / path).unlink(missing_ok=True)
                known = self._sums() | {file.path: file.sha256 for file in files}
                # What describes the same files is as it was: to read and write the YAML takes longer than a small file.
                if begun or known != before:
                    self._write_manifest(shard, files, dropped)
                    self._write_yaml(built, known)
                    known = data_checksums(known)  # The texts are others now, until `finish`.
                # Last, so that a run that dies before says to the next one that something is to be described.
                self._write_sums(known)
        return files

    def finish(self, about: ReleaseDescription) -> list[ReleasedFile]:
        """Drop the listed files of shards that `about` does not name, and describe what is there."""
        with self._lock():
            known = self._sums()
            for path in known:
                if (data := DATA_PATH.fullmatch(path)) and data["shard"] not in about.shards:
                    (self.root / path).unlink(missing_ok=True)
            return self.describe(about, known)

    def describe(self, about: ReleaseDescription, known: Mapping[str, str]) -> list[ReleasedFile]:
        """Write what describes the files that are there; `known` are hashes of them by path."""
        inventory = list_parts(self.root)
        paths = [part.path for parts in inventory.values() for part in parts]
        hashes = {path: known.get(path) or file_sha256(self.root / path) for path in paths}
        manifest = manifest_of(inventory, about.shards, hashes)
        texts = [
            self._write_text(MANIFEST, render_manifest(manifest)),
            self._write_text(ATTRIBUTION, render_attribution(inventory, about)),
            self._write_text(CARD, render_card(self.root, inventory, about, hashes)),
        ]
        return [*texts, self._write_sums(hashes | {text.path: text.sha256 for text in texts})]

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """The folder, while no other process changes what describes it."""
        with self._lock():
            yield self.root

    @contextmanager
    def settled(self) -> Iterator[Mapping[str, str]]:
        """The hashes of the files that are finished and there, by path, while no other process changes one of them."""
        with self._lock():
            yield {path: sha256 for path, sha256 in self._sums().items() if (self.root / path).is_file()}

    @property
    def root(self) -> Path:
        """The folder on this machine."""
        return Path(self.made_in if self.url else self.folder)

    @property
    def url(self) -> str | None:
        """Where the release is published, if that is no folder of this machine."""
        return self.folder.rstrip("/") if is_url(self.folder) else None

    @property
    def staged(self) -> "LocalRelease":
        """Beside the release: files of shards that no release holds yet."""
        return self.beside("staging")

    def beside(self, name: str) -> "LocalRelease":
        """A folder beside the release, with its settings."""
        folder = self.root.with_name(f"{self.root.name}.{name}")
        return type(self)(**{**self.model_dump(), "folder": str(folder), "made_in": ""})

    def drop(self, paths: Collection[str]) -> None:
        """Forget finished files, in `settled`."""
        for path in paths:
            (self.root / path).unlink(missing_ok=True)
        self._write_sums({path: sha256 for path, sha256 in self._sums().items() if path not in paths})

    def _lock(self) -> FileLock:
        """Beside the folder, so that it is no part of the release."""
        lock = self.root.with_name(f"{self.root.name}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(lock)

    def _write_part(self, path: str, table: pa.Table, images: PageImages | None) -> ReleasedFile:
        sha256, size = replace_file(self.root / path, partial(write_parquet, table, images=images))
        return ReleasedFile(path, sha256, table.num_rows, size)

    def _write_first_yaml(self, shard: str, built: Mapping[str, pa.Table]) -> bool:
        """Name the configs and their features before there is a file: a file that no card names is not loaded.

        Whether no card named any.
        """
        if self._card()[0].get("configs"):
            return False
        to_come = {
            config: [ReleasePart(shard, part_path(config, shard), table.num_rows, 0, features_of(table))]
            for config, table in built.items()
        }
        self._write_text(CARD, compose_card(front_matter(to_come, {}, {}), _BEING_MADE))
        return True

    def _write_manifest(self, shard: str, files: list[ReleasedFile], dropped: Collection[str]) -> None:
        """List the files of a shard as they are now; a manifest that is not there yet is `finish`'s to make."""
        try:
            before = parse_manifest((self.root / MANIFEST).read_bytes())
        except (FileNotFoundError, StoreError):
            return
        listed = {file.path: ManifestEntry(file.sha256, file.rows or 0, file.bytes) for file in files}
        kept = {path: file for path, file in before.files.items() if path not in dropped}
        now = ReleaseManifest(list(dict.fromkeys([*before.shards, shard])), {**kept, **listed})
        self._write_text(MANIFEST, render_manifest(now))

    def _write_yaml(self, built: Mapping[str, pa.Table], known: Mapping[str, str]) -> None:
        listed, body = self._card()
        # The features of a table without rows do not count: no width of vectors is wrong for none.
        asked = {config: features_of(table) if table.num_rows else None for config, table in built.items()}
        if all(is_listed(config, features, listed) for config, features in asked.items()):
            data = stamped(listed, known)
        else:
            data = front_matter(list_parts(self.root), listed, known)
        self._write_text(CARD, compose_card(data, body))

    def _card(self) -> tuple[dict[str, Any], str]:
        """The YAML and body of the card; nobody else writes it, so one that was damaged is made anew."""
        path = self.root / CARD
        try:
            return split_card(path.read_text("utf-8"))
        except (FileNotFoundError, UnicodeDecodeError, ValueError, yaml.YAMLError):
            return {}, _BEING_MADE

    def _sums(self) -> dict[str, str]:
        path = self.root / CHECKSUMS
        return parse_checksums(path.read_text("utf-8")) if path.exists() else {}

    def _write_sums(self, known: Mapping[str, str]) -> ReleasedFile:
        return self._write_text(CHECKSUMS, render_checksums(known))

    def _write_text(self, name: str, text: str) -> ReleasedFile:
        sha256, size = replace_file(self.root / name, partial(_write_text, text))
        return ReleasedFile(name, sha256, None, size)


def _write_text(text: str, path: Path) -> None:
    path.write_text(text, "utf-8")


@contextmanager
def writing_shard(root: Path, shard: str) -> Iterator[None]:
    """Say that `shard` of the release in `root` is being written; a process that is killed says so no longer."""
    lock = _locks_folder(root) / f"{shard}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        yield


def wait_for_writers(root: Path, seconds: float) -> bool:
    """Wait until no shard is being written, for at most `seconds` each; whether one was."""
    waited = False
    for lock in sorted(_locks_folder(root).glob("*.lock")):
        try:
            with FileLock(lock, timeout=0):
                continue
        except Timeout:
            waited = True
        except OSError:
            # Whoever may not write there cannot ask; a copy that is only read has no writers.
            continue
        try:
            with FileLock(lock, timeout=seconds):
                pass
        except Timeout:
            continue
    return waited


def _locks_folder(root: Path) -> Path:
    """Beside the release, so that it is no part of it. A release may be called `.` by whoever is in its folder."""
    whole = root.resolve()
    return whole.parent / f"{whole.name}.locks"
