"""Settings come from a home, a profile and an environment, and from nothing else."""

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from kopub.config.profile_files import Pin
from kopub.config.settings import PINS, PROFILES, ROOT, Settings, load_settings, read_settings, what_if
from kopub.embedding.hashed import HashedEmbedder
from kopub.embedding.qwen3_vl import Qwen3VLEmbedder
from kopub.layout.pp_doclayout.detector import PPDocLayout
from kopub.layout.regions import LABELS
from kopub.recognition.tesseract.recognizer import TesseractRecognizer
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.recognition.vlm.paddleocr_vl import PaddleOcrVlRecognizer
from kopub.vllm.served_engine import ServedEngine
from tests.config.conftest import CPU, Load
from tests.support.cpu_engines import CPU as ENGINES


def python(home: Path, script: str) -> str:
    environment = os.environ | {"KOPUB_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("path", sorted(set(PROFILES.glob("*.yaml")) - {PINS}), ids=lambda path: path.stem)
def test_every_profile_of_the_project_loads(path: Path):
    assert read_settings({"KOPUB_PROFILE": path.stem}).profile_name == path.stem


def test_the_profile_for_korean_reads_with_paddleocr_vl_and_its_pipeline_s_rules():
    settings = read_settings({"KOPUB_PROFILE": "h200_korean"})
    reader, layout = settings.recognition, settings.layout
    assert isinstance(reader, PaddleOcrVlRecognizer)
    assert reader.server.model == "PaddlePaddle/PaddleOCR-VL-1.5"
    assert reader.server.env["KOPUB_PADDLEOCR_VL_ENCODER"] == "1"
    assert isinstance(layout, PPDocLayout)
    assert set(layout.containment) == set(LABELS)
    large = {"chart", "display_formula", "doc_title", "inline_formula", "paragraph_title"}
    assert {label for label, mode in layout.containment.items() if mode == "large"} == large
    assert (layout.threshold, layout.overlap) == (0.3, 0.7)
    assert layout.tasks == {"chart": "table", "seal": "text"}
    other = read_settings({"KOPUB_PROFILE": "h200_korean", "KOPUB_RECOGNITION__MODEL": "paddleocr_vl_1_6"}).recognition
    assert isinstance(other, PaddleOcrVlRecognizer)
    assert other.server.model == "PaddlePaddle/PaddleOCR-VL-1.6"
    assert other.recipe() != reader.recipe()


@pytest.mark.parametrize("card", ["b200", "h100", "h200", "l4", "l40s", "rtx4060", "rtx4080", "rtx4090"])
def test_a_reader_goes_on_the_profile_of_a_card_and_keeps_the_size_of_its_server(card: str):
    own, other = (read_settings({"KOPUB_PROFILE": name}) for name in (card, f"{card}+paddleocr_vl"))
    korean = read_settings({"KOPUB_PROFILE": "h200_korean"})
    assert other.profile_name == f"{card}+paddleocr_vl"
    assert isinstance(own.recognition, GlmOcrRecognizer)
    assert isinstance(other.recognition, PaddleOcrVlRecognizer)
    for field in ("max_num_seqs", "kv_cache_memory", "gpu_memory_utilization", "gpus", "replicas_per_gpu"):
        assert getattr(other.recognition.server, field) == getattr(own.recognition.server, field), field
    assert not other.recognition.server.env, "variables are of the model before"
    assert other.recognition.recipe()["parameters"] == korean.recognition.recipe()["parameters"]
    assert isinstance(own.layout, PPDocLayout)
    assert isinstance(other.layout, PPDocLayout)
    assert isinstance(korean.layout, PPDocLayout)
    assert other.layout.batch_size == own.layout.batch_size
    assert other.layout.containment == korean.layout.containment
    assert other.embedding.recipe() == own.embedding.recipe()
    assert (own.recognition.line_height, other.recognition.line_height) == (28, 28)
    full = read_settings({"KOPUB_PROFILE": f"{card}+paddleocr_vl+full_size"})
    assert isinstance(full.recognition, PaddleOcrVlRecognizer)
    assert full.recognition.line_height is None
    assert full.recognition.model_copy(update={"line_height": 28}).model_dump() == other.recognition.model_dump()
    same = read_settings({"KOPUB_PROFILE": f"{card}+glm_ocr"})
    assert same.recognition.model_dump() == own.recognition.model_dump()


def test_a_profile_says_what_differs_from_the_one_it_extends(load: Load, tmp_path: Path):
    (tmp_path / "theirs.yaml").write_text(
        "extends: h200\nembedding: {dim: 512, server: {env: {A: b}, extra_flags: [--one]}}\nstore: {url: there}\n"
    )
    mine = load("extends: theirs.yaml\nembedding: {dim: 256}\nrecognition: {engine: tesseract}\n")
    theirs = read_settings({"KOPUB_PROFILE": "h200"})
    assert isinstance(mine.embedding, Qwen3VLEmbedder)
    assert isinstance(theirs.embedding, Qwen3VLEmbedder)
    assert (mine.embedding.dim, mine.embedding.server.env) == (256, {"OMP_NUM_THREADS": "8", "A": "b"})
    assert mine.embedding.server.extra_flags == ["--one"]
    assert mine.embedding.server.kv_cache_memory == theirs.embedding.server.kv_cache_memory
    assert mine.layout.recipe() == theirs.layout.recipe()
    # A section with another engine inherits no keys, which the new engine would refuse.
    assert isinstance(mine.recognition, TesseractRecognizer)
    assert mine.store.url.endswith("/there")
    assert mine.profile_name == "mine"


def test_the_default_is_cpu_below_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    settings = read_settings({})
    assert (settings.profile_name, settings.home) == ("cpu", ROOT / "data")
    assert settings.store.url == str(ROOT / "data" / "store")
    assert settings.release.folder == str(ROOT / "data" / "release")


def test_settings_of_several_homes_and_profiles_stand_side_by_side(tmp_path: Path):
    one = Settings.of(tmp_path / "one", ENGINES, "one")
    other = Settings.of(tmp_path / "other", {**ENGINES, "embedding": {"engine": "hashed", "dim": 512}}, "other")
    assert (one.embedding.dim, other.embedding.dim) == (2048, 512)
    assert (one.store.url, other.store.url) == (str(tmp_path / "one" / "store"), str(tmp_path / "other" / "store"))
    assert (one.profile_name, other.profile_name) == ("one", "other")
    assert list(one.resources) == [
        "profile",
        "corpus",
        "store",
        "layout",
        "recognition",
        "embedding",
        "notes",
        "reranking",
        "sinks",
        "figures",
        "documents",
        "release",
        "hub",
        "pdf",
        "gates",
    ]
    with pytest.raises(FrozenInstanceError):
        one.home = tmp_path  # pyright: ignore[reportAttributeAccessIssue]


def test_a_profile_given_as_a_mapping_is_left_as_it_is(tmp_path: Path):
    profile = {**ENGINES, "recognition": {"engine": "glm_ocr", "model": "glm_ocr", "server": {"replicas": 2}}}
    Settings.of(tmp_path, profile)
    assert profile["recognition"] == {"engine": "glm_ocr", "model": "glm_ocr", "server": {"replicas": 2}}


def test_settings_of_a_test_name_their_own_pins(tmp_path: Path):
    pins = {"small": Pin(repo="owner/small", revision="1" * 40)}
    layout = Settings.of(
        tmp_path, {**ENGINES, "layout": {"engine": "pp_doclayout", "model": "small"}}, pins=pins
    ).layout
    assert isinstance(layout, PPDocLayout)
    assert (layout.repo, layout.revision) == ("owner/small", "1" * 40)


def test_a_pin_gives_its_weights_to_the_engine_or_to_its_server():
    settings = read_settings({"KOPUB_PROFILE": "h200"})
    assert isinstance(settings.layout, PPDocLayout)
    assert settings.layout.repo == "PaddlePaddle/PP-DocLayoutV3_safetensors"
    assert isinstance(settings.recognition, ServedEngine)
    assert settings.recognition.server.model == "zai-org/GLM-OCR"
    assert settings.recognition.reuse_folder == str(ROOT / "data" / "reuse" / "recognition")  # pyright: ignore


def test_a_change_of_the_command_line_goes_before_the_environment():
    settings = read_settings({"KOPUB_EMBEDDING__DIM": "512"}, {"embedding.dim": "128"})
    assert isinstance(settings.embedding, HashedEmbedder)
    assert settings.embedding.dim == 128


def test_the_process_reads_its_settings_once(monkeypatch: pytest.MonkeyPatch):
    before = load_settings()
    monkeypatch.setenv("KOPUB_EMBEDDING__DIM", "512")
    assert load_settings() is before
    assert (before.embedding.dim, what_if({}).embedding.dim) == (2048, 512)


@pytest.mark.extras
def test_only_the_engines_that_a_profile_names_are_imported(tmp_path: Path):
    script = (
        "import sys; from kopub.config.settings import load_settings; load_settings();"
        "print(*sorted({'kopub.recognition.vlm.glm_ocr', 'kopub.layout.pp_doclayout.detector', "
        "'kopub.layout.cpu.engine', 'torch', 'vllm', 'rapidfuzz'} & sys.modules.keys()))"
    )
    assert python(tmp_path, script) == "kopub.layout.cpu.engine\n"


def test_the_environment_overrides_keys(load: Load):
    settings = load(KOPUB_RECOGNITION__THREADS="3", KOPUB_STORE__URL="memory://x", KOPUB_SHARDS_PER_RUN="4")
    assert settings.recognition.threads == 3  # pyright: ignore[reportAttributeAccessIssue]
    assert settings.store.url == "memory://x"
    assert settings.shards_per_run == 4
    assert load(kopub_embedding__dim="128").embedding.dim == 128


def test_the_environment_overrides_a_section_and_then_its_keys(load: Load):
    settings = load(KOPUB_EMBEDDING__THREADS="2", KOPUB_EMBEDDING='{"dim": 512, "threads": 5}')
    assert isinstance(settings.embedding, HashedEmbedder)
    assert (settings.embedding.dim, settings.embedding.threads) == (512, 2)


def test_lists_and_mappings_are_typed_as_yaml_or_json(load: Load):
    for scripts in ("[HANGUL, LATIN]", '["HANGUL", "LATIN"]', "[HANGUL,\n  LATIN]"):
        settings = load("extends: h200", {"recognition.scripts": scripts})
        assert settings.recognition.scripts == ["HANGUL", "LATIN"]  # pyright: ignore[reportAttributeAccessIssue]
    settings = load("extends: h200", {"recognition.sampling": "{temperature: 0.5}"})
    assert settings.recognition.sampling["temperature"] == 0.5  # pyright: ignore[reportAttributeAccessIssue]


def test_a_text_of_the_environment_becomes_what_its_key_takes(load: Load):
    glm = "layout: {engine: cpu}\nrecognition: {engine: glm_ocr, model: glm_ocr}\nembedding: {engine: hashed}\n"
    engine = load(
        glm,
        KOPUB_RECOGNITION__SCRIPTS='["HANGUL"]',
        KOPUB_RECOGNITION__SAMPLING__TEMPERATURE="0.5",
        KOPUB_RECOGNITION__PROMPTS__TABLE="[1] Tabelle:",
        KOPUB_RECOGNITION__SERVER__ENV='{"OMP_NUM_THREADS": "2"}',
        KOPUB_RECOGNITION__SERVER__QUANTIZATION="null",
        KOPUB_RECOGNITION__SERVER__SHARE_GPU="true",
        KOPUB_RECOGNITION__SERVER__VERSION="0.30",
    ).recognition
    assert engine.scripts == ["HANGUL"]  # pyright: ignore
    assert engine.sampling == {"temperature": 0.5}  # pyright: ignore
    assert engine.prompts["table"] == "[1] Tabelle:"  # pyright: ignore
    server = engine.server  # pyright: ignore
    assert (server.env, server.quantization, server.share_gpu) == ({"OMP_NUM_THREADS": "2"}, None, True)
    assert server.version == "0.30"


def test_a_section_that_holds_nothing_is_one_that_is_left_out(load: Load):
    assert load(CPU + "store:\ngates:\n").store.url.endswith("/home/store")


def test_a_profile_may_begin_with_a_byte_order_mark(load: Load):
    assert load(b"\xef\xbb\xbf" + CPU.encode()).profile_name == "mine"
