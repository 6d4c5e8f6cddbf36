"""The engines, and the vLLM server that some of them share."""

from typing import Any

import dagster as dg

from kopub.vllm.server import VLLMServer
from resources.base import ProfileResource


class VLLMServerResource(ProfileResource):
    """A managed vLLM server with one model, kept warm between runs.

    A run may set how it is sized and how long it is kept. The profile says which model it serves, where and how.
    """

    gpus: Any
    share_gpu: bool
    replicas_per_gpu: int
    replicas: int
    mps: bool
    tensor_parallel: int
    gpu_memory_utilization: float | None
    kv_cache_memory: str | None
    max_num_seqs: int
    max_num_batched_tokens: int
    api_server_count: int
    renderer_workers: int
    prefix_caching: bool
    mm_cache_gb: float
    start_timeout: float
    turn_timeout: float
    idle_seconds: float
    yield_seconds: float
    hang_seconds: float
    max_restarts: int


class ServedResource(ProfileResource):
    """An engine on a vLLM server, which is a resource of its own."""

    server: dg.ResourceDependency[VLLMServer]
    processes: int
    threads: int
    in_flight: int
    request_seconds: float
    retry_seconds: float


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


class HashedEmbeddingResource(ProfileResource):
    """Vectors of hashed words, without a model."""

    dim: int
    threads: int


class SentenceEmbeddingResource(HashedEmbeddingResource):
    """Vectors of meaning for passages, beside those of hashed words, without a GPU."""


class Qwen3VLEmbeddingResource(ServedResource):
    """Vectors of page images and texts by Qwen3-VL-Embedding."""

    dim: int
    width: int
    instruction: str
    query_instruction: str
    max_tokens: int
    max_pixels: int


class NoRerankingResource(ProfileResource):
    """No reranking: pages stay in the order in which search found them."""

    depth: int
    sees: str
    search_seconds: float


class Qwen3VLRerankingResource(ServedResource):
    """The order of found pages by Qwen3-VL-Reranker."""

    depth: int
    sees: str
    search_seconds: float
    instruction: str
    max_tokens: int
    max_pixels: int


class NoNotesResource(ProfileResource):
    """No notes on figures."""


class ChatNotesResource(ServedResource):
    """Notes on figures by a chat model that sees pictures."""

    language: str
    structured: bool
    max_tokens: int
    tries: int
    sampling: dict[str, Any]


class DeepSeekNotesResource(ServedResource):
    """Notes on figures by DeepSeek-OCR."""

    max_tokens: int
    tries: int
