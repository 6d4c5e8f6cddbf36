"""docs/package.ipynb runs over pages of the samples, and is kept without outputs."""

import warnings
from pathlib import Path

import nbformat
import pytest

from kopub.config.settings import ROOT
from tests.support.sample_home import sample_home

NOTEBOOK = ROOT / "docs" / "package.ipynb"
_PAGES = 2


@pytest.mark.services
def test_the_notebook_runs_over_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home = sample_home(tmp_path / "home", _PAGES, "corpus_image_embeddings", "corpus_text_embeddings")
    with warnings.catch_warnings():
        # The libraries that talk to a kernel warn about their event loops.
        warnings.simplefilter("ignore")
        from nbclient import NotebookClient
    monkeypatch.setenv("KOPUB_HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(tmp_path))
    shown = [
        output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    assert f"{_PAGES} pages" in shown[0]
    assert shown[-1].endswith("True)"), "a page that is read at once is the one that the assets made"


def test_the_notebook_is_kept_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
