"""GLM-OCR read through a real vLLM on the CPU: a tiny random checkpoint, real pages, the managed server."""

from collections import Counter
from pathlib import Path

import pytest

from resources.layout.base import Region, Task
from resources.pages.arrow import open_pages
from resources.pages.page import Page
from resources.recognition.glm_ocr import GlmOcrRecognizer
from resources.recognition.markdown import page_markdown
from resources.states import State
from resources.vllm.server import VLLMServer
from tests.tiny_vlm import save_glm_ocr
from tests.vllm_cpu import cpu_server, needs_vllm

SAMPLES = Path(__file__).resolve().parent.parent / "samples" / "corpus"
ENDS = {State.OK, State.FAILED}


def sample_pages(count: int) -> list[Page]:
    path = sorted(SAMPLES.glob("*.arrow"))[0]
    file = open_pages(path, "arrow", path.stat().st_size)
    rows = [file.row(index) for index in range(count)]
    return [Page(str(row.id), bytes(row.image)) for row in rows if row.image is not None]


def regions(page: Page) -> list[Region]:
    """Strips of the page, and the same place as a table, a formula and a picture."""
    height, width = page.image.shape[:2]
    boxes = [(200.5, 300.2 + 250 * row, 1000.7, 520.9 + 250 * row) for row in range(6)]
    tasks = [*[Task.TEXT] * 4, Task.TABLE, Task.FORMULA, Task.SKIP]
    labels = [*["text"] * 4, "table", "display_formula", "image"]
    assert boxes[-1][3] < height
    assert boxes[-1][2] < width
    return [
        Region(i, label, task, 0.9, box)
        for i, (label, task, box) in enumerate(zip(labels, tasks, [*boxes, boxes[0]], strict=True))
    ]


@needs_vllm
@pytest.mark.timeout(900)
def test_pages_are_read_by_a_real_model_and_not_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path))
    server = VLLMServer(**cpu_server(save_glm_ocr(tmp_path / "glm-ocr"), idle_seconds=2))
    reader = GlmOcrRecognizer(
        server=server, processes=2, tries=2, sampling={"max_tokens": 24}, reuse_folder=str(tmp_path / "reuse")
    )
    work = [(page, regions(page)) for page in sample_pages(3)]
    readings = list(reader.read(work))
    assert Counter(reading.page_id for reading in readings) == Counter(page.page_id for page, _ in work)
    for reading in readings:
        assert [text.index for text in reading.regions] == list(range(7))
        assert len(reading.crops) == 1
        assert all(text.state in ENDS or text.state is State.BLANK for text in reading.regions)
        assert page_markdown(reading.regions, reading.crops)
    texts = [text for reading in readings for text in reading.regions]
    assert any(text.content for text in texts)
    assert all(text.reason for text in texts if text.state is State.FAILED)
    good = sum(text.state is State.OK and text.finish_reason == "stop" for text in texts)
    again = {reading.page_id: reading for reading in reader.read(work)}
    assert reader.report().get("regions_reused", 0.0) == good
    for reading in readings:
        kept = [text for text in reading.regions if text.state is not State.FAILED]
        assert [text for text in again[reading.page_id].regions if text.state is not State.FAILED] == kept
