"""The progress output of `make setup`, and its checks before downloading torch and vLLM."""

import subprocess
import sys
from pathlib import Path

import pytest

from kopub.config.settings import ROOT
from kopub.recognition.tesseract.recognizer import data_files, install

PIP = """#!/bin/sh
echo "$@" >> {log}
i=0; while [ $i -lt 90 ]; do echo "Collecting package-$i"; i=$((i+1)); done
echo "Installing collected packages: a, b"
exit {status}
"""


def set_up(folder: Path, script: str, *arguments: str, smi: str | None = None, status: int = 0):
    """Run a script with doubles of Python and nvidia-smi; return it and pip's arguments."""
    programs = folder / "bin"
    programs.mkdir()
    log = folder / "log"
    doubles = {"python": PIP.format(log=log, status=status), "kopub": "#!/bin/sh\necho profiles\n"}
    if smi is not None:
        doubles["nvidia-smi"] = f"#!/bin/sh\n{smi}\n"
    for name, text in doubles.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "deploy" / script, programs / "python", *arguments],
        cwd=ROOT,
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, log.read_text() if log.exists() else ""


def test_an_installation_tells_how_it_goes_and_whether_it_failed(tmp_path: Path):
    done, asked = set_up(tmp_path, "pip.sh", "--editable", ".")
    assert done.stdout.splitlines() == ["  40 packages found", "  80 packages found", "  unpacking 2 packages"]
    assert asked == "-m pip install --progress-bar off --editable .\n"
    (tmp_path / "broken").mkdir()
    assert set_up(tmp_path / "broken", "pip.sh", "--editable", ".", status=3)[0].returncode == 3


@pytest.mark.skipif(None in data_files().values(), reason=f"no Tesseract data: {install()}")
def test_language_data_that_is_here_is_not_installed_again():
    command = [ROOT / "deploy" / "tessdata.sh", sys.executable]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(Path("/usr/bin/nvidia-smi").exists(), reason="nvidia-smi is here")
def test_without_a_driver_nothing_is_fetched(tmp_path: Path):
    done, asked = set_up(tmp_path, "gpu.sh")
    assert (done.returncode, asked) == (1, "")
    assert done.stderr.startswith("there is no nvidia-smi: install NVIDIA's driver, 580 or newer; then type make setup")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("smi", "line"),
    [
        ("echo 570.86.15", "the driver is 570.86.15: install 580 or newer; then type make setup GPU=1 again"),
        ("echo 'No devices were found'; exit 6", "nvidia-smi says: No devices were found; then type make setup GPU=1"),
    ],
)
def test_a_driver_that_will_not_do_is_one_line(smi: str, line: str, tmp_path: Path):
    done, asked = set_up(tmp_path, "gpu.sh", smi=smi)
    assert (done.returncode, asked) == (1, "")
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


def test_with_a_driver_the_extra_is_installed_and_the_next_step_said(tmp_path: Path):
    done, asked = set_up(tmp_path, "gpu.sh", smi="echo 580.95.05; sleep 0.1; echo 580.95.05")
    assert done.returncode == 0, done.stderr
    assert asked.endswith("--constraint requirements.lock --editable .[gpu]\n")
    assert done.stdout.splitlines()[-2:] == [
        "profiles",
        "next: export KOPUB_PROFILE=NAME, then kopub pull, kopub doctor, kopub run FOLDER (docs/gpu.md)",
    ]


def test_setup_ends_with_dagsters_own_commands_as_they_are_documented():
    said = subprocess.run(["make", "-n", "setup"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shown = said.rsplit("Ready.", 1)[1].split('"')
    printed = [line.strip().removeprefix(".venv/bin/") for line in shown if ".venv/bin/" in line]
    documented = (ROOT / "docs" / "running.md").read_text("utf-8")
    assert len(printed) == 2
    assert all(command in documented for command in printed)
