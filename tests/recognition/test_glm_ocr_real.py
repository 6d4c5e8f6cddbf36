"""GLM-OCR through a real, managed vLLM on the CPU: a tiny random checkpoint, real pages."""

from pathlib import Path

import pytest

from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.states import State
from kopub.vllm.server import VLLMServer
from tests.support.checkpoints.tiny_vlm import save_glm_ocr
from tests.support.real_readings import assert_whole, sample_work
from tests.support.servers.vllm_cpu import cpu_server, needs_vllm


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(900)
def test_pages_are_read_by_a_real_model_and_not_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path))
    server = VLLMServer(**cpu_server(save_glm_ocr(tmp_path / "glm-ocr"), idle_seconds=2))
    reader = GlmOcrRecognizer(
        server=server, processes=2, tries=2, sampling={"max_tokens": 24}, reuse_folder=str(tmp_path / "reuse")
    )
    work = sample_work(3)
    readings = list(reader.read(work))
    texts = assert_whole(work, readings)
    good = sum(text.state is not State.FAILED and text.finish_reason == "stop" for text in texts)
    again = {reading.page_id: reading for reading in reader.read(work)}
    assert reader.report().get("regions_reused", 0.0) == good
    for reading in readings:
        kept = [text for text in reading.regions if text.state is not State.FAILED]
        assert [text for text in again[reading.page_id].regions if text.state is not State.FAILED] == kept
