"""`kopub doctor --full`, whose report of measurements does not identify the machine."""

import getpass
import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kopub.cli.main import app
from kopub.config.settings import Settings
from kopub.doctor import card_report
from kopub.doctor.card_report import CardMeasurement, anonymous, as_text
from kopub.doctor.self_test import Samples, Step
from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import StoreError
from kopub.layout.cpu.engine import CpuLayout
from kopub.pages.page import Page
from kopub.recognition.tesseract.recognizer import TesseractRecognizer
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.vllm.server import VLLMServer
from tests.doubles.nvml_double import CardDouble, NvmlDouble
from tests.doubles.tested_engines import KnownReader, TwoColumns
from tests.support.harness import Platform
from tests.support.sample_home import first_samples
from tests.support.servers.stub_server import needs_linux, processes, state_of
from tests.support.sources.corpora import page_image, pages

GB = 10**9
SEEN = {"gpus": [{"name": "NVIDIA Double", "free": 24 * GB, "total": 24 * GB}], "driver": "580.95.05"}
LOG = (
    "INFO 11-21 12:00:00 [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
    "INFO 11-21 12:00:01 [gpu_model_runner.py:1] Model loading took 2.21 GiB memory and 3.1 seconds",
    "INFO 11-21 12:00:02 [kv_cache_utils.py:1] GPU KV cache size: 131,072 tokens, Maximum concurrency: 8x",
)


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform.of(tmp_path / "home", [pages("a_1")])
    platform.engines |= {"layout": TwoColumns(), "embedding": HashedEmbedder()}
    return platform


def drawn() -> Samples:
    return Samples(
        [Page(f"p{seed}", page_image(seed)) for seed in range(3)], {f"p{seed}": "read" for seed in range(3)}, []
    )


def measured(settings: Settings, seen: Any = SEEN, samples: Samples | None = None, step: Step = lambda *_: None) -> Any:
    """Return the report of a measurement, and its stages by name."""
    measurement = CardMeasurement(settings, samples or drawn(), seen)
    list(measurement.run(step))
    report = measurement.report()
    return report, {stage["stage"]: stage for stage in report["stages"]}


# --- servers that are doubles of vLLM, on a card that is a double of NVML's -------------------------------------------


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> CardDouble:
    card = CardDouble(busy=80, used=5 * GB, total=24 * GB, joules_each_reading=30.0)
    NvmlDouble([card]).install(monkeypatch)
    monkeypatch.setattr(card_report, "_COPIES", 2)
    return card


@pytest.fixture
def reader(fields: dict[str, Any]) -> Callable[..., GlmOcrRecognizer]:
    def make(**env: str) -> GlmOcrRecognizer:
        environment = {**fields["env"], "STUB_BOOT": "1", **env}
        server = {**fields, "gpus": [0], "idle_seconds": 60, "hang_seconds": 10.0, "env": environment}
        return GlmOcrRecognizer(server=VLLMServer(**server), processes=1, tries=1, retry_seconds=0.1)

    return make


