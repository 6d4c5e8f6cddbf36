"""The vLLM plugin's encoders and loop guard: off by default, equal to vLLM's own."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopub.recognition.vlm.deepseek_ocr import LOGITS_PROCESSOR, RUNNER, VLLM_LOGITS_PROCESSOR
from kopub.vllm.plugin import GLM_OCR, PADDLEOCR_VL, encoders, find_repeating
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
    # With vLLM unimportable, only a plugin that is switched on fails.
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
    (where / "entry_points.txt").write_text("[vllm.general_plugins]\nkopub = kopub.vllm.plugin:register\n")
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
    assert found["encoder"] == f"kopub.vllm.plugin.{module}"
    assert found["size"] > 0
    # Both are float32 but add in different orders.
    assert found["difference"] < 1e-5
    assert found["same_embeddings"]


LOAD = """
import json, sys
from vllm.v1.sample.logits_processor import _load_custom_logitsprocs
from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs
found = {}
for runner, load in (("0", _load_custom_logitsprocs), ("1", _load_v2_logitsprocs)):
    for name in json.loads(sys.argv[1]):
        try:
            load([name])
            found[f"{name} {runner}"] = ""
        except ValueError as error:
            found[f"{name} {runner}"] = str(error)
from vllm.model_executor.models.interfaces import supports_mrope, supports_multimodal
from kopub.vllm.plugin.glm_ocr import GlmOcr
# What both runners ask of a model with pictures; vLLM's own class of GLM-OCR is asked the same.
found["plugin"] = [supports_multimodal(GlmOcr), supports_mrope(GlmOcr), callable(GlmOcr.embed_multimodal)]
from tests.support.guard_equality import compared
found["guard"] = compared()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    vllm = program()
    assert vllm is not None
    names = [LOGITS_PROCESSOR, VLLM_LOGITS_PROCESSOR]
    command = [str(vllm.with_name("python")), "-c", LOAD, json.dumps(names)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return json.loads(answer.stdout.strip().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(300)
def test_what_is_loaded_has_the_interface_of_the_runner_that_its_engine_asks_for(found: dict[str, Any]) -> None:
    for name in (LOGITS_PROCESSOR, VLLM_LOGITS_PROCESSOR):
        assert found[f"{name} {RUNNER['VLLM_USE_V2_MODEL_RUNNER']}"] == ""
        # Once the newer runner accepts it, the engine need not ask for the older one.
        assert "is not a subclass" in found[f"{name} 1"]
    assert found["plugin"] == [True, True, True]


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(300)
def test_the_plugin_s_guard_bans_and_refuses_what_vllm_s_own_does(found: dict[str, Any]) -> None:
    guard = found["guard"]
    assert guard["different"] == 0
    assert guard["banned"] > 100
    assert [bool(theirs) for theirs, _ in guard["said"]] == [True] * 6 + [False] * 3
    assert all(theirs == ours for theirs, ours in guard["said"])


def plainly(tokens: list[int], size: int, window: int, allowed: set[int]) -> set[int]:
    """Return the tokens that would repeat an n-gram which begins in the window."""
    starts = range(max(0, len(tokens) - window), len(tokens) - size + 1)
    before = tuple(tokens[-(size - 1) :])
    ngrams = [tuple(tokens[start : start + size]) for start in starts]
    return {ngram[-1] for ngram in ngrams if ngram[:-1] == before} - allowed


# With few distinct tokens, repeats are frequent; -1 stands for a token not yet known.
FEW = st.lists(st.integers(-1, 3), max_size=60)
LOOPS = st.builds(lambda start, part, times: start + part * times, FEW, FEW, st.integers(1, 6))


@given(FEW | LOOPS, st.integers(1, 8), st.integers(1, 70), st.sets(st.integers(-1, 3), max_size=3))
def test_it_bans_what_the_definition_says(tokens: list[int], size: int, window: int, allowed: set[int]) -> None:
    given_tokens = list(tokens)
    assert find_repeating(tokens, size, window, allowed) == plainly(tokens, size, window, allowed)
    assert tokens == given_tokens


@pytest.mark.parametrize("period", [1, 2, 30, 61])
def test_the_authors_setting_ends_a_loop_that_fits_their_window(period: int) -> None:
    loop = [number % period for number in range(1500)]
    assert find_repeating(loop, 30, 90, {128_821}) == {1500 % period}
    assert find_repeating(loop, 30, 90, {1500 % period}) == set()


def test_a_loop_longer_than_the_window_or_a_short_answer_is_free() -> None:
    assert find_repeating([number % 62 for number in range(1500)], 30, 90, set()) == set()
    assert find_repeating([7] * 29, 30, 90, set()) == set()
    assert find_repeating([7] * 30, 30, 90, set()) == {7}
