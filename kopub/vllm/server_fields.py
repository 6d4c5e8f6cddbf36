"""The fields of the vLLM server, and the command line and environment they make."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from kopub.engine import ProfileOnly, Resource
from kopub.errors import EngineError, first_line
from kopub.states import phrase
from kopub.vllm.plugin import VERSIONS

ALL_GPUS = "all"
"""Every GPU that this process may use."""


class VLLMServerFields(Resource):
    """The keys of a profile's `server` section."""

    model: ProfileOnly[str] = Field(description="Hub repository or folder of a checkpoint.")
    revision: ProfileOnly[str | None] = Field(
        default=None, description="Commit of the Hub repository; a folder has none."
    )
    version: ProfileOnly[str] = Field(
        default="", description="vLLM release that must be running, as in 0.32.0; empty for any."
    )
    runner: ProfileOnly[Literal["generate", "pooling"]] = Field(
        default="generate", description="pooling for embeddings and reranking."
    )
    convert: ProfileOnly[Literal["embed", "classify"]] = Field(
        default="embed", description="What a pooling server makes of a prompt: a vector, or classify for a reranker."
    )
    dtype: ProfileOnly[str] = Field(default="auto", description="Type of weights and activations.")
    quantization: ProfileOnly[str | None] = Field(default=None, description="Quantization of the weights, such as fp8.")
    kv_cache_dtype: ProfileOnly[str | None] = Field(
        default=None, description="Type of the KV cache, if not the weights'."
    )

    mode: ProfileOnly[Literal["managed", "external"]] = Field(
        default="managed", description="external: use `urls`, start nothing."
    )
    urls: ProfileOnly[list[str]] = Field(
        default=[], description="External servers, equal replicas, each http://host:port."
    )
    api_key_env: ProfileOnly[str] = Field(
        default="", description="Environment variable that holds the external servers' key."
    )
    command: ProfileOnly[list[str]] = Field(
        default=["vllm", "serve"], min_length=1, description="Command that serves; arguments are appended."
    )
    env: ProfileOnly[dict[str, str]] = Field(default={}, description="Additions to the server's environment.")
    extra_flags: ProfileOnly[list[str]] = Field(default=[], description="Further arguments; none may change results.")

    gpus: Any = Field(
        default=[0],
        description="GPUs as a list of indexes among the visible ones, or `all` of these; [] for a CPU build.",
    )
    share_gpu: bool = Field(default=False, description="Share a GPU with other servers that set this too.")
    replicas_per_gpu: int = Field(default=1, ge=1, description="Replicas on each GPU, or on each group of GPUs.")
    replicas: int = Field(
        default=0, ge=0, description="Replicas in all, assigned to the GPUs in turn; 0: as replicas_per_gpu says."
    )
    mps: bool = Field(
        default=False,
        description="Replicas on one GPU work at the same time, by NVIDIA's Multi-Process Service, not in turn.",
    )
    tensor_parallel: int = Field(
        default=1, ge=1, description="GPUs that one replica is spread over, for a model that does not fit on one."
    )
    mm_encoder_tp_mode: ProfileOnly[Literal["weights", "data"]] = Field(
        default="weights",
        description="With tensor_parallel, data gives each GPU the whole encoder and pictures of its own.",
    )
    port: ProfileOnly[int] = Field(default=0, ge=0, le=65_535, description="First replica's port; 0 for any free one.")
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1, description="Share of a card's memory.")
    kv_cache_memory: str | None = Field(default=None, description="Fixed size of the KV cache, as in 128M.")

    max_model_len: ProfileOnly[int] = Field(
        default=16_384, ge=1, description="Tokens of a prompt with its picture and answer."
    )
    max_num_seqs: int = Field(default=256, ge=1, description="Requests worked on at once.")
    max_num_batched_tokens: int = Field(default=16_384, ge=1, description="Tokens in one step of the engine.")
    images_per_prompt: ProfileOnly[int] = Field(default=1, ge=0, description="Pictures that a request may carry.")
    max_image_tokens: ProfileOnly[int] = Field(
        default=6144, ge=0, description="Tokens of the largest picture that clients send."
    )
    api_server_count: int = Field(
        default=1,
        ge=1,
        description="Most processes of a replica that answer HTTP and prepare pictures; each needs two cores.",
    )
    renderer_workers: int = Field(default=1, ge=1, description="Threads in each of these that prepare prompts.")
    prefix_caching: bool = Field(default=False, description="Cache prefixes; helps only prompts that begin alike.")
    mm_cache_gb: float = Field(default=0, ge=0, description="Cache of prepared pictures; helps only repeated ones.")
    mm_processor: ProfileOnly[dict[str, Any] | None] = Field(default=None, description="vLLM's --mm-processor-kwargs.")
    speculative: ProfileOnly[dict[str, Any] | None] = Field(default=None, description="vLLM's --speculative-config.")

    start_timeout: float = Field(default=1800, gt=0, description="Most seconds for a start; the first fetches weights.")
    turn_timeout: float = Field(default=86_400, gt=0, description="Most seconds to wait for a GPU that others use.")
    idle_seconds: float = Field(default=600, ge=0, description="Seconds without a lease after which it is stopped.")
    yield_seconds: float = Field(
        default=20,
        ge=0,
        description="The same if another server waits for the GPU; longer than the pause between steps.",
    )
    hang_seconds: float = Field(default=30, gt=0, description="Seconds without progress after which it has hung.")
    max_restarts: int = Field(default=3, ge=0, description="Restarts within an hour; one more death is an error.")

    @field_validator("gpus")
    @classmethod
    def _indexes(cls, gpus: Any) -> Any:
        listed = isinstance(gpus, list) and all(type(index) is int and index >= 0 for index in gpus)
        if gpus == ALL_GPUS or (listed and len(set(gpus)) == len(gpus)):
            return gpus
        raise ValueError(phrase("{gpus!r} is neither all nor a list of different indexes from 0 on", gpus))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mode == "external" and not self.urls:
            raise ValueError("urls: an external server needs at least one URL")
        for url in self.urls:
            try:
                parts = urlsplit(url)
                # Python's HTTP client sends only ASCII.
                usable = url.isascii() and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            except ValueError:
                usable = False  # the port is not a number, or the address is broken
            if not usable:
                raise ValueError(phrase("urls: {url!r} is no URL of a server, as http://host:port is", url))
        if self.gpus != ALL_GPUS and len(self.gpus) % self.tensor_parallel:
            form = "tensor_parallel: {count} GPUs do not make groups of {size}"
            raise ValueError(phrase(form, len(self.gpus), self.tensor_parallel))
        if not self.revision and not self.folder.is_dir():
            form = "revision: {model} is no folder here, so a commit of it must be pinned"
            raise ValueError(phrase(form, self.model))
        if self.images_per_prompt and self.max_image_tokens > min(self.max_num_batched_tokens, self.max_model_len):
            raise ValueError(
                f"max_image_tokens: a picture of {self.max_image_tokens} tokens exceeds max_num_batched_tokens "
                f"({self.max_num_batched_tokens}) or max_model_len ({self.max_model_len}) and would be refused"
            )
        return self

    @property
    def answers(self) -> str:
        """The kind of its answers: generate, pooling (for vectors) or classify."""
        return self.convert if (self.runner, self.convert) == ("pooling", "classify") else self.runner

    @property
    def checkpoint(self) -> str:
        """The model as an argument of `vllm serve`: a repository or a full path."""
        return str(self.folder.absolute()) if self.folder.is_dir() else self.model

    @property
    def folder(self) -> Path:
        return Path(self.model).expanduser()


