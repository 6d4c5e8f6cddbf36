"""A profile that cannot be used is one line that says what to change."""

from pathlib import Path

import pytest

from resources.config.settings import PINS, PROFILES, ROOT, Settings, load_settings
from resources.errors import ConfigError


def load(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return load_settings.__wrapped__()


def profile(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return str(path)


CPU = "layout: {engine: cpu}\nrecognition: {engine: tesseract}\nembedding: {engine: hashed}\n"


@pytest.mark.parametrize("path", sorted(set(PROFILES.glob("*.yaml")) - {PINS}), ids=lambda path: path.stem)
def test_every_profile_of_the_project_loads(path: Path, monkeypatch: pytest.MonkeyPatch):
    assert load(monkeypatch, KOPUB_PROFILE=path.stem).profile_name == path.stem


def test_the_default_is_cpu_below_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("KOPUB_HOME")
    monkeypatch.chdir(tmp_path)
    settings = load(monkeypatch)
    assert (settings.profile_name, settings.home) == ("cpu", ROOT / "data")
    assert settings.store.url == str(ROOT / "data" / "store")


def test_the_environment_overrides_a_key(monkeypatch: pytest.MonkeyPatch):
    settings = load(
        monkeypatch, KOPUB_RECOGNITION__THREADS="3", KOPUB_STORE__URL="memory://x", KOPUB_SHARDS_PER_RUN="4"
    )
    assert settings.recognition.threads == 3  # pyright: ignore[reportAttributeAccessIssue]
    assert settings.store.url == "memory://x"
    assert settings.shards_per_run == 4


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CPU + "gpu: {}\n", r"profile .*mine.yaml: gpu: Extra inputs are not permitted"),
        (CPU.replace("engine: cpu", "engine: paddle"), r"layout.engine is 'paddle'; choose one of cpu, pp_doclayout"),
        (CPU.replace("engine: cpu", "engine: cpu, colour: 1"), r"layout has no key 'colour'; it has "),
        (CPU.replace("engine: cpu", "engine: cpu, threads: many"), r"layout.threads: Input should be a valid integer"),
        (CPU.replace("engine: cpu", "engine: cpu, model: nothing"), r"layout.model is 'nothing'.*it pins "),
        (CPU + "shards_per_run: 0\n", r"shards_per_run: Input should be greater than or equal to 1"),
        (CPU + "gates: {max_empty_jump: 2}\n", r"gates.max_empty_jump: Input should be less than or equal to 1"),
        ("layout: {engine: cpu}\n", r"recognition: Field required"),
        ("- a list\n", r"mine.yaml has no sections"),
        ("layout: {engine: cpu\n", r"mine.yaml is not YAML"),
    ],
)
def test_what_cannot_be_used_is_one_line(text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match=line) as error:
        load(monkeypatch, KOPUB_PROFILE=profile(tmp_path, text))
    assert "\n" not in str(error.value)


def test_an_unknown_profile_names_those_there_are(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(
        ConfigError, match=r"KOPUB_PROFILE is 'cray'; choose one of .*cpu.*, or the path of a YAML file"
    ):
        load(monkeypatch, KOPUB_PROFILE="cray")
