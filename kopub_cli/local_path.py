"""Paths of this machine as a person types them: a URL in the place of one is refused in a line."""

from pathlib import Path

from resources.errors import ConfigError
from resources.urls import is_url


def local_path(text: str) -> Path:
    """Raises `ConfigError` for a URL, which would become a folder of that name here."""
    if is_url(text):
        raise ConfigError(f"{text} is a URL, and must be a path of this machine")
    return Path(text)
