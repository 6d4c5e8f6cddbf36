"""A fixture that loads profiles in this process, each from an environment of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kopub.config.settings import Settings, read_settings

CPU = "layout: {engine: cpu}\nrecognition: {engine: tesseract}\nembedding: {engine: hashed}\n"

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that loads a profile's text with environment variables and changes of `--set`."""

    def load(profile: str | bytes = CPU, changes: Mapping[str, str] | None = None, **environ: str) -> Settings:
        path = tmp_path / "mine.yaml"
        path.write_bytes(profile if isinstance(profile, bytes) else profile.encode())
        defaults = {"KOPUB_HOME": str(tmp_path / "home"), "KOPUB_PROFILE": str(path)}
        return read_settings(defaults | environ, changes)

    return load
