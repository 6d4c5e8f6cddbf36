"""The vLLM server as a resource."""

import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from kopub.engine import INSTALL
from kopub.errors import EngineError
from kopub.fingerprints import file_sha256, fingerprint
from kopub.folders import runtime_folder
from kopub.gpu import all_gpus, named_gpus
from kopub.parallel import usable_cores
from kopub.vllm import plugin
from kopub.vllm.endpoint import BadProbe, Endpoint, UnreachableServer, is_alive, served_models, version
from kopub.vllm.lease import ask_for_server, lease_server, release_server, restart_replica, restart_server
from kopub.vllm.server_fields import ALL_GPUS, VLLMServerFields, serve_arguments, serve_environment
from kopub.vllm.supervisor.server_state import POLL, Phase, ServerFolder, Specification

_log = logging.getLogger("dagster.builtin.vllm")
"""A logger whose lines are recorded by Dagster with the run."""
_PROTOCOL = 3
"""Version of the files that clients and supervisors share; a different version means a different server."""

_TYPICAL_START = 120.0
"""Seconds to start with the weights on disk: 104 to 129 on an H200, for both GLM-OCR and Qwen3-VL-Embedding."""

_REGION, _PAGE = (29, 15), (35, 49)
"""An average region of a page, and an A4 page as it is embedded, in patches across and down."""
_PATCH = {"generate": 28, "pooling": 32}
"""Pixels per side of a patch."""
_TEXT = 1500
"""Tokens of a page full of text."""
_FIRST = 4
"""First requests of a kind per process that answers HTTP, so that few of these processes get none."""

_LIFECYCLE = frozenset(
    {"start_timeout", "turn_timeout", "idle_seconds", "yield_seconds", "hang_seconds", "max_restarts"}
)
"""Fields that say how long a server is kept, not which one it is; its first user decides them."""

_NO_ANSWER = (UnreachableServer, BadProbe, TimeoutError, ValueError, LookupError, TypeError)
"""Errors of a server that does not answer a question about itself, or not in vLLM's way."""


