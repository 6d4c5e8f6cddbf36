"""The fields of the vLLM server: what it serves, what it may use, and how long it is kept."""

from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from resources.resource import Resource

ALL_GPUS = "all"
"""Every GPU that this process may use."""


class VLLMServerFields(Resource):
    """The keys of a profile's `server` section."""

    model: str = Field(description="Hub repository or folder of a checkpoint.")
    revision: str | None = Field(default=None, description="Commit of the Hub repository; a folder has none.")
    version: str = Field(default="", description="vLLM release that must be running, as in 0.32.0; empty for any.")
    runner: Literal["generate", "pooling"] = Field(default="generate", description="pooling for embeddings.")
    dtype: str = Field(default="auto", description="Type of weights and activations.")
    quantization: str | None = Field(default=None, description="For instance fp8.")
    kv_cache_dtype: str | None = Field(default=None, description="Type of the KV cache when not the weights'.")

    mode: Literal["managed", "external"] = Field(default="managed", description="external: use `urls`, start nothing.")
    urls: list[str] = Field(default=[], description="External servers, equal replicas, each http://host:port.")
    api_key_env: str = Field(default="", description="Environment variable that holds the external servers' key.")
    command: list[str] = Field(
        default=["vllm", "serve"], min_length=1, description="What serves; arguments are appended."
    )
    env: dict[str, str] = Field(default={}, description="Additions to the server's environment.")
    extra_flags: list[str] = Field(default=[], description="Further arguments; none that changes results.")

    gpus: Any = Field(
        default=[0],
        description="GPUs as a list of indexes among the visible ones, or `all` of these; [] for a CPU build.",
    )
    share_gpu: bool = Field(default=False, description="It fits beside other servers that say so too.")
    replicas_per_gpu: int = Field(default=1, ge=1, description="Servers of their own on each GPU, or group of GPUs.")
    replicas: int = Field(
        default=0, ge=0, description="Servers of their own in all, given the GPUs by turns; 0: by replicas_per_gpu."
    )
    mps: bool = Field(
        default=False,
        description="Replicas on one GPU work at the same time, by NVIDIA's Multi-Process Service, not by turns.",
    )
    tensor_parallel: int = Field(
        default=1, ge=1, description="GPUs that one replica is spread over, for a model that does not fit on one."
    )
    mm_encoder_tp_mode: Literal["weights", "data"] = Field(
        default="weights",
        description="With tensor_parallel, data: each GPU encodes pictures of its own with the whole encoder.",
    )
    port: int = Field(default=0, ge=0, le=65_535, description="First replica's port; 0 for any free one.")
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1, description="Share of a card's memory.")
    kv_cache_memory: str | None = Field(default=None, description="Fixed size of the KV cache, as in 128M.")

    max_model_len: int = Field(default=16_384, ge=1, description="Tokens of a prompt with its picture and answer.")
    max_num_seqs: int = Field(default=256, ge=1, description="Requests worked on at once.")
    max_num_batched_tokens: int = Field(default=16_384, ge=1, description="Tokens in one step of the engine.")
    images_per_prompt: int = Field(default=1, ge=0, description="Pictures that a request may carry.")
    max_image_tokens: int = Field(default=6144, ge=0, description="Of the largest picture that clients send.")
    api_server_count: int = Field(default=1, ge=1, description="Processes that answer HTTP and prepare pictures.")
    renderer_workers: int = Field(default=1, ge=1, description="Threads of each that prepare prompts.")
    prefix_caching: bool = Field(default=False, description="Worth it only for prompts that begin alike.")
    mm_cache_gb: float = Field(default=0, ge=0, description="Cache of prepared pictures, for repeated ones only.")
    mm_processor: dict[str, Any] | None = Field(default=None, description="vLLM's --mm-processor-kwargs.")
    speculative: dict[str, Any] | None = Field(default=None, description="vLLM's --speculative-config.")

    start_timeout: float = Field(default=1800, gt=0, description="Seconds for a start; the first fetches weights.")
    turn_timeout: float = Field(default=86_400, gt=0, description="Seconds to wait for other servers' work on the GPU.")
    idle_seconds: float = Field(default=600, ge=0, description="Without a lease, after which it is stopped.")
    yield_seconds: float = Field(
        default=20, ge=0, description="The same when another server waits for the GPU; longer than from step to step."
    )
    hang_seconds: float = Field(default=30, gt=0, description="Without any progress, after which it hangs.")
    max_restarts: int = Field(default=3, ge=0, description="Within an hour; one more death is an error.")

    @field_validator("gpus")
    @classmethod
    def _indexes(cls, gpus: Any) -> Any:
        listed = isinstance(gpus, list) and all(type(index) is int and index >= 0 for index in gpus)
        if gpus == ALL_GPUS or (listed and len(set(gpus)) == len(gpus)):
            return gpus
        raise ValueError(f"{gpus!r} is neither all nor a list of different indexes from 0 on")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mode == "external" and not self.urls:
            raise ValueError("urls: an external server needs at least one URL")
        for url in self.urls:
            if not _is_url(url):
                raise ValueError(f"urls: {url!r} is no URL of a server, as http://host:port is")
        if self.gpus != ALL_GPUS and len(self.gpus) % self.tensor_parallel:
            raise ValueError(f"tensor_parallel: {len(self.gpus)} GPUs do not make groups of {self.tensor_parallel}")
        if not self.revision and not self.folder.is_dir():
            raise ValueError(f"revision: {self.model} is no folder here, so a commit of it must be pinned")
        if self.images_per_prompt and self.max_image_tokens > min(self.max_num_batched_tokens, self.max_model_len):
            raise ValueError(
                f"max_image_tokens: a picture of {self.max_image_tokens} tokens exceeds max_num_batched_tokens "
                f"({self.max_num_batched_tokens}) or max_model_len ({self.max_model_len}) and would be refused"
            )
        return self

    @property
    def checkpoint(self) -> str:
        """The model as `vllm serve` takes it in any working folder: a repository, or a whole path."""
        return str(self.folder.absolute()) if self.folder.is_dir() else self.model

    @property
    def folder(self) -> Path:
        return Path(self.model).expanduser()


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False  # a port that is no number, or a broken address
