"""The weights that the engines of a profile take from the Hub, and what goes wrong on the way, in one line."""

import errno
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from resources.engine import Engine
from resources.errors import HubError
from resources.printable import first_line, visible
from resources.vllm.server import VLLMServer

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

    A folder and the model of an external server have none.
    """
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for section, engine in engines.items():
        pin = _pin(engine)
        if pin is not None:
            found[pin] = (*found.get(pin, ()), section)
    return [Weights(repo, revision, sections) for (repo, revision), sections in found.items()]


def server_of(engine: Engine) -> VLLMServer | None:
    """Return the model server of an engine that has one."""
    server = getattr(engine, "server", None)
    return server if isinstance(server, VLLMServer) else None


def _pin(engine: Engine) -> tuple[str, str] | None:
    server = server_of(engine)
    if server is not None:
        outside = server.mode == "external" or server.folder.is_dir()
        return None if outside or not server.revision else (server.model, server.revision)
    repo, revision = getattr(engine, "repo", None), getattr(engine, "revision", None)
    if not isinstance(repo, str) or not isinstance(revision, str) or not revision or Path(repo).is_dir():
        return None
    return repo, revision


_SAID = 200
"""Characters of what the Hub or a library says."""
UNREACHABLE = "the Hub cannot be reached"
"""How the line of a missing network begins, after the name of the weights."""


@contextmanager
def called(weights: Weights) -> Iterator[None]:
    """Turn what the Hub's client raises into a `HubError`.

    Not chained, since it can hold signed addresses. Its log is silent meanwhile: it has a line for each of its own
    tries, with an address.
    """
    import httpx2

    client = logging.getLogger("huggingface_hub")
    level = client.level
    client.setLevel(logging.CRITICAL)
    try:
        yield
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        raise HubError(f"{weights}: {explain(error)}") from None
    finally:
        client.setLevel(level)


def explain(error: BaseException) -> str:
    """Return what went wrong, and what to do."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    cause = error.__cause__
    if isinstance(cause, (HfHubHTTPError, OfflineModeIsEnabled)):
        error = cause
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE keeps it from being fetched: unset it, or bring the Hub's cache along"
    if isinstance(error, HfHubHTTPError):
        return _refused(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; what was fetched is kept: free some space, or set HF_HUB_CACHE, and run it again"
    said = visible(first_line(str(error)) or type(error).__name__, _SAID)
    unreachable = f"{UNREACHABLE} at {_endpoint()} ({said})"
    return f"{unreachable}: check the network and HF_ENDPOINT and run it again; what was fetched is kept"


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _refused(error: "HfHubHTTPError") -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    status = error.response.status_code
    if isinstance(error, RevisionNotFoundError):
        return "the repository has no such commit: correct its revision in profiles/models.yaml"
    if isinstance(error, GatedRepoError) or status == HTTPStatus.FORBIDDEN:
        return "its owners grant access on its page on the Hub: ask for it there, then `hf auth login`"
    if isinstance(error, RepositoryNotFoundError) or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND):
        return "no such repository that the Hub shows to you: correct profiles/models.yaml, or `hf auth login`"
    said = visible(error.server_message or "no reason given", _SAID)
    return (
        f"{UNREACHABLE} at {_endpoint()} (it answered {status}, {said}): run it again later; what was fetched is kept"
    )