class VLLMServer(VLLMServerFields):
    """One model on vLLM, managed on this machine or run by someone else.

    Nothing starts before `prepare()` or `lease()`. A managed server needs Linux.
    """

    @contextmanager
    def lease(self) -> Iterator[Endpoint]:
        """Keep the server running until the context ends.

        Starts it if needed and passes its log on to Dagster; later steps, runs and commands find it warm. Raises
        `EngineError` with the likely cause if the server is not available.
        """
        if self.mode == "external":
            yield self._external(self.hang_seconds)
            return
        with lease_server(self._specification(), self.key, _log) as endpoint:
            yield endpoint

    def prepare(self) -> None:
        """Request the start of a managed server, and keep it until the first lease.

        Returns at once; the lease raises any error. At its end, a Dagster run gives up a server that it has not used.
        """
        if self.mode == "managed":
            with suppress(EngineError):
                ask_for_server(self._specification(), self.key, _log)

    def teardown(self) -> None:
        if self.mode == "managed":
            with suppress(EngineError):
                release_server(self.key)

    def restart(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint that replaces one that died or hangs, within a lease.

        Any number of callers cause one restart, and none if the server proves to be alive. For an external server, this
        waits. Raises `EngineError` if `max_restarts` are used up.
        """
        if self.mode == "external":
            return self._external(self.start_timeout)
        return restart_server(endpoint, _log)

    def restart_replica(self, endpoint: Endpoint, url: str, reason: str) -> Endpoint:
        """Request a restart of a managed replica at `url` if it hangs, within a lease.

        Returns the present endpoint at once. External servers are left to their owner.
        """
        if self.mode == "external":
            return endpoint
        return restart_replica(endpoint, url, reason, _log)

    def recipe_parts(self) -> dict[str, str]:
        """Return what determines results.

        That is weights, types, vLLM's version, the preparation of pictures, and our encoder.
        """
        # Without a revision, the bytes of the checkpoint's files identify it.
        files = {} if self.revision else _files(self.folder)
        return {
            "model": self.model if self.revision else "folder",
            "revision": self.revision or fingerprint({name: file_sha256(path) for name, path in files.items()}),
            "dtype": self.dtype,
            "quantization": self.quantization or "",
            "kv_cache_dtype": self.kv_cache_dtype or "",
            "vllm": self.version,
            "mm_processor": fingerprint(self.mm_processor) if self.mm_processor else "",
            "encoder": plugin.encoders(self.env),
        }

    @property
    def gpus_held(self) -> int:
        """Number of GPUs it works on; one for each external or unknown server."""
        if self.mode == "external":
            return len(self.urls)
        try:
            return len(self._gpu_names())
        except EngineError:
            return 1

    @property
    def replica_count(self) -> int:
        """Number of separate servers, managed or external."""
        if self.mode == "external":
            return len(self.urls)
        return self.replicas or self.replicas_per_gpu * max(1, self.gpus_held // self.tensor_parallel)

    @property
    def cards(self) -> tuple[str, ...]:
        """The names of this machine's GPUs that it works on; none for an external server."""
        try:
            return () if self.mode == "external" else self._gpu_names()
        except EngineError:
            return ()  # a lease reports the error

    @property
    def start_seconds(self) -> float:
        """Seconds of the last start here, else of a typical start; 0 while it runs."""
        if self.mode == "external":
            return 0.0
        try:
            folder = ServerFolder(runtime_folder() / self.key)
            if folder.state is not None and folder.state.phase is Phase.READY and folder.is_supervised:
                return 0.0
            return folder.boot_seconds or _TYPICAL_START
        except (EngineError, OSError):
            return _TYPICAL_START  # using the server reports the error

    @property
    def key(self) -> str:
        """The key of the running server; configurations with the same key share it."""
        parts = {name: value for name, value in asdict(self._specification()).items() if name not in _LIFECYCLE}
        # By these names, sizes and times a change of the checkpoint shows.
        stamp: list[tuple[str, int, int]] = []
        for name, path in _files(self.folder).items():
            status = path.stat()
            stamp.append((name, status.st_size, status.st_mtime_ns))
        return fingerprint({"protocol": _PROTOCOL, "stamp": stamp, **parts})

    def _specification(self) -> Specification:
        if sys.platform != "linux":
            raise EngineError("a managed vLLM server needs Linux; use mode external, or the cpu profile")
        lifecycle = {name: getattr(self, name) for name in _LIFECYCLE}
        picture = 0, 0
        if self.images_per_prompt:
            # A usual picture's size in pixels, within the server's limit.
            columns, rows = _PAGE if self.runner == "pooling" else _REGION
            shrink = min(1.0, (self.max_image_tokens / (columns * rows)) ** 0.5)
            picture = int(columns * shrink) * _PATCH[self.runner], int(rows * shrink) * _PATCH[self.runner]
        # The profile's number is for the card. With few cores, more processes only take them from the clients.
        api_processes = max(1, min(self.api_server_count, usable_cores() // (2 * self.replica_count)))
        return Specification(
            model=self.checkpoint,
            command=(*self.program(), *serve_arguments(self.model_copy(update={"api_server_count": api_processes}))),
            env=serve_environment(self),
            gpus=self._gpu_names(),
            tensor_parallel=self.tensor_parallel,
            share_gpu=self.share_gpu,
            replicas=self.replica_count,
            mps=self.mps,
            port=self.port,
            runner=self.answers,
            images=self.images_per_prompt > 0,
            first_picture=picture,
            first_text=min(_TEXT, self.max_model_len // 2) if self.runner == "pooling" else 0,
            # A CPU build compiles nothing, and would take long to answer.
            first_count=_FIRST * api_processes if self.gpus else 0,
            version=self.version,
            **lifecycle,
        )

    def _gpu_names(self) -> tuple[str, ...]:
        """Return whole groups of `tensor_parallel` GPUs; of `all`, the rest is left free."""
        if self.gpus != ALL_GPUS:
            return named_gpus(self.gpus)
        names = all_gpus()
        groups = len(names) // self.tensor_parallel
        if not groups:
            form = "tensor_parallel: {wanted} GPUs are asked for, and there are {count}"
            raise EngineError(form, self.tensor_parallel, len(names))
        return names[: groups * self.tensor_parallel]

    def program(self) -> tuple[str, ...]:
        """Return the command with its program's full path, as supervisors run elsewhere.

        Raises `EngineError` if it is not installed.
        """
        program = self.find_program()
        if program is None:
            name = self.command[0]
            form = "{name} is not installed here; {remedy}, or name it in the server's `command`"
            raise EngineError(form, name, INSTALL)
        return (program, *self.command[1:])

    def find_program(self) -> str | None:
        """Return the path of the command's program, or None if it is not installed."""
        # The interpreter's folder is searched too, because a virtual environment need not be activated.
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        program = shutil.which(os.path.expanduser(self.command[0]), path=places)
        return program and os.path.abspath(program)

    def python(self) -> str:
        """Return the Python interpreter beside the server's program, else this one."""
        if self.mode == "managed":
            beside = Path(self.program()[0]).with_name("python")
            if beside.is_file():
                return str(beside)
        return sys.executable

    def _external(self, seconds: float) -> Endpoint:
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if self.api_key_env and not key:
            form = "{variable}, which is to hold the key of {url}, is not set"
            raise EngineError(form, self.api_key_env, self.urls[0])
        if not key.isascii() or not key.isprintable():
            form = "{variable} has characters that no key has: copy the key of {url} again"
            raise EngineError(form, self.api_key_env, self.urls[0])
        urls = tuple(url.rstrip("/") for url in self.urls)
        every = Endpoint(urls, key, self.model, self.answers, self.images_per_prompt > 0)
        deadline = time.monotonic() + seconds
        while not (alive := [target for target in every.targets if is_alive(target, self.hang_seconds)]):
            if time.monotonic() > deadline:
                first = every.targets[0]
                try:
                    problem = f"{first.url} serves {', '.join(served_models(first))}"
                except _NO_ANSWER as error:
                    problem = f"{first.url}: {error}"
                raise EngineError("no external server serves {model}: {reason}", self.model, problem)
            time.sleep(POLL)
        for silent in set(every.targets) - set(alive):
            _log.warning("%s does not answer and is left out", silent.url)
        for target in alive if self.version else ():
            try:
                running = version(target)
            except _NO_ANSWER as error:
                form = (
                    "{url} does not say which vLLM it is ({error}), the profile says {version}; leave `version` empty "
                    "for a server that has none"
                )
                raise EngineError(form, target.url, error, self.version) from None
            # A local part (+cpu, +cu130) names the build, not the code.
            if running.partition("+")[0] != self.version.partition("+")[0]:
                form = "{url} is vLLM {running}, the profile says {version}; install that, or change `version`"
                raise EngineError(form, target.url, running, self.version)
        return replace(every, urls=tuple(target.url for target in alive))


def _files(folder: Path) -> dict[str, Path]:
    """Return a checkpoint's files by name, without a download's hidden folders."""
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            files[str(name)] = path
    return files
