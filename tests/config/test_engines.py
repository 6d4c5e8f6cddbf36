"""Engines are found by entry points, including those of other packages."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kopub.config.settings import ROOT, read_settings
from kopub.errors import ConfigError
from kopub.pages.indexing import index
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.processes import forked
from tests.support.sources.corpora import pages, write_corpus

EXAMPLE = ROOT / "docs" / "examples" / "engine"
BLOCKS = re.findall(r"```\w*\n(.*?)```", (ROOT / "docs" / "extend.md").read_text("utf-8"), re.DOTALL)
READS = f'["{sys.executable}", "-c", "import sys; print(sys.stdin.buffer.read()[1:4].decode(), \'안녕\')"]'
"""A program for the engine of the example that prints the format of the image."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which pip has installed the package of the documentation."""
    folder = tmp_path_factory.mktemp("package")
    source = shutil.copytree(EXAMPLE, folder / "source")
    command = ["install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", folder / "target"]
    subprocess.run([sys.executable, "-m", "pip", *command, source], check=True, capture_output=True, text=True)
    return folder / "target"


def run(folder: Path, home: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the packages of this environment and those in `folder`."""
    make_dagster_home(home / "dagster")
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
    mine = {"PYTHONPATH": path, "KOPUB_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
    return forked.run(command, forked.inherited() | mine | environment)


@pytest.mark.services
def test_a_page_is_read_by_an_engine_of_another_package(installed: Path, tmp_path: Path):
    home = tmp_path / "home"
    index(str(write_corpus(tmp_path / "source", [pages("a_1")])), home)
    profile = {"KOPUB_PROFILE": str(EXAMPLE / "profile.yaml"), "KOPUB_RECOGNITION__COMMAND": READS}
    select = ["--select", "raw_pages,layout_regions,ocr_results", "--partition", "shard_00", "-m", "definitions"]
    done = run(installed, home, "dagster", "asset", "materialize", *select, **profile)
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = pq.read_table(home / "store" / "ocr_results" / "shard_00.parquet").to_pylist()
    assert row["state"] == "ok"
    assert {region["content"] for region in row["regions"]} == {"PNG 안녕"}


@pytest.mark.services
def test_a_misspelt_field_of_it_is_one_line(installed: Path, tmp_path: Path):
    misspelt = (EXAMPLE / "profile.yaml").read_text().replace("  command:", "  comand:")
    (tmp_path / "profile.yaml").write_text(misspelt)
    refused = run(installed, tmp_path / "home", "kopub", "plan", KOPUB_PROFILE=str(tmp_path / "profile.yaml"))
    assert "(did you mean command?)" in refused.stderr
    assert refused.stderr in BLOCKS


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("COMMAND", "[]", "command is [], and must be a list of texts, not empty (KOPUB_RECOGNITION__COMMAND)"),
        ("TIMEOUT_SECONDS", "0", "timeout_seconds is '0', and must be a number, more than 0"),
        (
            "ENGINE",
            "comand",
            "engine is 'comand' (did you mean command?); choose one of command, deepseek_ocr, glm_ocr",
        ),
    ],
)
def test_its_fields_are_the_schema_of_its_section(
    key: str, value: str, line: str, installed: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(installed))
    with pytest.raises(ConfigError) as error:
        read_settings({"KOPUB_PROFILE": str(EXAMPLE / "profile.yaml"), f"KOPUB_RECOGNITION__{key}": value})
    assert str(error.value).startswith(f"profile profile: recognition.{line}")


def package(folder: Path, name: str, point: str, source: str) -> Path:
    """Install a package of one module, with one entry point for layout, into `folder`."""
    (folder / f"{name}.py").write_text(source)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[kopub.layout]\n{point}\n")
    return folder


DECLARED = """
from typing import ClassVar
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector

class Mine(LayoutDetector):
"""
VERSION = "    code_version: ClassVar[CodeVersion] = CodeVersion('layout.mine', {1: 'the first release'})\n"
DETECT = "    def detect(self, pages): ...\n"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise RuntimeError('no licence\\nsecond line')", "RuntimeError: no licence"),
        ("", "AttributeError: module 'mine' has no attribute 'Mine'"),
        ("class Mine: pass", "it is no subclass of kopub.layout.base.LayoutDetector"),
        (DECLARED + VERSION, "it does not define detect"),
        (DECLARED + DETECT, "it declares no code_version"),
        (
            DECLARED + VERSION + DETECT + "    model: str = ''",
            "it has a field 'model', which is a key of every profile section",
        ),
    ],
    ids=["import", "raises", "missing", "class", "abstract", "version", "reserved"],
)
def test_an_engine_that_cannot_be_used_is_one_line(
    source: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(package(tmp_path, "mine", "mine = mine:Mine", source)))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    with pytest.raises(ConfigError) as error:
        read_settings({"KOPUB_LAYOUT__ENGINE": "mine"})
    assert str(error.value) == f"profile cpu: layout.engine 'mine' of mine (mine:Mine) cannot be used: {line}"


def test_two_packages_with_an_engine_of_one_name_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(package(tmp_path, "mine", "cpu = mine:Mine", DECLARED + VERSION + DETECT)))
    with pytest.raises(ConfigError) as error:
        read_settings({})
    line = "layout.engine 'cpu' is in two packages, kopub, mine: uninstall one of them"
    assert str(error.value) == f"profile cpu: {line}"


@pytest.mark.services
def test_a_checkout_that_is_not_installed_again_says_so(tmp_path: Path):
    """After an update, the metadata of the older installation has no engine entry points."""
    metadata = tmp_path / "kopub-0.0.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kopub\nVersion: 0.0.0\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [str(Path(sys.executable).with_name("kopub")), "plan"]
    refused = subprocess.run(
        command, env=forked.inherited() | {"PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    line = "the engines of KoPub are not installed: run `pip install -e .` in its checkout again"
    assert refused.stderr == f"Error: profile cpu: {line}\n"


@pytest.mark.parametrize("name", ["command_ocr.py", "pyproject.toml", "profile.yaml"])
def test_the_documentation_shows_the_files_that_are_tested(name: str):
    assert (EXAMPLE / name).read_text("utf-8") in BLOCKS
