"""The managed vLLM server, and what the engines on it have in common."""

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
