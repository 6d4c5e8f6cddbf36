"""A double of the Hub with one model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.doubles.hubs.model_hub import ModelHub

CONTENT = np.random.default_rng(11).bytes(300_000)


@pytest.fixture
def model_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModelHub]:
    """Serve the only Hub that this process's client knows, with an empty cache."""
    from huggingface_hub import constants

    files = {"config.json": b"{}", "model.safetensors": CONTENT, "README.md": b"# A model", "picture.png": CONTENT}
    hub = ModelHub("example/layout", files)
    with hub.serve() as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield hub
