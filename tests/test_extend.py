"""The examples in docs/extend.md and docs/recipes.md equal the files of docs/examples, and work."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kopub.pages.indexing import index
from kopub.search import metrics
from kopub.states import State
from tests.support.harness import Platform
from tests.support.sources.corpora import page_image

DOCS = Path(__file__).resolve().parents[1] / "docs"
TEXT = "\n".join((DOCS / name).read_text("utf-8") for name in ("extend.md", "recipes.md"))
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def example(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / "examples" / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(str(p.relative_to(DOCS / "examples")) for p in DOCS.rglob("examples/*/*.py")))
def test_the_text_shows_the_file_as_it_is(path: str):
    assert (DOCS / "examples" / path).read_text("utf-8") in BLOCKS


def test_scans_become_a_corpus(tmp_path: Path):
    for document, count in (("letters", 2), ("maps", 1)):
        (tmp_path / "scans" / document).mkdir(parents=True)
        for page in range(count):
            (tmp_path / "scans" / document / f"{page}.jpg").write_bytes(page_image(page))
    scans = example("source/scans.py")
    scans.write_shards(tmp_path / "scans", tmp_path / "corpus")
    manifest = index(str(tmp_path / "corpus"), tmp_path / "home")
    assert (len(manifest.shards), manifest.rows) == (1, 3)
    platform = Platform(tmp_path / "home")
    assert platform.run("raw_pages").success
    assert platform.states("raw_pages") == dict.fromkeys(["letters_1", "letters_2", "maps_1"], State.OK)
    assert platform.rows("raw_pages")["maps_1"]["doc_id"] == "maps"


def test_scans_are_brought_in_by_the_command(tmp_path: Path):
    script = DOCS / "examples" / "source" / "scans.py"
    (tmp_path / "scans" / "letters").mkdir(parents=True)
    (tmp_path / "scans" / "letters" / "1.jpg").write_bytes(page_image(1))
    command = [sys.executable, str(script), str(tmp_path / "scans"), str(tmp_path / "corpus")]
    assert subprocess.run(command, check=False).returncode == 0
    assert [path.name for path in (tmp_path / "corpus").iterdir()] == ["scans-0000.parquet"]
    refused = subprocess.run(command[:2], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "the following arguments are required: folder, out" in refused.stderr


def test_a_metric_is_one_line(monkeypatch: pytest.MonkeyPatch):
    (line,) = [block for block in BLOCKS if block.startswith("METRICS[")]
    monkeypatch.setattr(metrics, "METRICS", dict(metrics.METRICS))
    exec(line, {"METRICS": metrics.METRICS})
    scores = metrics.score(np.array([[5, 1, 7]]), [[1, 7]])
    assert dict(zip(metrics.METRICS, scores[0], strict=True))["map"] == pytest.approx((1 / 2 + 2 / 3) / 2)
