"""`kopub doctor` names every simulated fault of a machine, and says what to do."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner, Result

from kopub.cli.main import app
from kopub.config.memory import MemoryDemand, memory_demands
from kopub.config.settings import load_settings, read_settings
from kopub.doctor import checks, environment
from kopub.doctor.checks import Finding, Level
from kopub.doctor.gpu_probe import driver
from kopub.pages.documents import conversion
from kopub.recognition.tesseract.recognizer import TesseractRecognizer
from kopub.vllm.served_engine import ServedEngine
from kopub.vllm.server import VLLMServer
from tests.doubles.nvml_double import GIB, NvmlDouble

TORCH = """
__version__ = "2.13.0+cu130"
class version:
    cuda = "13.0"
class cuda:
    def init():
        {init}
    def device_count():
        return 1
    def mem_get_info(index):
        return (20 * 10**9, 24 * 10**9)
    def get_device_name(index):
        return "NVIDIA L4"
"""
TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 12080). Please update your GPU driver by downloading "
    "and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)
NO_DRIVER = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver"
GB = 10**9
Torch = Callable[[str], dict[str, Any]]
Doctor = Callable[..., Result]


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Return a function that probes a double of torch whose `cuda.init` runs the given code."""

    def see(init: str) -> dict[str, Any]:
        (tmp_path / "torch.py").write_text(TORCH.format(init=init))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return checks.ask_torch()

    return see


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Return a function that runs `kopub doctor --quick` with the Hub offline, where all converters are installed."""
    monkeypatch.setattr(conversion, "has_korean_font", lambda: True)
    monkeypatch.setattr(conversion, "all_lacking", list)
    monkeypatch.setattr(checks.fonts, "draws_hangul", lambda: True)
    monkeypatch.setattr(checks.confinement, "why_open", lambda: None)
    monkeypatch.setattr(TesseractRecognizer, "advises", lambda self: [])
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    NvmlDouble(driver=False).install(monkeypatch)

    def run(*arguments: str, **environment: str) -> Result:
        load_settings.cache_clear()
        return CliRunner().invoke(app, ["doctor", "--quick", *arguments], env=environment)

    return run


def test_a_machine_that_confines_nothing_is_named(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.confinement, "why_open", lambda: "the kernel 4.18 has no Landlock")
    shown = json.loads(doctor("--json").output)
    (finding,) = [finding for finding in shown["findings"] if finding["check"] == "hostile files"]
    assert finding["level"] == "warning"
    assert finding["says"].endswith("or are refused for them: the kernel 4.18 has no Landlock")
    assert "on a machine that confines whatever opens them" in finding["do"]


def test_the_cpu_profile_needs_no_gpu(doctor: Doctor) -> None:
    done = doctor("--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.output)
    assert (shown["profile"], shown["well"]) == ("cpu", True)
    checks = {finding["check"] for finding in shown["findings"]}
    assert {"python", "home", "store", "disk", "open files", "recognition"} <= checks
    assert not checks & {"gpu", "compiler", "hub", "shared memory"}
    says = [finding["says"] for finding in shown["findings"] if finding["check"] == "embedding"]
    assert "sentence has what it needs here" in says
    assert any("16 languages and little of numbers and rare names" in line for line in says)


@pytest.mark.parametrize(
    ("model", "gib", "profiles"),
    [
        ("NVIDIA H200", 140.4, ["h200", "h200_korean", "h200_search"]),
        ("NVIDIA B200", 178, ["b200"]),
        ("NVIDIA L4", 22.5, ["l4"]),
        ("NVIDIA L40S", 45, ["l40s"]),
        ("NVIDIA RTX 6000 Ada Generation", 48, ["l40s"]),
        ("NVIDIA H100 80GB HBM3", 79.6, ["h100"]),
        ("NVIDIA A100-SXM4-80GB", 80, ["h100"]),
        ("NVIDIA GeForce RTX 4090", 24, ["rtx4090"]),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, ["rtx4080"]),
        ("NVIDIA GeForce RTX 4060 Ti", 16, ["rtx4080"]),
        ("NVIDIA GeForce GTX 1650", 4, []),
    ],
)
def test_the_profile_of_a_card_fits_its_name_or_else_its_memory(model: str, gib: float, profiles: list[str]) -> None:
    assert [each.name for each in checks.fitting_profiles(model, int(gib * GIB))] == profiles


def test_lines_for_people_have_the_level_first(doctor: Doctor) -> None:
    done = doctor(COLUMNS="40")
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == "profile cpu: the machine is fit for it"
    assert all(line.startswith("ok       ") for line in done.output.splitlines()[:-1])


def test_a_driver_that_is_too_old_is_told_in_torch_s_own_words(torch: Torch, doctor: Doctor) -> None:
    seen = torch(f"raise RuntimeError({TOO_OLD!r})")
    found = checks.check_gpus({**seen, "driver": "570.86.15"})
    assert found.level is Level.PROBLEM
    assert TOO_OLD in found.says
    assert "built for CUDA 13.0, the driver is 570.86.15" in found.says
    assert found.do == "install a driver of 580 or newer"
    refused = doctor(KOPUB_PROFILE="l4")
    assert refused.exit_code == 1
    assert "The NVIDIA driver on your system is too old (found version 12080)" in refused.output


def test_no_gpu_is_a_problem_of_gpu_profiles(torch: Torch) -> None:
    found = checks.check_gpus(torch(f"raise RuntimeError({NO_DRIVER!r})"))
    assert found.level is Level.PROBLEM
    assert NO_DRIVER in found.says
    assert "nvidia-smi" in found.do
    assert "cpu profile" in found.do


def test_a_torch_without_cuda_or_none_at_all_says_what_to_install() -> None:
    cpu = checks.check_gpus({"torch": "2.13.0+cpu", "cuda": None, "problem": "Torch not compiled with CUDA enabled"})
    none = checks.check_gpus({"problem": "torch cannot be imported: No module named 'torch'"})
    for found in (cpu, none):
        assert found.level is Level.PROBLEM
        assert "make setup GPU=1" in found.do


def test_a_torch_that_dies_is_told_too(torch: Torch) -> None:
    seen = torch("import os; os._exit(139)")
    assert "ended with status 139" in checks.check_gpus(seen).says


def test_a_gpu_that_is_there(torch: Torch) -> None:
    seen = torch("pass")
    assert checks.check_gpus(seen).level is Level.OK
    assert "NVIDIA L4 (24 GB)" in checks.check_gpus(seen).says
    assert seen["gpus"][0]["free"] == 20 * GB


def test_the_driver_says_its_release(tmp_path: Path) -> None:
    path = tmp_path / "version"
    assert driver(path) is None
    path.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC 13.3.0\n")
    assert driver(path) == "580.65.06"


def asks(profile: str, home: Path, count: int = 1) -> list[MemoryDemand]:
    return memory_demands(read_settings({"KOPUB_HOME": str(home), "KOPUB_PROFILE": profile}).engines, count)


@pytest.mark.parametrize(
    ("profile", "total", "free", "level", "says"),
    [
        ("h200", 150 * GB, 149 * GB, Level.OK, "123.6 asked for"),
        ("h200", 150 * GB, 120 * GB, Level.PROBLEM, "recognition server 45.0"),
        ("h200", 7 * GB, 7 * GB, Level.PROBLEM, "it can never fit"),
        # The servers run one at a time, beside the layout.
        ("l4", 24 * GB, 23 * GB, Level.OK, "20.3 asked for (recognition server 18.0, layout 2.3)"),
        ("l4", 24 * GB, 15 * GB, Level.PROBLEM, "15.0 of 24.0 GB are free"),
    ],
)
def test_memory_against_the_profile(
    profile: str, total: int, free: int, level: Level, says: str, tmp_path: Path
) -> None:
    (found,) = checks.check_memory(asks(profile, tmp_path), [{"free": free, "total": total}])
    assert found.level is level
    assert says in found.says
    assert bool(found.do) is (level is not Level.OK)


def test_a_profile_of_all_gpus_is_held_against_each(tmp_path: Path) -> None:
    seen = [{"free": 149 * GB, "total": 150 * GB}, {"free": 90 * GB, "total": 150 * GB}]
    first, second = checks.check_memory(asks("h200", tmp_path, 2), seen)
    assert (first.level, second.level) == (Level.OK, Level.PROBLEM)
    assert second.says.count("recognition server") == 2
    assert "layout" not in second.says, "the layout is on the first one"


def test_memory_of_a_warm_server_is_the_profile_s_own(tmp_path: Path) -> None:
    (found,) = checks.check_memory(asks("l4", tmp_path), [{"free": 2 * GB, "total": 24 * GB}], ["zai-org/GLM-OCR"])
    assert found.level is Level.WARNING
    assert "kopub serve stop" in found.do


def test_a_gpu_that_is_asked_for_and_not_there() -> None:
    (found,) = checks.check_memory([MemoryDemand("layout", 1, bytes=GB)], [{"free": GB, "total": GB}])
    assert found.level is Level.PROBLEM
    assert "asks for GPU 1, and torch sees 1" in found.says


def test_no_compiler_and_no_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = checks.check_compiler()
    assert missing.level is Level.PROBLEM
    assert "apt-get install gcc" in missing.do
    monkeypatch.setenv("CC", "no-such-cc")
    assert "CC is no-such-cc" in checks.check_compiler().says
    monkeypatch.setenv("CC", sys.executable)
    assert checks.check_compiler().level is Level.OK
    headers = checks.check_headers(str(tmp_path))
    assert headers.level is Level.PROBLEM
    assert "-dev" in headers.do


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = checks.check_home(tmp_path / "file" / "home")
    assert home.level is Level.PROBLEM
    assert "KOPUB_HOME" in home.do
    assert checks.check_home(tmp_path / "new").level is Level.OK
    assert list((tmp_path / "new").iterdir()) == []
    gone = checks.check_store("s3://nobody/here")
    assert gone.level is Level.PROBLEM
    assert gone.do
    full = checks.check_room_for_tables(tmp_path, 1_000_000, lambda folder: 10 * GB)
    assert full.level is Level.PROBLEM
    assert "10 GB free" in full.says


def test_limits_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_open_files(1024, 256).level is Level.OK
    few = checks.check_open_files(256, 1024)
    assert few.level is Level.PROBLEM
    assert few.do.startswith("ulimit -n ")
    assert checks.check_shared_memory(tmp_path / "none").level is Level.PROBLEM
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=64 * 2**20))
    small = checks.check_shared_memory(tmp_path)
    assert small.level is Level.PROBLEM
    assert "--shm-size" in small.do


def test_tesseract_without_korean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, doctor: Doctor) -> None:
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    (line,) = TesseractRecognizer().lacks()
    assert line.startswith("Tesseract has no kor, eng data: apt-get install")
    refused = doctor()
    assert refused.exit_code == 1
    assert "problem  recognition  Tesseract has no kor, eng data\n" in refused.output


class Served(ServedEngine):
    """An engine whose server alone is examined."""


def programs(tmp_path: Path, script: str, **fields: Any) -> Finding:
    program = tmp_path / "serving"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    server = VLLMServer(model=str(tmp_path), command=[str(program), "serve"], **fields)
    (found,) = environment.check_programs({"recognition": Served(server=server)})
    return found


FLAGS = (
    "--served-model-name --host --runner --dtype --limit-mm-per-prompt --max-model-len --max-num-seqs --enable-prefix-"
    "caching --no-enable-prefix-caching --max-num-batched-tokens --mm-processor-cache-gb --api-server-count "
    "--renderer-num-workers --disable-uvicorn-access-log"
)


def test_flags_that_this_vllm_does_not_know(tmp_path: Path) -> None:
    listing = f"echo '{FLAGS} --mm-tensor-ipc {{a,b}}'"
    known = programs(tmp_path, listing, extra_flags=["--mm-tensor-ipc", "torch_shm"])
    assert known.level is Level.OK, known
    unknown = programs(tmp_path, listing, extra_flags=["--ir-op-priority.rms_norm=vllm_c", "--no-such-flag"])
    assert unknown.level is Level.PROBLEM
    assert unknown.says == "this vLLM does not know --ir-op-priority, --no-such-flag"
    broken = programs(tmp_path, "echo 'ImportError: libcudart.so.13' >&2; exit 1")
    assert broken.level is Level.PROBLEM
    assert "ImportError: libcudart.so.13" in broken.says


def test_replicas_that_cannot_share_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sharing = {"recognition": Served(server=VLLMServer(model=str(tmp_path), mps=True))}
    (found,) = environment.check_shared_gpus(sharing)
    assert found.level is Level.WARNING
    assert found.says == "replicas take turns on a GPU: nvidia-cuda-mps-control is not installed"
    assert "recognition.server.mps" in found.do
    (tmp_path / "nvidia-cuda-mps-control").touch(0o755)
    (found,) = environment.check_shared_gpus(sharing)
    assert found.level is Level.OK
    assert not list(environment.check_shared_gpus({"recognition": Served(server=VLLMServer(model=str(tmp_path)))}))


def test_a_vllm_that_is_not_installed_or_of_another_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    server = VLLMServer(model=str(tmp_path), version="0.32.0")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert list(environment.check_programs({"recognition": Served(server=server)})) == [], "its engine says so, once"
    assert Served(server=server).lacks()[0].startswith("vllm is not installed: type `make setup GPU=1`")
    (tmp_path / "vllm").write_text("#!/bin/sh\n")
    os.chmod(tmp_path / "vllm", 0o755)
    monkeypatch.setattr(environment.importlib.metadata, "version", lambda name: "0.31.2+cu130")
    (other,) = environment.check_programs({"recognition": Served(server=server)})
    assert "vLLM 0.31.2 is installed, and the profile was made for 0.32.0" in other.says
    assert "pip install vllm==0.32.0" in other.do
