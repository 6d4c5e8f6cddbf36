"""Whether the weights in the cache are those of the commit, to the last byte."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resources.files import file_sha256
from resources.weights.download import BEGUN
from resources.weights.pinned import Weights
from resources.weights.repository import Listed, repository_folder, snapshot_folder

SHA256, _SHA1 = 64, 40
"""Hex digits of the hashes that `Listed.hash` may be."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files of some weights by name: the bytes of whole and of missing ones, and what is wrong with the others.

    `begun` are the bytes of files whose fetching was interrupted; it goes on there.
    """

    whole: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    begun: int = 0

    @property
    def is_whole(self) -> bool:
        return bool(self.whole) and not self.missing and not self.damaged

    @property
    def bytes(self) -> int:
        return sum(self.whole.values())

    @property
    def bytes_missing(self) -> int:
        return sum(self.missing.values())


def examine(weights: Weights, listed: Sequence[Listed], step: Callable[[str, int], None] = lambda *_: None) -> Found:
    """Compare the cached files with their list: presence, size, hash; reads every byte that is there.

    Without a list, the hashes are the names that the cache gave its files. `step(file, bytes)` is told of each.
    """
    folder = snapshot_folder(weights)
    found = Found(begun=_begun(weights))
    for file in listed or _by_blobs(folder):
        path = folder / file.path
        if not path.is_file():
            found.missing[file.path] = file.size
            continue
        step(file.path, file.size)
        problem = _problem(path, file)
        if problem:
            found.damaged[file.path] = problem
        else:
            found.whole[file.path] = file.size
    if not listed:
        found.missing.update(dict.fromkeys(_lacking(folder, found), 0))
    return found


def remove_damaged(weights: Weights, found: Found) -> None:
    """Delete the damaged files with their blobs: the Hub's client takes every file that is there for whole."""
    for name in found.damaged:
        link = snapshot_folder(weights) / name
        link.resolve().unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def _problem(path: Path, file: Listed) -> str | None:
    size = path.stat().st_size
    if size != file.size:
        return f"{size:,} of {file.size:,} bytes"
    expected = file.hash or path.resolve().name
    actual = _hash(path, len(expected))
    return None if actual in (expected, None) else f"its hash is {actual[:8]}, not {expected[:8]}"


def _hash(path: Path, digits: int) -> str | None:
    """The hash of a file, of the kind that has so many digits; None for another: a copy need not be named by one."""
    if digits == SHA256:
        return file_sha256(path)
    return _git_hash(path) if digits == _SHA1 else None


def _git_hash(path: Path) -> str:
    """What Git names the contents of a file by."""
    from huggingface_hub.utils.sha import git_hash

    return git_hash(path.read_bytes())


def _by_blobs(folder: Path) -> list[Listed]:
    """The files of a snapshot as they are."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return [Listed(str(path.relative_to(folder)), path.stat().st_size, None) for path in files]


def _lacking(folder: Path, found: Found) -> Iterator[str]:
    """What a checkpoint cannot do without, where nobody lists its files."""
    if "config.json" not in found.whole:
        yield "config.json"
    index = "model.safetensors.index.json"
    if index in found.whole:
        parts = set(json.loads((folder / index).read_bytes()).get("weight_map", {}).values())
        yield from sorted(parts - found.whole.keys() - found.damaged.keys())
    elif not any(name.endswith(".safetensors") for name in (*found.whole, *found.damaged)):
        yield "model.safetensors"


def _begun(weights: Weights) -> int:
    return sum(path.stat().st_size for path in (repository_folder(weights) / "blobs").glob(f"*{BEGUN}"))