@needs_linux
@pytest.mark.services
def test_a_card_is_told_what_was_asked_and_what_it_gave(
    platform: Platform,
    runtime: Path,
    card: CardDouble,
    reader: Callable[..., GlmOcrRecognizer],
) -> None:
    engine = platform.engines["recognition"] = reader(STUB_STEP="0.1")

    def step(what: str, done: int, total: int) -> None:
        if what == "recognition":
            card.used = 19 * GB
            log = runtime / engine.server.key / "server-0.log"
            log.write_text(log.read_text() + "\n".join(LOG) + "\n")

    report, stages = measured(platform.settings, step=step)
    assert [each["items"] for each in report["stages"]] == [6, 6, 6, 6]
    ocr = stages["recognition"]
    assert (ocr["engine"], ocr["problem"]) == ("glm_ocr", "")
    assert ocr["regions"] == 12
    assert ocr["tokens_out"] == 12
    assert ocr["tokens_out_a_second"] == pytest.approx(12 / ocr["seconds"], rel=0.01)
    assert 0.9 < ocr["ready_seconds"] < 60
    assert ocr["is_first_start"] is True
    assert ocr["starts"] == 1
    assert ocr["asked_gb"] == pytest.approx(0.92 * 24, abs=0.1), "the share that a server takes by itself"
    assert (stages["layout"]["held_gb"], ocr["held_gb"]) == (5, 19)
    assert ocr["busy"] == 0.8
    assert ocr["watts"] > 100
    assert "attention FLASH_ATTN; weights 2.21 GiB; cache 131,072 tokens" in ocr["chosen"]
    assert "max_num_seqs" in ocr["chosen"]
    assert report["gpu_memory_gb"] == {"asked_at_once": ocr["asked_gb"], "held_at_most": 19.0, "held_before": 5.0}
    assert report["cards"] == [{"model": "NVIDIA Double", "memory_gb": 24.0}]
    assert "### NVIDIA Double (24 GB), profile cpu" in as_text(report)
    assert "22.08 GB asked for at once by the sums; the cards held at most 19, 5 of them before" in as_text(report)
    assert 0 <= ocr["cores_busy"] <= 1
    for busy, cores, limit in (
        (0.9, 0.4, "the card limits it, and 60% of the cores are free"),
        (0.5, 0.9, "the cores limit it: with more of them it could be up to 2.0 times as fast"),
        (0.5, 0.4, "neither the card (50%) nor the cores (40%) are full"),
    ):
        ocr |= {"busy": busy, "cores_busy": cores}
        assert f"- recognition: {limit}" in as_text(report)
    _, stages = measured(platform.settings)
    assert stages["recognition"]["items"] == 6
    assert stages["recognition"]["ready_seconds"] is None, "its server was up"
    assert stages["recognition"]["is_first_start"] is False


@needs_linux
@pytest.mark.services
def test_a_server_that_does_not_start_is_told_without_its_place(
    platform: Platform,
    runtime: Path,
    card: CardDouble,
    reader: Callable[..., GlmOcrRecognizer],
) -> None:
    platform.engines["recognition"] = reader(STUB_LAST_WORDS="torch.OutOfMemoryError: CUDA out of memory.")
    report, stages = measured(platform.settings)
    assert stages["layout"]["items"] == 6
    assert stages["page vectors"]["items"] == 6, "each engine is measured by itself"
    assert stages["recognition"]["items"] == 0
    assert "the GPU's memory does not suffice" in stages["recognition"]["problem"]
    assert str(runtime.parent) not in json.dumps(report)
    assert "problem: it cannot run" in as_text(report)


@needs_linux
@pytest.mark.services
def test_a_server_that_is_killed_is_started_again_and_counted(
    platform: Platform,
    runtime: Path,
    card: CardDouble,
    reader: Callable[..., GlmOcrRecognizer],
    tmp_path: Path,
) -> None:
    engine = platform.engines["recognition"] = reader()

    def step(what: str, done: int, total: int) -> None:
        if what.startswith("recognition: measuring"):
            assert state_of(engine.server, runtime).boot == 1
            for process in processes(tmp_path):
                os.kill(process.pid, signal.SIGKILL)

    report, stages = measured(platform.settings, step=step)
    assert stages["recognition"]["items"] == 6
    assert stages["recognition"]["problem"] == ""
    assert stages["recognition"]["starts"] == 2
    assert "- recognition: " in as_text(report)
    assert "its server was started 2 times" in as_text(report)


# --- real engines -----------------------------------------------------------------------------------------------------


@pytest.fixture
def doctor(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        monkeypatch.setattr("kopub.config.settings.load_settings", lambda: platform.settings)
        return CliRunner().invoke(app, ["doctor", "--full", *arguments], env={"COLUMNS": "200"})

    return run


@pytest.mark.slow
def test_the_cpu_profile_is_measured_by_its_real_engines(
    platform: Platform, doctor: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = first_samples(2)
    monkeypatch.setattr("kopub.doctor.self_test.read_samples", lambda: known)
    platform.engines |= {"layout": CpuLayout(), "recognition": TesseractRecognizer()}
    done = doctor("--out", str(tmp_path / "card.json"))
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "card.json").read_text("utf-8"))
    assert [(each["stage"], each["items"]) for each in report["stages"]] == [
        ("layout", 2),
        ("recognition", 2),
        ("page vectors", 2),
        ("text vectors", 2),
    ]
    assert all(each["items_a_second"] > 0 and each["held_gb"] is None for each in report["stages"])
    assert report["stages"][1]["regions_a_second"] > 0
    assert done.output.endswith(f"{as_text(report)}\n")
    block = done.output.partition("### no GPU, profile cpu")[2]
    assert "| recognition  | tesseract | 2 " in block
    assert "self-test: ok: recognition: character error rate" in block
    for trace in (str(tmp_path), str(platform.home), socket.gethostname()):
        assert trace not in block
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", block)


