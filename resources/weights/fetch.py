"""Fetching pinned weights into the Hub's cache: what is missing, resumed where it was interrupted, and proven."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from resources.engine import Engine, require_installed
from resources.errors import HubError
from resources.weights.download import download
from resources.weights.hub_errors import called
from resources.weights.pinned import Weights, pinned_weights
from resources.weights.repository import Listed, ask_hub, cache_folder, is_offline, snapshot_folder, wanted_patterns
from resources.weights.whole import SHA256, Found, examine, remove_damaged

_SPARE = 1.05
"""Of the bytes that are missing: the cache keeps lists and links beside them."""
_LARGEST = 50 * 10**9
"""Bytes of a file that the Hub gives by plain HTTP; its client fetches a larger one in its own way."""


def listed_online(weights: Weights) -> list[Listed]:
    """The files of the weights on the Hub. Raises `HubError`, also when HF_HUB_OFFLINE is set."""
    if is_offline():
        raise HubError(f"{weights}: HF_HUB_OFFLINE is set, so nothing is fetched: unset it and run it again")
    return ask_hub(weights)


def require_ready(engines: Mapping[str, Engine], profile: str) -> None:
    """Raise `KopubError`, one line, where the engines lack a package, or weights that the Hub does not give.

    The Hub is asked for weights alone that are not in its cache.
    """
    require_installed(engines.values(), profile)
    for pin in pinned_weights(engines):
        if not _is_cached(pin):
            listed_online(pin)


def cached_snapshot(weights: Weights) -> Path:
    """The folder of the weights, fetched if they are not in the cache. Raises `HubError`, one line."""
    if not _is_cached(weights):
        listed = listed_online(weights)
        fetch(weights, listed, examine(weights, listed))
    return snapshot_folder(weights)


def _is_cached(weights: Weights) -> bool:
    return any(snapshot_folder(weights).glob("*.safetensors"))


def require_room(missing: int) -> None:
    """Raise `HubError` when the disk of the cache has no room for so many bytes."""
    free = free_bytes(cache_folder())
    if missing * _SPARE > free:
        raise HubError(
            f"{missing / 1e9:.1f} GB are to be fetched and {cache_folder()} has room for {free / 1e9:.1f}: "
            "free some space, or set HF_HUB_CACHE to another disk"
        )


def free_bytes(folder: Path) -> int:
    """Room on the disk where the folder is or would be."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(there).free


def fetch(weights: Weights, listed: Sequence[Listed], found: Found) -> Found:
    """Fetch what is missing or damaged, and examine all of it again. Raises `HubError`, one line.

    Files that were begun go on where they were interrupted; a damaged one is fetched anew.
    """
    from huggingface_hub import snapshot_download

    remove_damaged(weights, found)
    for file in listed:
        if file.path not in found.whole and file.hash and len(file.hash) == SHA256 and file.size <= _LARGEST:
            download(weights, file)
    patterns = wanted_patterns(file.path for file in listed)
    with called(weights):
        snapshot_download(weights.repo, revision=weights.revision, allow_patterns=patterns)
    fetched = examine(weights, [file for file in listed if file.path not in found.whole])
    problems = {**dict.fromkeys(fetched.missing, "it is not there"), **fetched.damaged}
    if problems:
        name, problem = next(iter(problems.items()))
        raise HubError(f"{weights}: {name} was fetched and is not whole ({problem}): run `kopub pull` again")
    return Found({**found.whole, **fetched.whole})
