"""What a profile has vLLM load beside the model, in vLLM itself under both of its model runners."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from resources.recognition.vlm.deepseek.deepseek_server import LOGITS_PROCESSOR, RUNNER
from tests.support.servers.vllm_cpu import needs_vllm, program

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
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(300)
def test_what_is_loaded_has_the_interface_of_the_runner_that_its_engine_asks_for() -> None:
    vllm = program()
    assert vllm is not None
    command = [str(vllm.with_name("python")), "-c", LOAD, json.dumps([LOGITS_PROCESSOR])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr[-2000:]
    found = json.loads(answer.stdout.strip().splitlines()[-1])
    assert found[f"{LOGITS_PROCESSOR} {RUNNER['VLLM_USE_V2_MODEL_RUNNER']}"] == ""
    # Where the newer runner takes it, the engine need not ask for the older one any more.
    assert "is not a subclass" in found[f"{LOGITS_PROCESSOR} 1"]
    assert found["plugin"] == [True, True, True]
