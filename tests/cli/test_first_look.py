"""A corpus cut by `--max-pages` is unfinished everywhere, with the command that makes the rest."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from kopub.cli.commands.plan import plan_values
from kopub.cli.commands.run import run_assets
from kopub.cli.commands.status import show_status, status_values
from kopub.pages.indexing import index
from kopub.release.gates import Gates
from kopub.release.publishing import fitness_of
from kopub.release.verify import notes_on, verify
from kopub.tables.hf_release import HfRelease
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.harness import Platform
from tests.support.processes.commands import kopub
from tests.support.sources.pdf_files import pdf, sheet


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """Return a platform whose corpus has two of the five pages of its folder."""
    monkeypatch.setenv("DAGSTER_HOME", str(make_dagster_home(tmp_path / "dagster")))
    (tmp_path / "papers").mkdir()
    pages = (sheet(b"0 0 0 rg 0 %d %d 9 re f" % (at, 9 + at)) for at in range(5))
    (tmp_path / "papers" / "a.pdf").write_bytes(pdf(*pages))
    index(str(tmp_path / "papers"), tmp_path / "home", dpi=72, max_pages=2)
    return Platform(tmp_path / "home", engines={"gates": Gates(max_doubtful_share=1.0)})


@pytest.mark.slow
def test_a_cut_corpus_is_unfinished_everywhere(platform: Platform, tmp_path: Path):
    command = f"kopub run {tmp_path / 'papers'}"
    line = f"unfinished: 3 pages of papers left by --max-pages; {command} makes them"
    settings = platform.settings
    for first in ("5 pages: 2 ok, 3 unfinished", "nothing to compute; 5 pages: 2 ok, 3 unfinished"):
        out = io.StringIO()
        assert run_assets(settings, [], "", Console(file=out, width=300)) == 0
        assert any(said.startswith(first) for said in out.getvalue().splitlines()), out.getvalue()
        assert line in out.getvalue().splitlines()
    out = io.StringIO()
    show_status(settings, Console(file=out, width=300))
    assert line in out.getvalue()
    assert f"next     {command}  (the rest of its pages)" in out.getvalue()
    status = status_values(settings)
    assert status["first_looks"] == [{"source": "papers", "pages_left": 3, "command": command}]
    assert status["next"] == command
    assert plan_values(settings)["first_looks"] == [line]
    about = HfRelease(settings.resources).about({})
    assert fitness_of(about, settings.release).closed[0].startswith("unfinished: 3 pages of the corpus left")
    folder = Path(str(settings.release.folder))
    assert "This release is unfinished: 3 pages of the corpus are not in it" in (folder / "README.md").read_text()
    assert (list(verify(folder)), notes_on(folder)) == ([], ["unfinished: 3 pages of the corpus left by --max-pages"])
    told = kopub({"KOPUB_HOME": str(platform.home)}, "export", str(tmp_path / "out"), "--markdown")
    assert (told.returncode, told.stderr.splitlines()[-1]) == (0, line)
