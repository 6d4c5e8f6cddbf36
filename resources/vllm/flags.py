"""A server's fields as the arguments and the environment of `vllm serve`, and the flags that a vLLM knows."""

import json
import re
import subprocess
from collections.abc import Sequence

from resources.errors import EngineError
from resources.printable import first_line
from resources.vllm.plugin import VERSIONS
from resources.vllm.server_fields import VLLMServerFields

ENVIRONMENT = {
    # Several processes that each start a thread per core starve one another; vLLM's work is on the GPU.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Nothing is reported to anybody.
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Log lines arrive when they are printed.
    "PYTHONUNBUFFERED": "1",
    # FlashInfer's sampler is compiled by nvcc in the warm-up, which most machines lack; greedy requests never use it.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # A recipe tells that an encoder is on, so only a profile turns it on, not the shell of a first user.
    **dict.fromkeys(VERSIONS, "0"),
    # Threads that wait for work would spin, and take the cores that decode pages: half of 16 on an H200.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""What a server's environment gets unless the profile's `env` says otherwise."""


def serve_arguments(server: VLLMServerFields) -> list[str]:
    """Arguments after `vllm serve`, the port left to the supervisor.

    The key travels in the environment, never here.
    """
    images = server.images_per_prompt
    arguments = [
        server.checkpoint,
        "--served-model-name", server.checkpoint,
        # Only this machine's own processes are clients.
        "--host", "127.0.0.1",
        "--runner", server.runner,
        "--dtype", server.dtype,
        # Requests as they occur hold one picture. A video limit of 0 spares vLLM's start-up profiling of the
        # longest video, and with it gigabytes of GPU memory kept for what never comes.
        "--limit-mm-per-prompt", json.dumps({"image": images, "video": 0}),
        "--max-model-len", str(server.max_model_len),
        "--max-num-seqs", str(server.max_num_seqs),
        # Also the size of the encoder's cache and the budget of one of its steps: a picture of more tokens than
        # this would be refused with HTTP 400, so `VLLMServerFields` checks it against `max_image_tokens`.
        "--max-num-batched-tokens", str(server.max_num_batched_tokens),
        # Every crop is unique and its prompt begins with it, so nothing is ever found in either cache; filling
        # them costs a hash of all pixels and host memory for each API process.
        "--enable-prefix-caching" if server.prefix_caching else "--no-enable-prefix-caching",
        "--mm-processor-cache-gb", _number(server.mm_cache_gb),
        "--api-server-count", str(server.api_server_count),
        "--renderer-num-workers", str(server.renderer_workers),
        # A log line for each region would be the log.
        "--disable-uvicorn-access-log",
    ]  # fmt: skip
    optional = {
        "--revision": server.revision,
        "--quantization": server.quantization,
        "--kv-cache-dtype": server.kv_cache_dtype,
        # A share of the card suits an own GPU; a fixed size suits a CPU, whose memory is everybody's.
        "--gpu-memory-utilization": _number(server.gpu_memory_utilization),
        "--kv-cache-memory-bytes": server.kv_cache_memory,
        "--tensor-parallel-size": str(server.tensor_parallel) if server.tensor_parallel > 1 else None,
        "--mm-encoder-tp-mode": server.mm_encoder_tp_mode if server.tensor_parallel > 1 else None,
        "--mm-processor-kwargs": json.dumps(server.mm_processor) if server.mm_processor else None,
        "--speculative-config": json.dumps(server.speculative) if server.speculative else None,
    }
    if server.runner == "pooling":
        # As vLLM would choose by itself from these models' own files: the hidden state of the last token.
        optional |= {"--convert": "embed", "--pooler-config": json.dumps({"seq_pooling_type": "LAST"})}
    given = [word for flag, value in optional.items() if value for word in (flag, value)]
    return [*arguments, *given, *server.extra_flags]


def serve_environment(server: VLLMServerFields) -> dict[str, str]:
    """Return what the server's environment has beyond the one it is started from."""
    return {**ENVIRONMENT, **server.env}


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


_SECONDS = 300.0
"""vLLM's imports, cold, on a slow disk."""
_FLAG = re.compile(r"(?<![\w-])-[\w-]+")


def listed_flags(program: Sequence[str]) -> frozenset[str]:
    """Return the flags of `program`, a command that ends in `serve`.

    Raises `EngineError` when it cannot list them.
    """
    command = [*program, "--help=all"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"`{' '.join(command)}` does not answer: {first_line(error)}") from None
    flags = frozenset(_FLAG.findall(listing.stdout))
    if listing.returncode or not flags:
        said = (listing.stderr or listing.stdout).strip().rpartition("\n")[2] or "no message"
        raise EngineError(f"`{' '.join(command)}` ended with status {listing.returncode}: {said}")
    return flags


def unknown_flags(arguments: Sequence[str], known: frozenset[str]) -> list[str]:
    """Return the flags among `arguments` that are not `known`, in their order.

    `--flag.key` sets a key of `--flag`, and vLLM takes `_` for `-`. Short flags are not looked at: a value may hang on.
    """
    flags = dict.fromkeys(_named(word) for word in arguments if word.startswith("--"))
    return [flag for flag in flags if flag not in known]


def _named(word: str) -> str:
    return word.partition("=")[0].partition(".")[0].replace("_", "-")
