"""Each recipe of docs/recipes.md finds a passage with page and box, using the real library."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import kopub
from kopub.config.settings import ROOT
from tests.support.installed import imported
from tests.support.sample_home import sample_home

FOLDER = ROOT / "docs" / "examples" / "recipes"
LIBRARIES = {
    "lancedb": "lancedb",
    "qdrant": "qdrant_client",
    "langchain": "langchain_core",
    "llamaindex": "llama_index",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_home(tmp_path_factory.mktemp("recipes") / "home", 3)


def recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"with_{name}", FOLDER / f"with_{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_a_recipe_finds_a_passage_with_its_page_and_box(
    home: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    imported(LIBRARIES[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOPUB_PROFILE", "cpu")
    corpus = kopub.open(home)
    chunk = max((c for d in corpus.documents for c in d.chunks(max_tokens=256)), key=lambda c: len(c.text))
    question = " ".join(chunk.text.split()[:12])
    found = recipe(name).find(str(home), question)
    assert len(found) == 3 or len(found) == sum(1 for d in corpus.documents for _ in d.chunks(max_tokens=256))
    page, box, text = found[0]
    assert page in {place.page_id for place in chunk.places}
    assert list(box) == list(chunk.places[0].bbox_2d)
    assert chunk.text in text
    if name in ("lancedb", "qdrant"):
        assert recipe(name).find(str(home), question)[0] == found[0]  # a second time, over what the first left


@pytest.mark.slow
def test_a_recipe_is_a_command(home: Path, tmp_path: Path):
    imported("langchain_core")
    script = FOLDER / "with_langchain.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KOPUB_PROFILE": "cpu"}
    done = subprocess.run(
        [sys.executable, script, home, "데비안"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) >= 3


def test_texts_and_questions_are_embedded_by_the_engine_of_the_profile(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_PROFILE", "cpu")
    corpus = kopub.open(home)
    vectors = corpus.embed(["예산의 합계", "", "목차"])
    assert (vectors.shape, vectors.dtype) == ((3, 2048), np.float32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1], abs=1e-5)
    (asked,) = corpus.embed(["예산의 합계"], queries=True)
    assert (vectors @ asked).argmax() == 0
