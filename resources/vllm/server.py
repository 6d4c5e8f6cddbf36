"""The vLLM server as a resource: what it serves, what it may use, and a lease on it."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self

import dagster as dg
from pydantic import Field, model_validator

from resources.errors import EngineError
from resources.fingerprints import file_sha256, fingerprint
from resources.vllm import plugin
from resources.vllm.endpoint import Endpoint
from resources.vllm.flags import serve_arguments, serve_environment
from resources.vllm.lease import lease_server, restart_replica, restart_server
from resources.vllm.supervisor.gpu_lock import visible
from resources.vllm.supervisor.probe import BadProbe, NotListening, Target, answers, served_models, version
from resources.vllm.supervisor.server_state import POLL, Specification

_PROTOCOL = 2
"""Of the files that clients and supervisors share; one of another number is left to its own."""

_LIFECYCLE = frozenset(
    {"start_timeout", "turn_timeout", "idle_seconds", "yield_seconds", "hang_seconds", "max_restarts"}
)
"""How a server is kept, not which one it is: its first user decides."""

_UNTOLD = (NotListening, BadProbe, TimeoutError, ValueError, LookupError, TypeError)
"""A question about itself that a server does not answer, or answers otherwise than vLLM."""


class VLLMServer(dg.ConfigurableResource):
    """One model on vLLM, managed on this machine or run by someone else.

    Nothing starts before `lease()`. A managed server needs Linux.
    """

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
    command: list[str] = Field(default=["vllm", "serve"], description="What serves; arguments are appended.")
    env: dict[str, str] = Field(default={}, description="Additions to the server's environment.")
    extra_flags: list[str] = Field(default=[], description="Further arguments; none that changes results.")

    gpus: list[int] = Field(default=[0], description="GPUs by index among the visible ones; none for a CPU build.")
    share_gpu: bool = Field(default=False, description="It fits beside other servers that say so too.")
    replicas: int = Field(default=1, ge=1, description="Servers of their own, given the GPUs by turns.")
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

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mode == "external" and not self.urls:
            raise ValueError("urls: an external server needs at least one URL")
        if not self.revision and not self._folder.is_dir():
            raise ValueError(f"revision: {self.model} is no folder here, so a commit of it must be pinned")
        if self.images_per_prompt and self.max_image_tokens > min(self.max_num_batched_tokens, self.max_model_len):
            raise ValueError(
                f"max_image_tokens: a picture of {self.max_image_tokens} tokens exceeds max_num_batched_tokens "
                f"({self.max_num_batched_tokens}) or max_model_len ({self.max_model_len}) and would be refused"
            )
        return self

    @contextmanager
    def lease(self) -> Iterator[Endpoint]:
        """Use the server for as long as the context is held.

        It is started if need be, its log told to Dagster; later steps, runs and commands find it
        warm. Raises `EngineError` with the likely cause when it cannot be had.
        """
        if self.mode == "external":
            yield self._external(self.hang_seconds)
            return
        with lease_server(self._specification(), self.key, dg.get_dagster_logger("vllm")) as endpoint:
            yield endpoint

    def restart(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint that replaces one which died or hangs, within a lease.

        Any number of callers cause one restart, and none when the server proves to be alive. An
        external server is waited for. Raises `EngineError` when `max_restarts` are used up.
        """
        if self.mode == "external":
            return self._external(self.start_timeout)
        return restart_server(endpoint, dg.get_dagster_logger("vllm"))

    def restart_replica(self, endpoint: Endpoint, url: str, reason: str) -> Endpoint:
        """The endpoint as it is now; a managed replica at `url` that hangs is restarted while the others go on.

        Returns at once, within a lease. The owner of external servers looks after them.
        """
        if self.mode == "external":
            return endpoint
        return restart_replica(endpoint, url, reason, dg.get_dagster_logger("vllm"))

    def recipe_parts(self) -> dict[str, str]:
        """What of the server determines results: the weights by commit or content, the types, vLLM's version.

        Also how it prepares pictures, and this project's encoder where it is on.
        """
        return {
            "model": self.model if self.revision else "folder",
            "revision": self.revision or _content(self._folder),
            "dtype": self.dtype,
            "quantization": self.quantization or "",
            "kv_cache_dtype": self.kv_cache_dtype or "",
            "vllm": self.version,
            "mm_processor": fingerprint(self.mm_processor) if self.mm_processor else "",
            "encoder": str(plugin.VERSION.number) if self.env.get(plugin.SWITCH) == "1" else "",
        }

    @property
    def gpus_held(self) -> int:
        """GPUs it works on; of external servers, which do not say, one for each."""
        return len(self.urls) if self.mode == "external" else len(self.gpus)

    @property
    def key(self) -> str:
        """Names the running server: two configurations with the same key share it."""
        parts = {name: value for name, value in asdict(self._specification()).items() if name not in _LIFECYCLE}
        return fingerprint({"protocol": _PROTOCOL, "stamp": _stamp(self._folder), **parts})

    @property
    def checkpoint(self) -> str:
        """The model as the server is told it, in whichever folder that runs: a repository, or a whole path."""
        return str(self._folder.absolute()) if self._folder.is_dir() else self.model

    @property
    def _folder(self) -> Path:
        return Path(self.model).expanduser()

    def _specification(self) -> Specification:
        if sys.platform != "linux":
            raise EngineError("a managed vLLM server needs Linux; use mode external, or the cpu profile")
        try:
            gpus = visible(self.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
        except ValueError as error:
            raise EngineError(f"{error}; change the server's `gpus`") from None
        lifecycle = {name: getattr(self, name) for name in _LIFECYCLE}
        return Specification(
            model=self.checkpoint,
            command=(*self._program(), *serve_arguments(self)),
            env=serve_environment(self),
            gpus=gpus,
            share_gpu=self.share_gpu,
            replicas=self.replicas,
            port=self.port,
            runner=self.runner,
            images=self.images_per_prompt > 0,
            version=self.version,
            **lifecycle,
        )

    def _program(self) -> tuple[str, ...]:
        """The command with its program's whole path; the supervisor works in another folder."""
        name, *words = self.command
        # Beside this interpreter too: a virtual environment need not be activated.
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        program = shutil.which(os.path.expanduser(name), path=places)
        if program is None:
            raise EngineError(f"{name} is not installed here; install kopub[gpu], or name it in the server's `command`")
        return (os.path.abspath(program), *words)

    def _external(self, seconds: float) -> Endpoint:
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        if self.api_key_env and not key:
            raise EngineError(f"{self.api_key_env}, which is to hold the key of {self.urls[0]}, is not set")
        targets = [
            Target(url.rstrip("/"), key, self.model, self.runner, self.images_per_prompt > 0) for url in self.urls
        ]
        deadline = time.monotonic() + seconds
        while not (alive := [target for target in targets if answers(target, self.hang_seconds)]):
            if time.monotonic() > deadline:
                raise EngineError(f"no external server serves {self.model}: {self._problem(targets[0])}")
            time.sleep(POLL)
        for silent in set(targets) - set(alive):
            dg.get_dagster_logger("vllm").warning("%s does not answer and is left out", silent.url)
        if self.version:
            for target in alive:
                self._check_version(target)
        return Endpoint(tuple(target.url for target in alive), key, self.model, self.runner, self.images_per_prompt > 0)

    def _check_version(self, target: Target) -> None:
        try:
            running = version(target)
        except _UNTOLD as error:
            raise EngineError(
                f"{target.url} does not say which vLLM it is ({error}), the profile says {self.version}; "
                "leave `version` empty for a server that has none"
            ) from None
        if running.partition("+")[0] != self.version.partition("+")[0]:
            raise EngineError(
                f"{target.url} is vLLM {running}, the profile says {self.version}; install that, or change `version`"
            )

    def _problem(self, target: Target) -> str:
        try:
            names = served_models(target)
        except _UNTOLD as error:
            return f"{target.url}: {error}"
        return f"{target.url} serves {', '.join(names)}"


def _stamp(folder: Path) -> list[tuple[str, int, int]]:
    """Cheap identity of a checkpoint's files, so that a changed one is not mistaken for what a warm server loaded."""
    files = ((name, path.stat()) for name, path in _files(folder).items())
    return [(name, status.st_size, status.st_mtime_ns) for name, status in files]


def _content(folder: Path) -> str:
    """Fingerprint of a checkpoint's bytes."""
    return fingerprint({name: file_sha256(path) for name, path in _files(folder).items()})


def _files(folder: Path) -> dict[str, Path]:
    """A checkpoint's files by name below the folder; what a download left in hidden folders is none of it."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(name): folder / name for name in names if not any(part.startswith(".") for part in name.parts)}
