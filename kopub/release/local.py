"""A release in a folder of this machine, which `datasets.load_dataset` opens.

It is also the source of what is published elsewhere.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import yaml
from filelock import FileLock, Timeout
from pydantic import Field

from kopub.engine import Engine, ProfileOnly
from kopub.errors import ConfigError, StoreError
from kopub.files import file_sha256, is_url, replace_bytes, replace_file
from kopub.fingerprints import CodeVersion
from kopub.release.base import PageImages, ReleaseDescription, ReleasedFile, ReleaseInput
from kopub.release.files import (
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
    parse_checksums,
    parse_manifest,
    part_path,
    render_checksums,
    render_manifest,
)

TEXTS = (CARD, ATTRIBUTION, MANIFEST, CHECKSUMS)
"""The files of a release besides its data."""

_BEING_MADE = "# A release that is being made\n\nIts card is written when the shards of this run are in.\n"


class LocalRelease(Engine):
    """A dataset folder: `data/<config>/<shard>.parquet`, and the `TEXTS` that describe them.

    A run writes the files of its shards into `staged`, and then replaces the release whole (`versions.py`); one at a
    URL is published from its folder on this machine (`remote.py`). Every file is replaced whole, and the card's YAML is
    there before the first of them, so any folder can be loaded at any moment.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "release.local",
        {
            1: "the first release",
            2: "reasons and parameters name no folder of a machine, and markdown links to no script and no file",
        },
    )
    speed_only: ClassVar[frozenset[str]] = frozenset({"folder", "made_in"})

    folder: ProfileOnly[str] = Field(description="Folder or fsspec URL of the release; made if it is missing.")
    made_in: ProfileOnly[str] = Field(
        default="", description="Folder on this machine for a release at a URL; by default `$KOPUB_HOME/release`."
    )
    title: str = Field(default="Pages, text and vectors", description="Title of the dataset card.")
    license: str | None = Field(default=None, description="Hub id of the licence of pages that state none.")
    publish_under: str | None = Field(
        default=None, description="Hub id of the licence of the release; left out, every page keeps its own."
    )
    page_images: bool = Field(
        default=False, description="Put the page images into `pages`, byte for byte; as large as the corpus itself."
    )
    corrections: Literal["none", "anonymous", "named"] = Field(
        default="none",
        description="Add a config of what people corrected: `anonymous` without their names, `named` with them.",
    )

    def recipe(self) -> dict[str, Any]:
        recipe = super().recipe()
        if self.corrections == "none":
            # Releases from before this setting existed stay current.
            del recipe["parameters"]["corrections"]
        return recipe

    def publish(self, shard: str, tables: ReleaseInput, images: PageImages | None = None) -> list[ReleasedFile]:
        """Replace the files of one shard and leave all others; equal tables give equal bytes.

        `images` is called for each page in turn if `page_images` is set. Of the card, only the YAML is updated, since
        loading depends on it. Raises `StoreError` if a table or an image does not fit the others, or a file cannot be
        written.
        """
        from kopub.release.dataset import build_configs, write_parquet

        built = build_configs(shard, tables, self.page_images, authors=self.corrections == "named")
        paths = {config: part_path(config, shard) for config in ALL_CONFIGS}
        dropped = [path for config, path in paths.items() if config not in built]
        # The mark that the shard is being written ends with its process, even if that is killed.
        mark = _locks_folder(self.root) / f"{shard}.lock"
        mark.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(mark):
            with self._lock():
                before = self._sums()
                # If a run dies before the new hash of a file is written, `finish` hashes the file again.
                self._write_sums({path: sha256 for path, sha256 in before.items() if path not in paths.values()})
                begun = self._write_first_yaml(shard, built)
            files: list[ReleasedFile] = []
            for config, table in built.items():
                pictures = images if self.page_images and config == "pages" else None
                sha256, size = replace_file(self.root / paths[config], partial(write_parquet, table, images=pictures))
                files.append(ReleasedFile(paths[config], sha256, table.num_rows, size))
            with self._lock():
                for path in dropped:
                    (self.root / path).unlink(missing_ok=True)
                sums = self._sums() | {file.path: file.sha256 for file in files}
                # Unchanged files keep their description, since the YAML takes longer than a small file.
                if begun or sums != before:
                    self._write_manifest(shard, files, dropped)
                    self._write_yaml(built, sums)
                    sums = data_checksums(sums)  # The texts are outdated until `finish`.
                # Written last: if a run dies before, the next one sees that there is something to describe.
                self._write_sums(sums)
        return files

    def finish(self, about: ReleaseDescription) -> list[ReleasedFile]:
        """Drop the files of shards that `about` does not name, and describe the rest.

        Only listed files are dropped.
        """
        with self._lock():
            sums = self._sums()
            for path in sums:
                if (data := DATA_PATH.fullmatch(path)) and data["shard"] not in about.shards:
                    (self.root / path).unlink(missing_ok=True)
            return self.describe(about, sums)

    def describe(self, about: ReleaseDescription, sums: Mapping[str, str]) -> list[ReleasedFile]:
        """Write the texts that describe the files of the folder.

        `sums` are hashes of the files by path.
        """
        from kopub.release.card import render_attribution, render_card

        inventory = list_parts(self.root)
        files: dict[str, ManifestEntry] = {}
        for parts in inventory.values():
            for part in parts:
                sha256 = sums.get(part.path) or file_sha256(self.root / part.path)
                files[part.path] = ManifestEntry(sha256, part.rows, part.bytes)
        manifest = ReleaseManifest(about.shards, files, about.left)
        hashes = manifest.hashes
        texts = [
            self._write_text(MANIFEST, render_manifest(manifest)),
            self._write_text(ATTRIBUTION, render_attribution(inventory, about)),
            self._write_text(CARD, render_card(self.root, inventory, about, hashes)),
        ]
        return [*texts, self._write_sums(hashes | {text.path: text.sha256 for text in texts})]

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """Yield the folder while no other process changes its description."""
        with self._lock():
            yield self.root

    @contextmanager
    def settled(self) -> Iterator[Mapping[str, str]]:
        """Yield the hashes of the finished files by path while no other process changes any."""
        with self._lock():
            yield {path: sha256 for path, sha256 in self._sums().items() if (self.root / path).is_file()}

    @property
    def root(self) -> Path:
        """The folder on this machine."""
        root = Path(self.made_in if self.url else self.folder)
        # A release is replaced by renaming folders, which would put one in the place of a link.
        return root.resolve() if root.is_symlink() else root

    @property
    def url(self) -> str | None:
        """The URL where the release is published; None for a folder of this machine."""
        return self.folder.rstrip("/") if is_url(self.folder) else None

    @property
    def staged(self) -> "LocalRelease":
        """The release beside this one for files of shards that are not released yet."""
        return self.beside("staging")

    def beside(self, name: str) -> "LocalRelease":
        """Return a release in a folder beside this one, with its settings."""
        folder = self.root.with_name(f"{self.root.name}.{name}")
        return type(self)(**{**self.model_dump(), "folder": str(folder), "made_in": ""})

    def drop(self, paths: Collection[str]) -> None:
        """Remove finished files and their checksums, within `settled`."""
        for path in paths:
            (self.root / path).unlink(missing_ok=True)
        self._write_sums({path: sha256 for path, sha256 in self._sums().items() if path not in paths})

    def _lock(self) -> FileLock:
        """Return the lock of the folder, which lies beside it.

        It is no part of the release.
        """
        lock = self.root.with_name(f"{self.root.name}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(lock)

    def _write_first_yaml(self, shard: str, built: Mapping[str, pa.Table]) -> bool:
        """Name the configs and their features in the card before there is a file.

        A file that no card names is not loaded. Returns whether the card named none before.
        """
        from kopub.release.card import compose_card, front_matter

        if self._card()[0].get("configs"):
            return False
        to_come: dict[str, list[ReleasePart]] = {}
        for config, table in built.items():
            path, features = part_path(config, shard), features_of(table)
            to_come[config] = [ReleasePart(shard, path, table.num_rows, 0, features)]
        self._write_text(CARD, compose_card(front_matter(to_come, {}, {}), _BEING_MADE))
        return True

    def _write_manifest(self, shard: str, files: list[ReleasedFile], dropped: Collection[str]) -> None:
        """List the files of a shard in the manifest as they are now.

        A manifest that does not exist yet is written by `finish`.
        """
        try:
            before = parse_manifest((self.root / MANIFEST).read_bytes())
        except (FileNotFoundError, StoreError):
            return
        listed = dict(before.files)
        for path in dropped:
            listed.pop(path, None)
        for file in files:
            listed[file.path] = ManifestEntry(file.sha256, file.rows or 0, file.bytes)
        shards = before.shards if shard in before.shards else [*before.shards, shard]
        self._write_text(MANIFEST, render_manifest(ReleaseManifest(shards, listed)))

    def _write_yaml(self, built: Mapping[str, pa.Table], sums: Mapping[str, str]) -> None:
        from kopub.release.card import compose_card, front_matter, is_listed, stamp_configs

        listed, body = self._card()
        for config, table in built.items():
            # The features of an empty table do not count, since no width is wrong for no vectors.
            if not is_listed(config, features_of(table) if table.num_rows else None, listed):
                data = front_matter(list_parts(self.root), listed, sums)
                break
        else:
            data = stamp_configs(listed, sums)
        self._write_text(CARD, compose_card(data, body))

    def _card(self) -> tuple[dict[str, Any], str]:
        """Return the YAML and body of the card.

        Only releases write it, so a damaged one is made anew.
        """
        from kopub.release.card import split_card

        path = self.root / CARD
        try:
            return split_card(path.read_text("utf-8"))
        except (FileNotFoundError, UnicodeDecodeError, ValueError, yaml.YAMLError):
            return {}, _BEING_MADE

    def _sums(self) -> dict[str, str]:
        # A damaged list lists nothing, and is written anew.
        path = self.root / CHECKSUMS
        return parse_checksums(path.read_text("utf-8", "replace")) if path.exists() else {}

    def _write_sums(self, sums: Mapping[str, str]) -> ReleasedFile:
        return self._write_text(CHECKSUMS, render_checksums(sums))

    def _write_text(self, name: str, text: str) -> ReleasedFile:
        sha256, size = replace_bytes(self.root / name, text.encode())
        return ReleasedFile(name, sha256, None, size)


_PATIENCE = 60.0
"""Most seconds to wait for each shard that is being written."""


def wait_for_writers(root: Path) -> bool:
    """Wait until no shard is being written, and return whether one was."""
    waited = False
    for lock in sorted(_locks_folder(root).glob("*.lock")):
        try:
            with FileLock(lock, timeout=0):
                continue
        except Timeout:
            waited = True
        except OSError:
            # Without write access a lock cannot be taken, but a read-only copy has no writers.
            continue
        try:
            with FileLock(lock, timeout=_PATIENCE):
                pass
        except Timeout:
            continue
    return waited


def _locks_folder(root: Path) -> Path:
    """Return the folder of the locks, which lies beside the release.

    It is no part of the release. From within its folder, a release may be given as `.`.
    """
    whole = root.resolve()
    return whole.parent / f"{whole.name}.locks"


ELSEWHERE = "name a new or empty folder in release.folder"


def require_apart(release: LocalRelease, home: Path, store: str, source: str = "") -> None:
    """Raise `ConfigError` where the release would overlap the store, source or home.

    It may not lie in the store or the source, nor hold them or the home. Below the home it may lie beside the store,
    which is where it is made when no folder is named, though the home itself lies in the source.
    """
    home = home.resolve()
    for what, place in (("the home", str(home)), ("the store", store), ("the source", source)):
        # The slash keeps `s3://bucket/corpus-2` apart from `s3://bucket/corpus`.
        if release.url is not None and is_url(place) and f"{release.url}/".startswith(f"{place.rstrip('/')}/"):
            raise ConfigError("release.folder: {url} is {place} or lies in it; {remedy}", release.url, what, ELSEWHERE)
        if not place or is_url(place):
            continue
        root, other = release.root.resolve(), Path(place).resolve()
        if root == other or root in other.parents:
            raise ConfigError("release.folder: {folder} is {place} or holds it; {remedy}", root, what, ELSEWHERE)
        if what != "the home" and other in root.parents and (what == "the store" or home not in root.parents):
            form = "release.folder: {folder} lies in {place}, {other}; {remedy}"
            raise ConfigError(form, root, what, other, ELSEWHERE)
