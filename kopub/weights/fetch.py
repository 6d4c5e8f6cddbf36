"""Pinned weights in the Hub's cache: checked, fetched, resumed and proven."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from huggingface_hub import hf_hub_url, snapshot_download
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers
from huggingface_hub.utils.sha import git_hash

from kopub.engine import Engine, require_installed
from kopub.errors import HubError
from kopub.files import file_sha256
from kopub.states import phrase
from kopub.weights.hub import (
    RepositoryFile,
    Weights,
    ask_hub,
    cache_folder,
    is_offline,
    pinned_weights,
    repository_folder,
    snapshot_folder,
    translate_hub_errors,
    wanted_patterns,
)

SHA256, _SHA1 = 64, 40
"""Hex digits of the two kinds of hash in `RepositoryFile.hash`."""
_INDEX = "model.safetensors.index.json"
"""The file that names the parts of weights in several files."""


@dataclass(frozen=True, slots=True)
class CachedFiles:
    """The files of some weights by name: whole, missing and damaged ones.

    Whole and missing files have their bytes, damaged ones their problem. `partial_bytes` are those of files whose
    download was interrupted, from which it continues.
    """

    whole: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    partial_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        return bool(self.whole) and not self.missing and not self.damaged

    @property
    def bytes(self) -> int:
        return sum(self.whole.values())

    @property
    def bytes_missing(self) -> int:
        return sum(self.missing.values())


def check_cache(
    weights: Weights, listed: Sequence[RepositoryFile], step: Callable[[str, int], None] = lambda *_: None
) -> CachedFiles:
    """Compare the cached files with their list: presence, size, hash.

    Reads every byte present. Without a list, the hashes are the names that the cache gave its files. `step(file,
    bytes)` is called for each file.
    """
    folder = snapshot_folder(weights)
    partial = (repository_folder(weights) / "blobs").glob(f"*{PARTIAL}")
    files = CachedFiles(partial_bytes=sum(path.stat().st_size for path in partial))
    compared = list(listed)
    if not listed:
        for path in filter(Path.is_file, sorted(folder.rglob("*"))):
            compared.append(RepositoryFile(str(path.relative_to(folder)), path.stat().st_size, None))
    for file in compared:
        path = folder / file.path
        if not path.is_file():
            files.missing[file.path] = file.size
            continue
        step(file.path, file.size)
        size, expected = path.stat().st_size, file.hash or path.resolve().name
        problem = None
        if size != file.size:
            problem = phrase("{size:,} of {whole:,} bytes", size, file.size)
        elif len(expected) in (SHA256, _SHA1):  # a cache that was copied without its links has no hash as a name
            actual = file_sha256(path) if len(expected) == SHA256 else git_hash(path.read_bytes())
            if actual != expected:
                problem = phrase("its hash is {actual}, not {pinned}", actual[:8], expected[:8])
        if problem:
            files.damaged[file.path] = problem
        else:
            files.whole[file.path] = file.size
    if not listed:
        _add_lacking(folder, files)
    return files


def _add_lacking(folder: Path, files: CachedFiles) -> None:
    """Add the indispensable files that a checkpoint without a list lacks."""
    needed = {"config.json"}
    if _INDEX in files.whole:
        try:
            needed |= set(json.loads((folder / _INDEX).read_bytes())["weight_map"].values())
        except (ValueError, LookupError, TypeError, AttributeError):
            # A cache that was copied without its links does not know the hash of the file.
            del files.whole[_INDEX]
            files.damaged[_INDEX] = "it does not say which files there are"
    elif not any(name.endswith(".safetensors") for name in (*files.whole, *files.damaged)):
        needed.add("model.safetensors")
    files.missing.update(dict.fromkeys(sorted(needed - files.whole.keys() - files.damaged.keys()), 0))


_SPARE = 1.05
"""Factor on the missing bytes, since the cache keeps lists and links beside them."""
_LARGEST = 50 * 10**9
"""Most bytes of a file that the Hub serves by plain HTTP; its client has its own way for larger ones."""


def listed_online(weights: Weights) -> list[RepositoryFile]:
    """Return the files of the weights on the Hub.

    Raises `HubError`, also if HF_HUB_OFFLINE is set.
    """
    if is_offline():
        raise HubError("{weights}: HF_HUB_OFFLINE is set, so nothing is fetched: unset it and run it again", weights)
    return ask_hub(weights)


def require_ready(engines: Mapping[str, Engine], profile: str) -> None:
    """Raise `KopubError` if engines lack a package, or weights that could be fetched.

    The Hub is queried only for weights that are not in its cache.
    """
    require_installed(engines.values(), profile)
    for pin in pinned_weights(engines):
        if not any(snapshot_folder(pin).glob("*.safetensors")):
            listed_online(pin)


def cached_snapshot(weights: Weights) -> Path:
    """Return the folder of the weights, fetched if they are not in the cache.

    Raises `HubError`, one line.
    """
    if not any(snapshot_folder(weights).glob("*.safetensors")):
        listed = listed_online(weights)
        fetch(weights, listed, check_cache(weights, listed))
    return snapshot_folder(weights)


def require_room(missing: int) -> None:
    """Raise `HubError` if the disk of the cache has no room for `missing` bytes."""
    free = free_bytes(cache_folder())
    if missing * _SPARE > free:
        form = (
            "{size:.1f} GB are to be fetched and {folder} has room for {free:.1f}: free some space, or set "
            "HF_HUB_CACHE to another disk"
        )
        raise HubError(form, missing / 1e9, cache_folder(), free / 1e9)


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the disk where the folder is or would be."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(nearest).free


def fetch(weights: Weights, listed: Sequence[RepositoryFile], cached: CachedFiles) -> CachedFiles:
    """Fetch the missing and damaged files, and check all files again.

    Raises `HubError`, one line. Interrupted files are continued where they stopped; a damaged one is fetched anew.
    """
    for name in cached.damaged:
        # The Hub's client takes every file present for whole, so the file goes with its blob.
        link = snapshot_folder(weights) / name
        link.resolve().unlink(missing_ok=True)
        link.unlink(missing_ok=True)
    for file in listed:
        if file.path not in cached.whole and file.hash and len(file.hash) == SHA256 and file.size <= _LARGEST:
            download(weights, file)
    patterns = wanted_patterns(file.path for file in listed)
    with translate_hub_errors(weights):
        snapshot_download(weights.repo, revision=weights.revision, allow_patterns=patterns)
    fetched = check_cache(weights, [file for file in listed if file.path not in cached.whole])
    problems = {**dict.fromkeys(fetched.missing, "it is not there"), **fetched.damaged}
    if problems:
        name, problem = next(iter(problems.items()))
        form = "{weights}: {file} was fetched and is not whole ({reason}): run `kopub pull` again"
        raise HubError(form, weights, name, problem)
    return CachedFiles({**cached.whole, **fetched.whole})


PARTIAL = ".partial_bytes"
"""The suffix of an incomplete blob."""


def download(weights: Weights, file: RepositoryFile) -> None:
    """Fetch a file known by its SHA-256, unless its blob exists.

    Raises `HubError`, one line.
    """
    assert file.hash is not None
    blob = repository_folder(weights) / "blobs" / file.hash
    url = hf_hub_url(weights.repo, file.path, revision=weights.revision)
    with translate_hub_errors(weights):
        options = {"headers": build_hf_headers(), "displayed_filename": file.path}
        actual = fetch_whole(url, blob, blob.with_name(f"{file.hash}{PARTIAL}"), file.hash, file.size, **options)
    if actual is not None:
        form = (
            "{weights}: {file} was fetched and is not whole (its hash is {actual}, not {pinned}): run `kopub pull` "
            "again"
        )
        raise HubError(form, weights, file.path, actual[:8], file.hash[:8])


def fetch_whole(
    url: str, target: Path, begun: Path, sha256: str, size: int | None = None, **options: Any
) -> str | None:
    """Fetch a file, unless it exists, and return its hash if that is another.

    An interrupted download goes on from `begun`, which is removed if the hash is wrong. `options` are those of
    `http_get`. Raises what it raises.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{begun}.lock"):
        if target.exists():
            return None
        with begun.open("ab") as file:
            if size is not None and file.tell() > size:
                file.truncate(file.seek(0))
            http_get(url, file, resume_size=file.tell(), expected_size=size, **options)
        if (actual := file_sha256(begun)) != sha256:
            begun.unlink()
            return actual
        begun.replace(target)
    return None
