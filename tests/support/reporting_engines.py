"""Engines whose client processes report on themselves instead of sending requests."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kopub.embedding.qwen3_vl import Qwen3VLEmbedder
from kopub.layout.regions import Region, Task
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.vllm.served_engine import ServedEngine
from kopub.vllm.server import VLLMServer
from tests.support.checkpoints.tiny_vlm import qwen_tokenizer
from tests.support.processes.worker_report import ReportingHandler, WorkerReport
from tests.support.sources.drawn import Sheet

REGION = Region(0, "text", Task.TEXT, 0.9, (10.0, 10.0, 200.0, 60.0))


class _Reporting(ServedEngine):
    def run_jobs(self, jobs: Iterable[Any], make: Callable[[], Any], lost: Callable[[Any, str], Any]) -> Iterator[Any]:
        return super().run_jobs(jobs, partial(ReportingHandler, make), lost)


class _Recognizer(_Reporting, GlmOcrRecognizer):
    pass


class _Embedder(_Reporting, Qwen3VLEmbedder):
    pass


FITS = "Qwen3-VL, a page that fits"
RESIZED = "Qwen3-VL, a page that is resized"


def recognizer_reports(folder: Path) -> dict[str, WorkerReport]:
    """Start a client process as the recognizer does, and have it prepare a page."""
    recognizer = _Recognizer(server=VLLMServer(**_server(folder)), processes=2)
    page = Sheet().page()
    return {"GLM-OCR, a page": _only(recognizer.read([(page, [REGION])]))}


def embedder_reports(folder: Path) -> dict[str, WorkerReport]:
    """Start a client process for each kind of job, and have it prepare one."""
    qwen_tokenizer().save(str(folder / "tokenizer.json"))
    server = VLLMServer(**_server(folder), runner="pooling", max_image_tokens=1800)
    embedder = _Embedder(server=server, processes=2)
    return {
        FITS: _only(embedder.embed_images([Sheet(1120, 1600).page()])),
        RESIZED: _only(embedder.embed_images([Sheet(1240, 1754).page()])),
        "Qwen3-VL, a text": _only(embedder.embed_texts([("t", "글")])),
    }


def _server(folder: Path) -> dict[str, Any]:
    """Return the fields of a server that gets no request."""
    return {"mode": "external", "model": str(folder), "urls": ["http://127.0.0.1:9"]}


def _only(made: Iterator[Any]) -> WorkerReport:
    (report,) = made
    return report
