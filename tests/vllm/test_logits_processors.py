"""What a profile has vLLM load beside the model, in vLLM itself under both of its model runners."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from resources.recognition.vlm.deepseek.deepseek_server import (
    LOGITS_PROCESSOR,
    RUNNER,
    VLLM_LOGITS_PROCESSOR,
)
from tests.support.servers.vllm_cpu import needs_vllm, program

pytestmark = [pytest.mark.slow, pytest.mark.vllm, needs_vllm, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]

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
from resources.vllm.plugin.glm_ocr import GlmOcr
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


def test_what_is_loaded_has_the_interface_of_the_runner_that_its_engine_asks_for(found: dict[str, Any]) -> None:
    for name in (LOGITS_PROCESSOR, VLLM_LOGITS_PROCESSOR):
        assert found[f"{name} {RUNNER['VLLM_USE_V2_MODEL_RUNNER']}"] == ""
        # Where the newer runner takes it, the engine need not ask for the older one any more.
        assert "is not a subclass" in found[f"{name} 1"]
    assert found["plugin"] == [True, True, True]


def test_the_plugin_s_guard_bans_and_refuses_what_vllm_s_own_does(found: dict[str, Any]) -> None:
    guard = found["guard"]
    assert guard["different"] == 0
    assert guard["banned"] > 100
    assert [bool(theirs) for theirs, _ in guard["said"]] == [True] * 6 + [False] * 3
    assert all(theirs == ours for theirs, ours in guard["said"])
