"""The recognition engines: what reads the regions of a page."""

from typing import Any

from resources.base import ProfileResource
from resources.server import ServedResource


class TesseractResource(ProfileResource):
    """Tesseract on the cores of this machine."""

    reread: list[str]
    languages: list[str]
    threads: int
    page_seconds: float


class PpOcrResource(ProfileResource):
    """PP-OCR on the cores of this machine."""

    reread: list[str]
    threads: int
    page_seconds: float


class TransformersResource(ProfileResource):
    """A reading model in this process, without a server."""

    reread: list[str]
    reader: str
    device: str
    dtype: str
    batch_size: int
    pages_at_once: int
    max_model_len: int
    max_image_tokens: int
    reading: dict[str, Any]


class VlmResource(ServedResource):
    """A vision-language model that reads one region in each request."""

    reread: list[str]
    prompts: dict[str, str]
    sampling: dict[str, Any]
    scripts: list[str]
    tries: int
    line_height: int | None
    reuse_answers: int


class GlmOcrResource(VlmResource):
    """GLM-OCR on a vLLM server."""


class DeepSeekOcrResource(VlmResource):
    """DeepSeek-OCR on a vLLM server, region by region."""

    ocr2: bool


class PaddleOcrVlResource(VlmResource):
    """PaddleOCR-VL on a vLLM server."""

    least_line_height: int | None
