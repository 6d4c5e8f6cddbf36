"""The files of a repository at its commit, as the Hub lists them, and where they lie in its cache."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from resources.weights.pinned import Weights, called

_WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.py")
"""What transformers and vLLM read; the rest are pictures, cards and the same weights in other formats."""
_TENSORS = ".safetensors"
_SECONDS = 20.0
"""For the Hub's answer to one question."""


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file of a repository with its size in bytes.

    `hash` is the SHA-256 of a large file (64 hex digits), Git's own of a small one (40), and None where only the
    cache knows it: it names every blob by its hash.
    """

    path: str
    size: int
    hash: str | None


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE keeps this process from asking the Hub."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def cache_folder() -> Path:
    """Return the Hub's cache on this machine, which need not be there yet."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def repository_folder(weights: Weights) -> Path:
    """Return where the cache keeps a repository: `blobs` by hash, and `snapshots` by commit, which link to them."""
    from huggingface_hub.file_download import repo_folder_name

    return cache_folder() / repo_folder_name(repo_id=weights.repo, repo_type="model")


def snapshot_folder(weights: Weights) -> Path:
    """Return where the files of the commit are when they were fetched."""
    return repository_folder(weights) / "snapshots" / weights.revision


def ask_hub(weights: Weights) -> list[RepositoryFile]:
    """Return the files that the Hub lists. Raises `HubError`, one line; asks nothing when offline."""
    from huggingface_hub import HfApi

    with called(weights):
        info = HfApi().model_info(weights.repo, revision=weights.revision, files_metadata=True, timeout=_SECONDS)
    files = info.siblings or []
    return _wanted(
        RepositoryFile(file.rfilename, file.size or 0, file.lfs.sha256 if file.lfs else file.blob_id) for file in files
    )


def remembered(weights: Weights) -> list[RepositoryFile]:
    """Return the files by the list that the last fetch of all left in the cache; empty where there is none."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        tree = get_cached_repo_tree(weights.repo, revision=weights.revision)
    except CachedRepoTreeNotFoundError:
        return []
    return _wanted(RepositoryFile(file.path, file.size, None) for file in tree)


def wanted_patterns(files: Iterable[str]) -> list[str] | None:
    """Return the patterns of what is fetched of a repository with these files.

    It is None for all of it.
    """
    return list(_WANTED) if any(name.endswith(_TENSORS) for name in files) else None


def _wanted(listed: Iterable[RepositoryFile]) -> list[RepositoryFile]:
    from huggingface_hub.utils import filter_repo_objects

    files = {file.path: file for file in listed}
    names = filter_repo_objects(files, allow_patterns=wanted_patterns(files))
    return [files[name] for name in names]
