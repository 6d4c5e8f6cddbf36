"""Paths of this machine as a person types them: a URL in the place of one is refused in a line."""

from pathlib import Path

from resources.errors import ConfigError
from resources.urls import is_url


def local_path(typed: str | Path) -> Path:
    """What was typed as a path, or a default. Raises `ConfigError` for a URL, which would become a folder here."""
    if isinstance(typed, str) and is_url(typed):
        raise ConfigError(f"{typed} is a URL, and must be a path of this machine")
    return Path(typed)
