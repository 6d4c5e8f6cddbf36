"""The layout engines: what finds the regions of a page."""

from typing import Any

from resources.base import ProfileResource
from resources.server import ServedResource


class GpuLayoutResource(ProfileResource):
    """PP-DocLayout on a GPU.

    In half precision and compiled, with post-processing of whole batches on the card.
    """

    device: str
    dtype: str
    compile: bool
    batch_size: int
    decode_threads: int
    gpu_jpeg: bool
    keep_loaded: bool
    own_process: bool
    polygons: bool
    threshold: float
    speck: float
    thresholds: dict[str, float]
    nms_same: float
    nms_different: float
    overlap: float | None
    containment: dict[str, str]
    unclip: dict[str, list[float]]
    tasks: dict[str, str]


class CpuLayoutResource(ProfileResource):
    """Layout by image processing alone, without a model."""

    threads: int
    speck: float


class DeepSeekOcrLayoutResource(ServedResource):
    """Whole pages by DeepSeek-OCR, which finds the regions and reads them at once."""

    prompt: str
    sampling: dict[str, Any]
    scripts: list[str]
    tasks: dict[str, str]
    most_outside: float
    halves_share: float
    second_look: list[str]
    ocr2: bool


class GivenLayoutResource(ProfileResource):
    """The regions that the corpus brings with its pages."""
