"""The environment of all tests, and their groups for parallel runs."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from kopub.config.settings import load_settings
from tests.support.servers.buckets import bucket

if TYPE_CHECKING:
    from tests.doubles.hubs.writable_hub import WritableHub
    from tests.doubles.s3 import S3Double

# The same examples each time, however slow the machine is.
hypothesis.settings.register_profile("deterministic", deadline=None, derandomize=True)
hypothesis.settings.load_profile("deterministic")

# A shell starts background commands with SIGINT ignored, which every process of a test would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

_MINUTES = 300
"""Seconds: the time limit of every test, so whatever sets its own of as much may take minutes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-graph", action="store_true", help="Write tests/assets/graph.json anew.")
    parser.addoption("--write-passed", metavar="FILE", help="Write the names of the tests that pass.")
    parser.addoption("--leave-out", metavar="FILE", help="Leave out these tests, but for those marked `extras`.")


# Before pytest-xdist, which reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the groups that pytest-xdist gives to one worker each, and put those that wait first.

    The tests of a file share fixtures. A real vLLM takes a core and 1.4 GB, so there are two at a time at most.
    """
    if file := config.getoption("leave_out"):
        passed = set(Path(file).read_text("utf-8").splitlines())
        proven = [item for item in items if item.nodeid in passed and not item.get_closest_marker("extras")]
        config.hook.pytest_deselected(items=proven)
        items[:] = [item for item in items if item not in set(proven)]

    def patience(item: pytest.Item) -> int:
        """Return 2 for a real vLLM, 1 for other processes that are waited for and for what may take minutes, else 0."""
        waits = any(item.get_closest_marker(name) for name in ("services", "browser"))
        limit = item.get_closest_marker("timeout")
        return 2 if item.get_closest_marker("vllm") else int(waits or (limit is not None and limit.args[0] >= _MINUTES))

    for item in items:
        group = item.path.stem
        if item.get_closest_marker("vllm"):
            group = "vllm" if item.path.parent.name == "vllm" else "models"
        item.add_marker(pytest.mark.xdist_group(group))
    # The longest last would keep one worker busy while the others are done.
    items.sort(key=patience, reverse=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if file := config.getoption("write_passed"):
        # pytest-xdist appends the group to a name.
        names = (report.nodeid.rpartition("@")[0] for report in terminalreporter.stats.get("passed", ()))
        Path(file).write_text("\n".join(names), "utf-8")


def pytest_collection_finish() -> None:
    """Exclude all imported objects from later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def quick_writing() -> None:
    """Make Dagster's history and files cheap to write in this process."""
    # Imported here, so that the process that only distributes the tests does not import Dagster.
    from tests.support.dagster.quick_history import make_history_quick
    from tests.support.no_power_cut import wait_for_no_disk

    wait_for_no_disk()
    make_history_quick()


@pytest.fixture(scope="module")
def s3() -> "Iterator[S3Double]":
    from tests.doubles.s3 import S3Double

    with S3Double() as server:
        yield server


@pytest.fixture(scope="module")
def s3_root(s3: "S3Double") -> Iterator[str]:
    from tests.doubles.s3 import BUCKET

    with bucket(s3.environment, BUCKET) as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep settings and the home of the person who runs the tests out of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("KOPUB_") and not name.startswith("KOPUB_TEST_"):
                patch.delenv(name)
        patch.setenv("KOPUB_HOME", str(tmp_path_factory.mktemp("kopub")))
        # One LibreOffice at a time is a user's limit, for which the workers would wait for each other.
        patch.setenv("KOPUB_RUNTIME", str(tmp_path_factory.mktemp("runtime")))
        # A person's language changes what other programs print.
        for name in ("LANG", "LANGUAGE", "LC_ALL"):
            patch.delenv(name, raising=False)
        patch.setenv("LC_ALL", "C.UTF-8")
        # CPUs with float16 arithmetic, which are few, round every partial sum of a product, which no GPU does.
        patch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
        yield


@pytest.fixture(autouse=True)
def settings_read_anew() -> None:
    """Clear the cached settings, so that no test sees those of an earlier one."""
    load_settings.cache_clear()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator["WritableHub"]:
    """Return a double of the Hub for `huggingface_hub` and `datasets`, with a writer logged in."""
    from datasets import config
    from huggingface_hub import constants

    from tests.doubles.hubs.writable_hub import REPO, WRITER, WritableHub

    hub = WritableHub(REPO)
    with hub.serve() as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(config, "HF_ENDPOINT", url)
        monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
        monkeypatch.setenv("HF_TOKEN", WRITER)
        yield hub
