"""Client processes of the model server import no Dagster, torch or vLLM."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from kopub.recognition.vlm.deepseek_ocr import DeepSeekOcrRecognizer
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.recognition.vlm.recognizer import VlmRecognizer
from tests.recognition.test_deepseek_ocr import server_of

pytestmark = pytest.mark.services

ROOT = Path(__file__).resolve().parents[2]
LOAD = """
import pickle, sys
pickle.loads(bytes.fromhex(sys.argv[1]))
import kopub.recognition.deepseek_layout.reader
import kopub.recognition.vlm.client.reader, kopub.embedding.qwen3_vl_handlers
print(*sorted({"dagster", "pyarrow", "torch", "transformers", "vllm"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("engine", [GlmOcrRecognizer, DeepSeekOcrRecognizer])
def test_a_client_process_loads_no_heavy_library(engine: type[VlmRecognizer]) -> None:
    recognizer = engine.model_validate({"server": server_of()})
    carried = pickle.dumps([recognizer.image_maker(), recognizer.clean_answer]).hex()
    done = subprocess.run([sys.executable, "-c", LOAD, carried], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
