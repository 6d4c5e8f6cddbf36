"""`--profile`, `kopub profiles`, and checks of GPU, packages and Hub before a command begins."""

import json
import logging
import os
from pathlib import Path

import pytest
from huggingface_hub import constants
from typer.main import get_command
from typer.testing import CliRunner, Result

from kopub.cli.main import app
from kopub.config.environment import locate
from kopub.config.settings import PROFILES, load_settings, read_settings
from kopub.engine import require_installed
from kopub.errors import EngineError, HubError
from kopub.weights.fetch import require_ready
from tests.doubles.nvml_double import CardDouble, NvmlDouble
from tests.support.sources.corpora import page_image, pages, write_corpus

CARD = CardDouble(model="NVIDIA GeForce RTX 4090", total=24_564 * 2**20)
SERVED = """
extends: l4
layout: {engine: cpu}
embedding: {engine: hashed}
recognition: {server: {command: [vllm-of-nobody, serve]}}
"""


@pytest.fixture
def kopub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs a command in this process with its own home."""
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KOPUB_PROFILE", raising=False)

    def run(*words: str) -> Result:
        load_settings.cache_clear()
        return CliRunner().invoke(app, list(words))

    return run


BELOW = ["serve status", "serve stop", "sources remove"]


@pytest.mark.parametrize("command", sorted([*get_command(app).commands, *BELOW]))  # type: ignore[attr-defined]
def test_every_command_takes_a_profile(command: str, kopub):
    needed = {"evaluate": ["texts"], "search": ["질문"], "diff": ["a"], "lineage": ["a"], "read": ["a.png"]}
    needed |= {"verify": ["release"], "sources remove": ["A"]}
    done = kopub(*command.split(), *needed.get(command, []), "--profile", "h20")
    assert str(done.exception).startswith(
        "--profile h20: there is no such profile (did you mean h200?); there are b200,"
    )
    assert "\n" not in str(done.exception)


def test_a_profile_is_taken_for_one_command_alone(kopub, tmp_path: Path):
    shown = kopub("doctor", "--quick", "--json", "--profile", "rtx4090+paddleocr_vl")
    assert json.loads(shown.output)["profile"] == "rtx4090+paddleocr_vl"
    assert "KOPUB_PROFILE" not in os.environ
    (tmp_path / "mine.yaml").write_text((PROFILES / "cpu.yaml").read_text())
    shown = kopub("doctor", "--quick", "--json", "--profile", str(tmp_path / "mine.yaml"))
    assert json.loads(shown.output)["profile"] == "mine"


def test_folders_in_a_profile_lie_beside_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "profiles").mkdir()
    below = tmp_path / "profiles" / "mine.yaml"
    below.write_text(
        "extends: cpu\ngates: {benchmarks: {texts: my_pages}}\nstore: {url: tables}\nrelease: {folder: ../out}\n"
    )
    (tmp_path / "other.yaml").write_text("extends: profiles/mine.yaml\n")
    monkeypatch.chdir(tmp_path)
    for profile in ("profiles/mine.yaml", str(below), "other.yaml"):
        environ = {"KOPUB_HOME": str(tmp_path / "home"), "KOPUB_PROFILE": profile}
        settings = read_settings(environ)
        assert settings.gates.benchmarks == {"texts": str(tmp_path / "profiles" / "my_pages")}
        assert settings.store.url == locate(environ).store_url == str(tmp_path / "profiles" / "tables")
        assert settings.release.folder == str(tmp_path / "out")


def test_the_commands_to_type_next_name_the_profile_that_was_chosen(kopub, tmp_path: Path):
    write_corpus(tmp_path / "corpus", [pages("a_1")])
    said = kopub("index", str(tmp_path / "corpus"), "--profile", "h200").output
    assert "next: kopub run --profile h200, or kopub plan --profile h200 for what it will make" in said
    said = " ".join(kopub("plan", "--profile", "h200").output.split())
    assert "To make them: kopub run --profile h200; about" in said
    assert "`kopub doctor --profile h200` tests them" in said
    assert json.loads(kopub("status", "--json", "--profile", "h200").output)["next"] == "kopub run --profile h200"
    assert "next     kopub run  (" in kopub("status").output


@pytest.mark.slow
def test_the_profiles_say_which_one_is_in_use(kopub, monkeypatch: pytest.MonkeyPatch):
    assert "in use here: rtx4090+paddleocr_vl" in kopub("profiles", "--profile", "rtx4090+paddleocr_vl").output
    monkeypatch.setenv("kopub_profile", "rtx4090")
    assert "in use here: rtx4090" in kopub("profiles").output


def test_the_profiles_are_listed_with_what_was_measured_and_what_does_not_fit(kopub, monkeypatch: pytest.MonkeyPatch):
    NvmlDouble(driver=False).install(monkeypatch)
    shown, said = json.loads(kopub("profiles", "--json").output), kopub("profiles").output
    found = {each["profile"]: each for each in shown["profiles"]}
    assert set(found) == {path.stem for path in PROFILES.glob("*.yaml")} - {"models"}
    assert found["cpu"]["card"] is None
    assert {name for name, each in found.items() if each["measured"]} == {"cpu", "h100", "h200", "h200_korean"}
    assert (found["h200_korean"]["card"], found["h200_korean"]["reader"]) == ("H200", "paddleocr_vl")
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    assert "in use here: cpu" in lines
    for name, each in found.items():
        line = next(line for line in lines if line.startswith(f"{name} "))
        assert ("measured" if each["measured"] else "estimated") in line
    speeds = {each["profile"]: each["speed"] for each in shown["combinations"]}
    assert speeds["rtx4060+deepseek_ocr"] == "does not fit"
    assert (speeds["h200+glm_ocr"], speeds["h100+paddleocr_vl"]) == ("measured", "estimated")
    (refused,) = [each["says"] for each in shown["combinations"] if each["profile"] == "rtx4060+deepseek_ocr"]
    assert "weights 6.7" in refused
    assert shown["published"]["paddleocr_vl"]["korean"] == 86.0
    assert "for Korean: +paddleocr_vl, until your own pages say otherwise. MDPBench, Korean:" in said
    assert "paddleocr_vl 86, glm_ocr 61.2, deepseek_ocr 28.2" in said


@pytest.mark.slow
def test_one_s_own_comparison_of_profiles_is_told_beside_the_public_scores(kopub, tmp_path: Path):
    page = tmp_path / "pages" / "one.png"
    page.parent.mkdir()
    page.write_bytes(page_image())
    page.with_suffix(".txt").write_text("kopub")
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text((PROFILES / "cpu.yaml").read_text())
    both = [word for name in ("one", "two") for word in ("--profile", str(tmp_path / f"{name}.yaml"))]
    done = kopub("evaluate", "texts", str(tmp_path / "pages"), *both)
    assert done.exit_code == 0, done.output
    lines = kopub("profiles").output.splitlines()
    (told,) = [line for line in lines if line.startswith("your evaluation texts/pages-")]
    assert ": one cer " in told
    assert "; two cer " in told


@pytest.mark.slow
def test_a_card_that_the_profile_leaves_idle_is_told(kopub, monkeypatch: pytest.MonkeyPatch):
    NvmlDouble([CARD]).install(monkeypatch)
    told = "NVIDIA GeForce RTX 4090 (24 GB) is not used by this profile"
    do = "--profile rtx4090+paddleocr_vl reads Korean with it, --profile rtx4090 the rest (docs/gpu.md)"
    findings = json.loads(kopub("doctor", "--quick", "--json").output)["findings"]
    assert {"check": "gpu", "level": "warning", "says": told, "do": do} in findings
    assert f"{told}: {do}" in kopub("pull").output
    assert f"this machine: NVIDIA GeForce RTX 4090 (24 GB): {do}" in kopub("profiles").output
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert told not in kopub("pull").output
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    NvmlDouble(driver=False).install(monkeypatch)
    assert told not in kopub("pull").output


@pytest.mark.slow
def test_a_run_tells_it_in_one_line(kopub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_corpus(tmp_path / "corpus", [pages("a_1")])
    NvmlDouble([CARD]).install(monkeypatch)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    done = kopub("run", str(tmp_path / "corpus"), "--asset", "raw_pages")
    assert done.exit_code == 0, done.output
    assert done.output.count("RTX 4090 (24 GB) is not used by this profile: --profile rtx4090+paddleocr_vl reads") == 1


@pytest.mark.parametrize("words", [("run", "CORPUS"), ("read", "PICTURE")], ids=["run", "read"])
def test_a_program_that_is_not_installed_is_one_line_before_anything_is_made(
    words: tuple[str, str], kopub, tmp_path: Path
):
    (tmp_path / "mine.yaml").write_text(SERVED)
    write_corpus(tmp_path / "corpus", [pages("a_1")])
    picture = tmp_path / "a.png"
    picture.write_bytes(page_image())
    places = {"CORPUS": str(tmp_path / "corpus"), "PICTURE": str(picture)}
    done = kopub(words[0], places[words[1]], "--profile", str(tmp_path / "mine.yaml"))
    assert isinstance(done.exception, EngineError)
    assert str(done.exception) == (
        "profile mine: vllm-of-nobody is not installed: type `make setup GPU=1`, "
        "or pip install 'kopub[gpu]' where there is no checkout"
    )
    assert not (tmp_path / "home" / "shards.json").exists()


def test_engines_say_which_modules_they_lack(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kopub.engine.find_spec", lambda name: None)
    settings = read_settings({"KOPUB_PROFILE": "h200_korean"})
    assert settings.layout.not_installed() == ["torch", "transformers"]
    (line,) = settings.layout.lacks()
    assert line.startswith("torch, transformers are not installed: type `make setup GPU=1`")
    with pytest.raises(EngineError, match="profile h200: torch, transformers"):
        require_installed(settings.engines.values(), "h200")


def test_a_hub_that_cannot_be_reached_is_one_line_with_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("kopub.engine.find_spec", lambda name: object())
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    layout = read_settings({"KOPUB_PROFILE": "l4"}).layout
    with caplog.at_level(logging.DEBUG, "huggingface_hub"), pytest.raises(HubError) as refused:
        require_ready({"layout": layout}, "l4")
    line = str(refused.value)
    assert line.startswith(
        "PaddlePaddle/PP-DocLayoutV3_safetensors at 97d101e6: the Hub cannot be reached at http://127"
    )
    assert "HF_ENDPOINT" in line
    assert "\n" not in line
    assert not caplog.records
