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
from kopub.config.choices import Documents
from kopub.config.settings import ROOT
from kopub.embedding.hashed import HashedEmbedder
from kopub.sinks.base import Sink
from kopub.sinks.lancedb import LanceDbSink
from kopub.sinks.qdrant import QdrantSink
from tests.support.harness import Platform
from tests.support.installed import imported
from tests.support.sample_home import sample_home
from tests.support.sources.corpora import pages

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


def bring_into(sink: Sink, home: Path) -> None:
    """Bring the chunks of a home into a sink, as a run with the cpu profile does."""
    platform = Platform(home, {"documents": Documents(chunks=True, chunk_tokens=256), "sinks": sink})
    platform.engines["embedding"] = HashedEmbedder()
    platform.make("document_chunks", "chunk_embeddings", "search_sink")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_a_recipe_finds_a_passage_with_its_page_and_box(
    home: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    imported(LIBRARIES[name])
    monkeypatch.setenv("KOPUB_PROFILE", "cpu")
    if name == "qdrant":
        where = [str(tmp_path / "qdrant")]
        bring_into(QdrantSink(url=where[0]), home)
    else:
        imported("lancedb")
        where = []
        bring_into(LanceDbSink(home=str(home)), home)
    chunk = max((c for d in kopub.open(home).documents for c in d.chunks(max_tokens=256)), key=lambda c: len(c.text))
    found = recipe(name).find(str(home), " ".join(chunk.text.split()[:12]), *where)
    assert len(found) == 3
    page, box, text = found[0]
    assert page in {place.page_id for place in chunk.places}
    assert list(box) == list(chunk.places[0].bbox_2d)
    assert chunk.text == text


@pytest.mark.slow
def test_a_recipe_is_a_command(home: Path, tmp_path: Path):
    imported("lancedb")
    bring_into(LanceDbSink(home=str(home)), home)
    script = FOLDER / "with_lancedb.py"
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


def test_texts_and_questions_are_embedded_by_the_engine_of_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOPUB_PROFILE", "cpu")
    platform = Platform.of(tmp_path, [pages("a_1")])
    platform.make("raw_pages", "layout_regions", "ocr_results")
    corpus = kopub.open(platform.home)
    vectors = corpus.embed(["예산의 합계", "", "목차"])
    assert (vectors.shape, vectors.dtype) == ((3, 2048), np.float32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1], abs=1e-5)
    (asked,) = corpus.embed(["예산의 합계"], queries=True)
    assert (vectors @ asked).argmax() == 0
