"""The plugin's encoders of GLM-OCR and PaddleOCR-VL in vLLM: found, off unless asked for, and equal to vLLM's own."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from resources.vllm.plugin import GLM_OCR, PADDLEOCR_VL, encoders
from tests.support.checkpoints.tiny_paddleocr_vl import save_paddleocr_vl
from tests.support.checkpoints.tiny_vlm import save_glm_ocr
from tests.support.servers.vllm_cpu import needs_vllm, program

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("switch", [GLM_OCR, PADDLEOCR_VL])
def test_it_is_found_and_does_nothing_unless_asked_for(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    ((name, value),) = entries["vllm.general_plugins"].items()
    monkeypatch.delenv(GLM_OCR, raising=False)
    monkeypatch.delenv(PADDLEOCR_VL, raising=False)
    # Would be the vLLM that it changes.
    monkeypatch.setitem(sys.modules, "vllm", None)
    register = EntryPoint(name, value, "vllm.general_plugins").load()
    register()
    monkeypatch.setenv(switch, "1")
    with pytest.raises(ImportError):
        register()


def test_the_recipe_names_the_encoders_that_are_on() -> None:
    assert encoders({}) == encoders({GLM_OCR: "0"}) == ""
    assert encoders({GLM_OCR: "1"}) == "vllm.glm_ocr_encoder 1"
    assert encoders({PADDLEOCR_VL: "1"}) == "vllm.paddleocr_vl_encoder 1"


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("switch", "save", "module"),
    [(GLM_OCR, save_glm_ocr, "glm_ocr"), (PADDLEOCR_VL, save_paddleocr_vl, "paddleocr_vl")],
)
def test_its_encoder_computes_what_vllm_s_does(
    switch: str, save: Callable[[Path], Path], module: str, tmp_path: Path
) -> None:
    folder = save(tmp_path / "checkpoint")
    where = tmp_path / "site" / "kopub_plugin-0.dist-info"
    where.mkdir(parents=True)
    (where / "METADATA").write_text("Metadata-Version: 2.1\nName: kopub_plugin\nVersion: 0\n")
    (where / "entry_points.txt").write_text("[vllm.general_plugins]\nkopub = resources.vllm.plugin:register\n")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{where.parent}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        switch: "1",
    }
    python = program()
    assert python is not None
    answer = subprocess.run(
        [str(python.with_name("python")), "-m", "tests.support.encoder_equality", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    found = json.loads(answer.stdout.strip().splitlines()[-1])
    assert found["encoder"] == f"resources.vllm.plugin.{module}"
    assert found["size"] > 0
    # Float32; the order of additions differs.
    assert found["difference"] < 1e-5
    assert found["same_embeddings"]
