"""The files of a release folder: their paths, checksums, manifest and footers."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kopub.errors import KopubError, StoreError, counted, visible
from kopub.states import LOST, State, phrase

CONFIGS = ("pages", "regions", "crops", "image_embeddings", "text_embeddings", "queries", "qrels", "lineage")
"""The configs of every release, in the order in which they are made."""
FIGURE_CONFIGS = ("figure_embeddings", "figure_notes")
"""The configs that a release has only if the profile sets them."""
CHUNKS = "chunks"
"""The config of the chunks of documents, which a release has only if `documents.chunks` is set."""
PASSAGES = "passage_embeddings"
"""The config of the passages of pages, which a release has only if the engine of vectors makes them."""
CORRECTIONS = "corrections"
"""The config of people's corrections, which a release has only if `release.corrections` says so."""
ALL_CONFIGS = (*CONFIGS, CHUNKS, *FIGURE_CONFIGS, PASSAGES, CORRECTIONS)
SUMMARY = b"kopub.summary"
"""Footer key of a file's facts about its shard, as JSON: all that a card and the gates need to know."""


def part_path(config: str, shard: str) -> str:
    """Return the path of a shard of a config, relative to the release."""
    return f"data/{config}/{shard}.parquet"


def config_files(folder: Path, config: str) -> list[Path]:
    """Return the files of a config, in shard order."""
    return sorted((folder / "data" / config).glob("shard_*.parquet"), key=lambda path: (len(path.stem), path.stem))


CHECKSUMS = "SHA256SUMS"


def parse_checksums(text: str) -> dict[str, str]:
    """Return the SHA-256 of each file by its path, relative to the release."""
    sums: dict[str, str] = {}
    for line in text.splitlines():
        sha256, _, path = line.partition("  ")
        sums[path] = sha256
    return sums


def data_checksums(sums: Mapping[str, str]) -> dict[str, str]:
    """Return the checksums of the data files.

    A release of an older version lists only these.
    """
    return {path: sha256 for path, sha256 in sums.items() if path.startswith("data/")}


def render_checksums(sums: Mapping[str, str]) -> str:
    return "".join(f"{sums[path]}  {path}\n" for path in sorted(sums))


def files_digest(sums: Mapping[str, str]) -> str:
    """Return 64 hex digits that identify the contents of some files."""
    return hashlib.sha256(render_checksums(sums).encode()).hexdigest()


MANIFEST, CARD, ATTRIBUTION = "manifest.json", "README.md", "ATTRIBUTION.md"
_CLOCK_SECONDS = 2.0
"""Greatest difference between the times of files written together, on any file system."""
DATA_PATH = re.compile(rf"data/(?P<config>{'|'.join(ALL_CONFIGS)})/(?P<shard>shard_[0-9]+)\.parquet")
"""All paths at which a release may have data, and at which a repository loses files that the release has lost."""
_SHARD = re.compile(r"shard_[0-9]+")
_PLACE = re.compile(rf"data/[a-z_]+/{_SHARD.pattern}\.parquet")
"""Paths that a later version may list for configs that this one does not know and leaves out."""
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """An entry of the manifest: one data file."""

    sha256: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReleaseManifest:
    """The manifest of a release.

    `shards` are all shards of the corpus, released or not; `files` are the released files by path. `left` counts the
    pages of the corpus that are in no shard yet.
    """

    shards: Sequence[str]
    files: Mapping[str, ManifestEntry]
    left: int = 0

    @property
    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each file by path."""
        return {path: file.sha256 for path, file in self.files.items()}

    @property
    def missing(self) -> list[str]:
        """The shards of the corpus that are not in the release."""
        released = {match["shard"] for path in self.files if (match := DATA_PATH.fullmatch(path))}
        return [shard for shard in self.shards if shard not in released]


class ChangedRelease(KopubError):
    """The files of a release changed while they were being sent.

    They only have to be read again.
    """


def differences(root: Path, tables: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each difference of a release folder from its tables.

    Sizes and times are compared, but not the hashes of contents. `tables` are the hashes of files by path, from the
    tables of released files.
    """
    try:
        manifest = parse_manifest((root / MANIFEST).read_bytes())
        finished_at = (root / CHECKSUMS).stat().st_mtime
    except FileNotFoundError as error:
        yield phrase("{file} is missing: kopub run --asset hf_release makes the release again", error.filename)
        return
    except (OSError, StoreError) as error:
        yield phrase("{folder} is no sound release ({error}): kopub verify says more", root, error)
        return
    missing, edited = list[str](), list[str]()
    for path in (*manifest.files, CARD, ATTRIBUTION):
        try:
            stat = (root / path).stat()
        except OSError:
            missing.append(path)
            continue
        entry = manifest.files.get(path)
        # The checksums are written last.
        if (entry is not None and stat.st_size != entry.bytes) or stat.st_mtime > finished_at + _CLOCK_SECONDS:
            edited.append(path)
    listed = manifest.hashes
    older = [path for path, sha256 in tables.items() if listed.get(path) != sha256]
    for paths, says, then in (
        (missing, "missing", "kopub run --asset hf_release makes the release again"),
        (edited, "changed since the release was made", "kopub verify says more"),
        (older, "older than its table", "kopub run --asset hf_release makes the release again"),
    ):
        if paths:
            more = f" and {counted(len(paths) - 1, 'other file')}" if len(paths) > 1 else ""
            yield f"{root / paths[0]}{more}: {says}; {then}"


def render_manifest(manifest: ReleaseManifest) -> str:
    files = {path: asdict(file) for path, file in manifest.files.items()}
    left = {"pages_left": manifest.left} if manifest.left else {}
    return json.dumps({"shards": list(manifest.shards), **left, "files": files}, indent=1) + "\n"


