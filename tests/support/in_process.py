"""Readers in this process, and the comparison of their texts with those of a server."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition.regions import RegionText
from kopub.recognition.vlm.in_process import TransformersRecognizer
from kopub.recognition.vlm.recognizer import VlmRecognizer
from kopub.vllm.server import VLLMServer
from tests.support.real_readings import Work

_READING: dict[str, Any] = {"tries": 1, "sampling": {"max_tokens": 5}}


def three_lines() -> Work:
    """Return a page with three short lines, as regions."""
    image = np.full((240, 460, 3), 255, np.uint8)
    for line in range(3):
        cv2.putText(
            image, f"line {line} of {37 * line}", (20, 50 + 70 * line), cv2.FONT_HERSHEY_SIMPLEX, 1, (0, 0, 0), 2
        )
    page = Page("p", cv2.imencode(".png", image)[1].tobytes())
    boxes = [(10.0, 20.0 + 70 * line, 200.0 + 100 * line, 70.0 + 70 * line) for line in range(3)]
    return [(page, [Region(index, "text", Task.TEXT, 0.9, box) for index, box in enumerate(boxes)])]


def texts(reader: Any) -> list[RegionText]:
    """Return what the reader reads of the three lines."""
    (reading,) = reader.read(three_lines())
    return list(reading.regions)


def here(name: Any, checkpoint: Path, **changes: Any) -> TransformersRecognizer:
    """Return a reader in this process, of a tiny checkpoint."""
    return TransformersRecognizer(
        reader=name, repo=str(checkpoint), device="cpu", max_image_tokens=1280, reading=_READING, **changes
    )


def assert_as_here(name: str, server: VLLMServer, served: type[VlmRecognizer], signs: int | None = None) -> None:
    """Assert that a server reads what is read in this process, comparing that many characters of each text."""
    local = here(name, Path(server.model), dtype="float32")
    ours = texts(local)
    local.release()
    theirs = texts(served(server=server, processes=1, **_READING))
    assert any(text.content for text in theirs)
    assert [(text.content[:signs], text.state, text.finish_reason, text.scale) for text in ours] == [
        (text.content[:signs], text.state, text.finish_reason, text.scale) for text in theirs
    ]
