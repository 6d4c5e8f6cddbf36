"""Which weights the engines of a profile take from the Hub."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from resources.engine import Engine
from resources.vllm.server import VLLMServer


@dataclass(frozen=True, slots=True)
class Weights:
    """A Hub repository at one commit, and the sections of the profile that use it."""

    repo: str
    revision: str
    sections: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.repo} at {self.revision[:8]}"


def pinned_weights(engines: Mapping[str, Engine]) -> list[Weights]:
    """Of the engines by section, once for each commit; a folder, and the model of an external server, is none."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for section, engine in engines.items():
        pin = _pin(engine)
        if pin is not None:
            found[pin] = (*found.get(pin, ()), section)
    return [Weights(repo, revision, sections) for (repo, revision), sections in found.items()]


def server_of(engine: Engine) -> VLLMServer | None:
    """The model server of an engine that has one."""
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
