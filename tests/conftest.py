"""Every test has a home of its own; the partitions are those of the samples, shard_00 and shard_01."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.writable_hub import REPO, WRITER, WritableHub

# Read when the assets are imported, so it is set before any test module is.
for name in [name for name in os.environ if name.startswith("KOPUB_") and not name.startswith("KOPUB_TEST_")]:
    del os.environ[name]
os.environ["KOPUB_HOME"] = tempfile.mkdtemp(prefix="kopub-tests-")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-graph", action="store_true", help="Write tests/assets/graph.json anew.")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WritableHub]:
    """The only Hub that this process's client and `datasets` know, with a writer logged in and caches of the test."""
    from datasets import config
    from huggingface_hub import constants

    hub = WritableHub(REPO)
    with hub.serve() as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
        monkeypatch.setenv("HF_TOKEN", WRITER)
        yield hub