ENVIRONMENT = {
    # Several processes that each start a thread per core starve one another; vLLM's work is on the GPU.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # No usage statistics are sent to anybody.
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Log lines must arrive as soon as they are printed.
    "PYTHONUNBUFFERED": "1",
    # In the warm-up FlashInfer's sampler is compiled by nvcc, which most machines lack; greedy requests never use it.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # A recipe states that an encoder is on, so only a profile may turn it on, not the shell of the first user.
    **dict.fromkeys(VERSIONS, "0"),
    # Threads that wait for work would spin on the cores that decode pages, on an H200 half of 16.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Variables of a server's environment, unless the profile's `env` says otherwise."""


_RERANKER = {
    "architectures": ["Qwen3VLForSequenceClassification"],
    "classifier_from_token": ["no", "yes"],
    "is_original_qwen3_reranker": True,
}
"""Overrides that make vLLM take the score of Qwen3-VL-Reranker from its tokens for no and yes; the checkpoint lacks
them."""


def serve_arguments(server: VLLMServerFields) -> list[str]:
    """Return the arguments after `vllm serve`, without the port and the key."""
    images, share = server.images_per_prompt, server.gpu_memory_utilization
    arguments = [
        server.checkpoint,
        "--served-model-name", server.checkpoint,
        # Only processes of this machine are clients.
        "--host", "127.0.0.1",
        "--runner", server.runner,
        "--dtype", server.dtype,
        # Requests contain one picture. A video limit of 0 spares vLLM the start-up profiling of the longest video, and
        # gigabytes of GPU memory reserved for videos that never come.
        "--limit-mm-per-prompt", json.dumps({"image": images, "video": 0}),
        "--max-model-len", str(server.max_model_len),
        "--max-num-seqs", str(server.max_num_seqs),
        # This is also the size of the encoder's cache and the budget of one of its steps: a picture of more tokens
        # would be refused with HTTP 400, so `VLLMServerFields` checks it against `max_image_tokens`.
        "--max-num-batched-tokens", str(server.max_num_batched_tokens),
        # Every crop is unique and its prompt begins with it, so neither cache ever has a hit; filling them would cost a
        # hash of all pixels and host memory for each API process.
        "--enable-prefix-caching" if server.prefix_caching else "--no-enable-prefix-caching",
        "--mm-processor-cache-gb", f"{server.mm_cache_gb:g}",
        "--api-server-count", str(server.api_server_count),
        "--renderer-num-workers", str(server.renderer_workers),
        # Otherwise the log would consist of one line per region.
        "--disable-uvicorn-access-log",
    ]  # fmt: skip
    optional = {
        "--revision": server.revision,
        "--quantization": server.quantization,
        "--kv-cache-dtype": server.kv_cache_dtype,
        # A share of the memory suits a dedicated GPU; a fixed size suits a CPU, whose memory is shared.
        "--gpu-memory-utilization": None if share is None else f"{share:g}",
        "--kv-cache-memory-bytes": server.kv_cache_memory,
        "--tensor-parallel-size": str(server.tensor_parallel) if server.tensor_parallel > 1 else None,
        "--mm-encoder-tp-mode": server.mm_encoder_tp_mode if server.tensor_parallel > 1 else None,
        "--mm-processor-kwargs": json.dumps(server.mm_processor) if server.mm_processor else None,
        "--speculative-config": json.dumps(server.speculative) if server.speculative else None,
    }
    if server.answers == "classify":
        optional |= {"--convert": "classify", "--hf-overrides": json.dumps(_RERANKER)}
    elif server.runner == "pooling":
        # This is what vLLM would choose from these models' own files: the hidden state of the last token.
        optional |= {"--convert": "embed", "--pooler-config": json.dumps({"seq_pooling_type": "LAST"})}
    for flag, value in optional.items():
        if value:
            arguments += [flag, value]
    return [*arguments, *server.extra_flags]


def serve_environment(server: VLLMServerFields) -> dict[str, str]:
    """Return the variables that the server's environment adds to the inherited one."""
    return {**ENVIRONMENT, **server.env}


_SECONDS = 300.0
"""Seconds for vLLM's imports, cold, from a slow disk."""
_FLAG = re.compile(r"(?<![\w-])-[\w-]+")


def listed_flags(program: Sequence[str]) -> frozenset[str]:
    """Return the flags of `program`, a command that ends in `serve`.

    Raises `EngineError` if it cannot list them.
    """
    command = [*program, "--help=all"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError("`{command}` does not answer: {error}", " ".join(command), first_line(error)) from None
    flags = frozenset(_FLAG.findall(listing.stdout))
    if listing.returncode or not flags:
        message = (listing.stderr or listing.stdout).strip().rpartition("\n")[2] or "no message"
        form = "`{command}` ended with status {status}: {error}"
        raise EngineError(form, " ".join(command), listing.returncode, message)
    return flags


def unknown_flags(arguments: Sequence[str], listed: frozenset[str]) -> list[str]:
    """Return the flags among `arguments` that are not `listed`, in order.

    `--flag.key` sets a key of `--flag`, and vLLM accepts `_` for `-`. Short flags are ignored, because a value may be
    attached to them.
    """
    flags: list[str] = []
    for word in arguments:
        flag = word.partition("=")[0].partition(".")[0].replace("_", "-")
        if word.startswith("--") and flag not in listed and flag not in flags:
            flags.append(flag)
    return flags
