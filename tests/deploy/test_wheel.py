"""The wheel holds the product alone, and is enough to make a dataset in an empty folder."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from kopub.config.settings import ROOT
from kopub.recognition.tesseract.recognizer import data_files, install, tessdata_folder
from tests.support.installed import needs
from tools import tessdata_wheel

pytestmark = needs("hatchling")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_three_packages_and_their_data(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    packages = {"kopub", "kopub_assets", "resources"}
    assert {name.split("/")[0] for name in names} == {*packages, wheel.name.rsplit("-", 3)[0] + ".dist-info"}
    files = [path for package in packages for path in (ROOT / package).rglob("*") if path.is_file()]
    expected = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    assert {name for name in names if ".dist-info/" not in name} == expected


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.skipif(None in data_files().values(), reason=f"no Tesseract data: {install()}")
def test_an_installed_wheel_reads_a_folder_and_its_definitions_load(wheel: Path, tmp_path: Path):
    python = tmp_path / "environment" / "bin" / "python"
    venv.create(python.parents[1], symlinks=True)
    # Its dependencies are those of this environment, without the packages of the checkout.
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    for folder in ("home", "empty", "source"):
        (tmp_path / folder).mkdir()
    page = Image.new("RGB", (1240, 500), "white")
    ImageDraw.Draw(page).text((120, 200), "Exits are on every floor.", 0, ImageFont.load_default(40))
    page.save(tmp_path / "source" / "fire.pdf")
    environment = {name: value for name, value in os.environ.items() if name == "TESSDATA_PREFIX"}
    environment |= {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, check=False, cwd=tmp_path / "empty", env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    install = ["install", "--quiet", "--no-deps", "--no-index"]
    run(sys.executable, "-m", "pip", "--python", python, *install, wheel)
    assert "1 page: 1 ok" in run("kopub", "run", tmp_path / "source")
    assert "Exits are on every floor." in run("kopub", "search", "exits")
    where = "import kopub, kopub_assets, resources; print(kopub.__file__, kopub_assets.__file__, resources.__file__)"
    assert all(str(packages) in file for file in run(python, "-c", where).split())
    validated = run(python, "-m", "dagster", "definitions", "validate", "-m", "kopub_assets.definitions")
    assert "All code locations passed validation" in validated


ALL = pytest.mark.skipif(
    None in data_files([*tessdata_wheel.HASHES]).values(), reason=f"not all data: {install([*tessdata_wheel.HASHES])}"
)


@ALL
@pytest.mark.slow
def test_the_wheel_of_language_data_is_found_and_other_data_are_refused(tmp_path: Path):
    made = tessdata_wheel.build(Path(tessdata_folder([*tessdata_wheel.HASHES])), tmp_path)
    names = zipfile.ZipFile(made).namelist()
    assert [name for name in names if name.endswith("/licenses/LICENSE")]
    python = tmp_path / "environment" / "bin" / "python"
    venv.create(python.parents[1], symlinks=True)
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", "--quiet", made]
    subprocess.run(pip, check=True)
    code = (
        "from kopub.recognition.tesseract.recognizer import tessdata_folder; import tesserocr;"
        "folder = tessdata_folder(); api = tesserocr.PyTessBaseAPI(path=folder, lang='kor+eng+osd');"
        "print(folder, api.GetLoadedLanguages())"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{python.parents[1]}/share/tessdata/ ['kor', 'eng', 'osd']\n"
    (packages.parents[2] / "share" / "tessdata" / "kor.traineddata").write_bytes(b"another")
    with pytest.raises(SystemExit, match=r"kor\.traineddata is not that of tessdata_fast 4\.1\.0"):
        tessdata_wheel.build(packages.parents[2] / "share" / "tessdata", tmp_path)


@ALL
@pytest.mark.slow
@pytest.mark.services
def test_what_a_release_publishes_is_built_and_reads_a_korean_page_in_one_line(tmp_path: Path):
    uvx = Path(sys.prefix, "bin", "uvx")
    if not uvx.is_file():
        pytest.skip("uv is not installed: make setup")
    # uv does not read pip's configuration.
    own = {"UV_DEFAULT_INDEX": "PIP_INDEX_URL", "SSL_CERT_FILE": "PIP_CERT"}
    environment = os.environ | {name: os.environ[pips] for name, pips in own.items() if pips in os.environ}
    environment |= {"UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON": sys.executable}

    def run(*command: str | Path, cwd: Path = tmp_path) -> str:
        done = subprocess.run(command, check=False, cwd=cwd, env=environment, capture_output=True, text=True)
        if "Failed to fetch" in done.stderr or "error sending request" in done.stderr:
            pytest.skip(f"the package index does not answer: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # The packages of this environment are not installed again, as `make dist` would after a change of pyproject.toml.
    built = run("make", "--old-file=setup", "dist", f"DIST={tmp_path}", f"VENV={sys.prefix}", cwd=ROOT)
    assert built.count("PASSED") == 3
    ours, data = next(tmp_path.glob("kopub-*.whl")), next(tmp_path.glob("kopub_tessdata-*.whl"))
    environment.pop("TESSDATA_PREFIX", None)
    environment["KOPUB_HOME"] = str(tmp_path / "home")
    page = ROOT / "docs" / "examples" / "budget.png"
    # What is locked has wheels in the cache of the next run.
    locked = ["--constraints", ROOT / "requirements.lock"]
    said = run(uvx, "--quiet", *locked, "--from", ours, "--with", data, "kopub", "read", page)
    assert "<td>412,350</td><td>364,187</td>" in said
    assert "공공도서관 건립" in said