def parse_manifest(text: str | bytes) -> ReleaseManifest:
    """Return the manifest that a release wrote.

    Raises `StoreError` for any other text, and for a manifest that lists files where no release has any.
    """
    try:
        content = json.loads(text)
        files = {path: ManifestEntry(**file) for path, file in content["files"].items()}
        shards = [shard for shard in content["shards"] if _SHARD.fullmatch(shard)]
        left = int(content.get("pages_left", 0))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError("{file} is not that of a release ({error})", MANIFEST, type(error).__name__) from None
    if strange := next((path for path in files if not _PLACE.fullmatch(path)), None):
        form = "{file} is not that of a release: it lists {name}, which is no data file"
        raise StoreError(form, MANIFEST, visible(strange, _SHOWN))
    if not shards or len(shards) != len(content["shards"]):
        form = "{file} is not that of a release: its list of shards is empty, or names what is none"
        raise StoreError(form, MANIFEST)
    return ReleaseManifest(shards, {path: file for path, file in files.items() if DATA_PATH.fullmatch(path)}, left)


_FEATURES = b"huggingface"
"""Footer key under which `datasets` keeps the features of a file."""

_AGAIN = "materialize hf_release again for"
_SUMMARISED = ("pages", "queries", "lineage", CHUNKS, CORRECTIONS)
"""Configs whose files hold a summary: a card needs it, and a file without one must not count as empty."""

INCOMPLETE = [state.value for state in (State.PARTIAL, *LOST)]
"""States of a page that lacks some of its contents."""

Inventory = Mapping[str, list["ReleasePart"]]
"""The files of each config in shard order; a config without files is a key too."""


@dataclass(frozen=True, slots=True)
class ReleasePart:
    """One shard of one config.

    `features` is JSON, as `datasets` writes it.
    """

    shard: str
    path: str
    rows: int
    bytes: int
    features: str
    summary: Mapping[str, Any] = field(default_factory=dict)


def list_parts(folder: Path) -> Inventory:
    """Return every published file under `folder`.

    Raises `StoreError` for one that is damaged.
    """
    inventory: dict[str, list[ReleasePart]] = {config: [] for config in ALL_CONFIGS}
    for config, parts in inventory.items():
        for path in config_files(folder, config):
            shard = path.stem
            try:
                footer = pq.read_metadata(path)
            except (pa.ArrowInvalid, OSError) as error:
                form = "{path} is not readable ({error}): delete it and {command} {shard}"
                raise StoreError(form, path, error, _AGAIN, shard) from None
            metadata = footer.metadata or {}
            try:
                features, summary = metadata[_FEATURES].decode(), json.loads(metadata.get(SUMMARY, b"{}"))
            except (KeyError, ValueError, RecursionError):
                features, summary = "", None
            if not isinstance(summary, dict) or (config in _SUMMARISED and SUMMARY not in metadata):
                raise StoreError("{path} is no file of a release: delete it and {command} {shard}", path, _AGAIN, shard)
            place = path.relative_to(folder).as_posix()
            parts.append(ReleasePart(shard, place, footer.num_rows, path.stat().st_size, features, summary))
    return inventory


def loadable_parts(parts: Iterable[ReleasePart]) -> list[ReleasePart]:
    """Return the parts that make up a config.

    These are the parts with the features of most of its rows. While a corpus is being redone with another vector width,
    the shards of both widths cannot be one dataset: the larger group of rows is loaded, and `waiting` names the other
    parts.
    """
    parts = list(parts)
    if not parts:
        return []
    rows: Counter[str] = Counter()
    for part in parts:
        rows[part.features] += part.rows
    features = rows.most_common(1)[0][0]
    return [part for part in parts if part.features == features]


def unloadable_lines(inventory: Inventory) -> Iterator[str]:
    """Yield a line for each config with rows that cannot be loaded.

    This happens if its shards have vectors of two widths.
    """
    for config, parts in inventory.items():
        used = loadable_parts(parts)
        waiting = [part.shard for part in parts if part.rows and part not in used]
        if waiting:
            rows, loaded = sum(part.rows for part in parts), sum(part.rows for part in used)
            more = phrase(" and {count} more", len(waiting) - 1) if len(waiting) > 1 else ""
            form = (
                "{config} loads {loaded} of {rows} rows: {shard}{more} has other columns, or vectors of another width, "
                "than the rest; materialize its tables and hf_release again"
            )
            yield phrase(form, config, loaded, rows, waiting[0], more)


def incomplete_pages(folder: Path, parts: Iterable[ReleasePart]) -> Iterator[dict[str, str]]:
    """Yield page_id, state and reason of every incomplete page, in corpus order."""
    for part in parts:
        if any(part.summary["ended"][state] for state in INCOMPLETE):
            yield from pq.read_table(
                folder / part.path, columns=["page_id", "state", "reason"], filters=[("state", "in", INCOMPLETE)]
            ).to_pylist()


def documents(inventory: Inventory, license: str | None) -> Iterator[tuple[str | None, str, str | None, int]]:
    """Yield (document, source file, licence, pages) in corpus order.

    `license` is that of pages that state none.
    """
    for part in inventory["pages"]:
        for document, source, stated, pages in part.summary["documents"]:
            yield document, source, stated or license, pages


def licences(inventory: Inventory, license: str | None) -> dict[str | None, int]:
    """Return the number of pages by licence, as their sources state it."""
    counted: Counter[str | None] = Counter()
    for _, _, stated, pages in documents(inventory, license):
        counted[stated] += pages
    return dict(counted)


def features_of(table: pa.Table) -> str:
    """Return the features that the file of a config's table will have."""
    return table.schema.metadata[_FEATURES].decode()