def test_pages_that_failed_are_no_speed(platform: Platform) -> None:
    platform.engines |= {"layout": TwoColumns(empty=True), "recognition": KnownReader()}
    report, stages = measured(platform.settings, seen={})
    layout = stages["layout"]
    assert (layout["items"], layout["items_a_second"]) == (0, None)
    assert layout["problem"] == "3 of 3 failed: no region was found on a page with ink"
    assert "- layout: problem: 3 of 3 failed" in as_text(report)


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_printed_all_the_same(
    doctor: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kopub.doctor.self_test.read_samples", drawn)
    assert doctor("--out", str(tmp_path / "reports" / "card.json")).exit_code == 1  # the double reads rubbish
    assert json.loads((tmp_path / "reports" / "card.json").read_text("utf-8"))["profile"] == "cpu"
    (tmp_path / "a file").touch()
    done = doctor("--out", str(tmp_path / "a file" / "card.json"))
    assert isinstance(done.exception, StoreError)
    assert "### no GPU" in done.output


# --- what cannot be measured ------------------------------------------------------------------------------------------


def test_without_a_gpu_a_profile_of_a_card_ends_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_driver = {"torch": "2.13.0+cu130", "cuda": "13.0", "driver": None, "problem": "Found no NVIDIA driver"}
    monkeypatch.setattr("kopub.doctor.checks.ask_torch", lambda: no_driver)
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["doctor", "--full", "--profile", "rtx4090+paddleocr_vl"])
    assert done.exit_code == 1
    said = str(done.exception or done.output)
    assert "profile rtx4090+paddleocr_vl cannot be measured here" in said
    assert "CUDA 13.0 needs a driver of 580 or newer; or use the cpu profile" in said
    assert "\n" not in said.strip()


def test_without_samples_it_ends_in_one_line(
    doctor: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kopub.doctor.self_test.SAMPLES", tmp_path)
    done = doctor()
    assert done.exit_code == 1
    assert "shards.json" in str(done.exception or done.output)
    assert "\n" not in str(done.exception or done.output).strip()


@pytest.mark.parametrize(
    ("options", "says"), [(["--quick"], "--quick and --full cannot be combined"), (["--out", "x"], "")]
)
def test_options_that_contradict_each_other_are_refused(options: list[str], says: str) -> None:
    words = ["--full", *options] if says else options
    done = CliRunner().invoke(app, ["doctor", *words])
    assert done.exit_code == 1
    assert (says or "--out needs --full: add it") in str(done.exception or done.output)


def test_a_report_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "lab7.example.org")
    monkeypatch.setattr("getpass.getuser", lambda: "minji")
    monkeypatch.setenv("MY_API_TOKEN", "s3cr3t-of-mine")
    monkeypatch.setenv("HOME", "/home/Kim Minji")
    said = (
        "minji@lab7: CUDA out of memory in '/home/Kim Minji/kopub/data/x.py', /home/Kim Minji/run.log and "
        "/opt/models/glm/model.safetensors of http://lab7.example.org:8000/v1, 10.1.2.3:8000, with hf_abcdefghij "
        "and s3cr3t-of-mine, at 12.5 pages/s"
    )
    shown = anonymous(said)
    for trace in ("minji", "Minji", "lab7", "/opt", "10.1.2.3", "hf_abc", "s3cr3t", "example.org"):
        assert trace not in shown, shown
    assert "CUDA out of memory" in shown
    assert "12.5 pages/s" in shown


def test_a_user_without_a_name_and_a_home_gets_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs with any user's number."""

    def nobody(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert anonymous("12.5 pages/s of ~5,000, in /opt/models/x.py") == "12.5 pages/s of ~5,000, in x.py"
