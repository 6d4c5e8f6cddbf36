"""Repositories of weights on the Hub: pins, file lists, cache folders and errors."""

import errno
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants

from kopub.engine import Engine
from kopub.errors import HubError, first_line, visible
from kopub.states import phrase, with_remedy
from kopub.vllm.server import VLLMServer

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError


@dataclass(frozen=True, slots=True)
class Weights:
    """A Hub repository at one commit, and the sections of the profile that use it."""

    repo: str
    revision: str
    sections: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.repo} at {self.revision[:8]}"


def pinned_weights(engines: Mapping[str, Engine]) -> list[Weights]:
    """Return the weights of the engines by section, once for each commit.

    A local folder and the model of an external server have none.
    """
    pins: dict[tuple[str, str], tuple[str, ...]] = {}
    for section, engine in engines.items():
        if server := server_of(engine):
            repo, revision = server.model, server.revision
            is_local = server.mode == "external" or server.folder.is_dir()
        else:
            repo, revision = getattr(engine, "repo", None), getattr(engine, "revision", None)
            is_local = isinstance(repo, str) and Path(repo).is_dir()
        if isinstance(repo, str) and isinstance(revision, str) and revision and not is_local:
            pins[repo, revision] = (*pins.get((repo, revision), ()), section)
    return [Weights(repo, revision, sections) for (repo, revision), sections in pins.items()]


def server_of(engine: Engine) -> VLLMServer | None:
    """Return the model server of an engine, or None."""
    server = getattr(engine, "server", None)
    return server if isinstance(server, VLLMServer) else None


def managed_server(engine: Engine) -> VLLMServer | None:
    """Return the model server of an engine, if this platform starts it."""
    server = server_of(engine)
    return server if server is not None and server.mode == "managed" else None


_MOST_QUOTED = 200
"""Most characters quoted from a message of the Hub or a library."""
UNREACHABLE = "the Hub cannot be reached"
"""The beginning of the message about a missing network, after the name of the weights."""
_UNREACHABLE = "the Hub cannot be reached at {endpoint} ({error})"


@contextmanager
def translate_hub_errors(weights: Weights) -> Iterator[None]:
    """Turn errors of the Hub's client into a `HubError`, and silence its log.

    The cause is not chained, since it can contain signed addresses, as can the log line of each try.
    """
    import httpx2

    client = logging.getLogger("huggingface_hub")
    level = client.level
    client.setLevel(logging.CRITICAL)
    try:
        yield
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        raise HubError("{weights}: {reason}", weights, explain_hub_error(error)) from None
    finally:
        client.setLevel(level)


def explain_hub_error(error: BaseException) -> str:
    """Return what went wrong, and what to do."""
    from huggingface_hub import errors

    # The client hides the Hub's own answer behind an error about its cache.
    cause = error.__cause__
    if isinstance(cause, (errors.HfHubHTTPError, errors.OfflineModeIsEnabled)):
        error = cause
    if isinstance(error, errors.OfflineModeIsEnabled):
        return with_remedy("HF_HUB_OFFLINE keeps it from being fetched", "unset it, or bring the Hub's cache along")
    if isinstance(error, errors.HfHubHTTPError):
        return _refusal(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some space, or set HF_HUB_CACHE, and run it again"
        return with_remedy("the disk is full; what was fetched is kept", remedy)
    unreachable = phrase(_UNREACHABLE, constants.ENDPOINT, visible(first_line(error), _MOST_QUOTED))
    return with_remedy(unreachable, "check the network and HF_ENDPOINT and run it again; what was fetched is kept")


def _refusal(error: "HfHubHTTPError") -> str:
    from huggingface_hub import errors

    status = error.response.status_code
    if isinstance(error, errors.RevisionNotFoundError):
        return with_remedy("the repository has no such commit", "correct its revision in profiles/models.yaml")
    if isinstance(error, errors.GatedRepoError) or status == HTTPStatus.FORBIDDEN:
        finding = "its owners grant access on its page on the Hub"
        return with_remedy(finding, "ask for it there, then `hf auth login`")
    if isinstance(error, errors.RepositoryNotFoundError) or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND):
        finding = "no such repository that the Hub shows to you"
        return with_remedy(finding, "correct profiles/models.yaml, or `hf auth login`")
    answer = f"{status}, {visible(error.server_message or 'no reason given', _MOST_QUOTED)}"
    unreachable = phrase(_UNREACHABLE, constants.ENDPOINT, answer)
    return with_remedy(unreachable, "run it again later; what was fetched is kept")


_WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "*.py")
"""Files that transformers and vLLM read; the rest are pictures, cards and other formats."""
_TENSORS = ".safetensors"
_SECONDS = 20.0
"""Seconds for the Hub's answer to one request."""


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file of a repository with its size in bytes.

    `hash` is the SHA-256 of a large file (64 hex digits) or Git's own hash of a small one (40). It is None if only the
    cache knows it, which names every blob by its hash.
    """

    path: str
    size: int
    hash: str | None


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids this process to query the Hub."""
    return bool(constants.HF_HUB_OFFLINE)


def cache_folder() -> Path:
    """Return the Hub's cache on this machine, which may not exist yet."""
    return Path(constants.HF_HUB_CACHE)


def repository_folder(weights: Weights) -> Path:
    """Return the cache's folder of a repository.

    It has `blobs` by hash, and `snapshots` by commit, which link to them.
    """
    from huggingface_hub.file_download import repo_folder_name

    return cache_folder() / repo_folder_name(repo_id=weights.repo, repo_type="model")


def snapshot_folder(weights: Weights) -> Path:
    """Return the folder of the commit's files, once they are fetched."""
    return repository_folder(weights) / "snapshots" / weights.revision


def ask_hub(weights: Weights) -> list[RepositoryFile]:
    """Return the files that the Hub lists. Raises `HubError`, one line, at once if offline."""
    from huggingface_hub import HfApi

    with translate_hub_errors(weights):
        info = HfApi().model_info(weights.repo, revision=weights.revision, files_metadata=True, timeout=_SECONDS)
    listed: list[RepositoryFile] = []
    for file in info.siblings or []:
        sha = file.lfs.sha256 if file.lfs else file.blob_id
        listed.append(RepositoryFile(file.rfilename, file.size or 0, sha))
    return _wanted_files(listed)


def read_cached_list(weights: Weights) -> list[RepositoryFile]:
    """Return the files from the list that the last fetch left in the cache."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        tree = get_cached_repo_tree(weights.repo, revision=weights.revision)
    except CachedRepoTreeNotFoundError:
        return []
    return _wanted_files(RepositoryFile(file.path, file.size, None) for file in tree)


def wanted_patterns(files: Iterable[str]) -> list[str] | None:
    """Return the patterns of a repository's files to fetch; None means all."""
    return list(_WANTED) if any(name.endswith(_TENSORS) for name in files) else None


def _wanted_files(listed: Iterable[RepositoryFile]) -> list[RepositoryFile]:
    from huggingface_hub.utils import filter_repo_objects

    files = {file.path: file for file in listed}
    names = filter_repo_objects(files, allow_patterns=wanted_patterns(files))
    return [files[name] for name in names]
