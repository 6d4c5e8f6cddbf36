"""The layout model in a process of its own.

Decoded pages go there through shared memory, and regions come back through a pipe. So PyTorch and the model are loaded
in parallel with the run, neither kernel launches nor the rules for regions share an interpreter with the threads that
decode pages, and ending the process frees all memory, including that of the GPU context.
"""

import gc
import mmap
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from kopub.errors import EngineError, first_line
from kopub.layout.pp_doclayout.devices import StageSeconds, batch_error, import_packages, named_devices
from kopub.layout.pp_doclayout.page_regions import SIDE, Findings, LayoutRules, ModelInput
from kopub.processes import end_child, how_it_ended, lasting_caches, start_child

if TYPE_CHECKING:
    from types import ModuleType

    from kopub.layout.pp_doclayout.replicas import Replicas

_ANSWER_SECONDS = 1800.0
"""Most seconds to load the model, and to answer a batch. Compiling takes 90 s, and three batches of 32 pages on a slow
host a few minutes; anything longer hangs, as a driver may."""
_NOT_LOADED = "the layout model was not loaded within {seconds:.0f} s, so its process was killed"
_NOT_ANSWERED = "the layout model did not answer within {seconds:.0f} s, so its process was killed"


@dataclass(frozen=True, slots=True)
class ModelStart:
    """The model that the process loads; `options` are those of `LayoutModel`."""

    repo: str
    revision: str
    device: str
    rules: LayoutRules
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelReady:
    """The message that the model is loaded and takes `under_way` batches of `batch_size` pages."""

    under_way: int
    batch_size: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the shared memory in bytes: one part per batch, holding its pages."""
        return self.under_way, self.batch_size, SIDE, SIDE, 3


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Pages (id, width, height) whose pixels are in `part` of the shared memory."""

    part: int
    pages: Sequence[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The findings of a batch, or an error, and the present state of the model.

    `seconds` are sums by stage; the other fields are those of `Replicas`.
    """

    part: int
    findings: list[Findings] | str
    batch_size: int
    fallbacks: list[str]
    memory_peak: int
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """The reason why the model was not loaded, in one line for a person."""

    why: str


def map_parts(descriptor: int, loaded: ModelReady) -> NDArray[np.uint8]:
    """Map the shared memory as uint8 (under_way, batch_size, SIDE, SIDE, 3)."""
    return np.frombuffer(mmap.mmap(descriptor, prod(loaded.shape)), np.uint8).reshape(loaded.shape)


class ModelProcess:
    """`Replicas` in a process of its own, used like it.

    The constructor waits until the model is loaded, but not for its first passes, and raises `EngineError` if it cannot
    be loaded. The process ends when this one does.
    """

    def __init__(self, start: ModelStart) -> None:
        # The process keeps compiled code for the next one, and idle threads of OpenCV and OpenMP would spin on the
        # cores that decode pages.
        torch = find_spec("torch")
        folders = [Path(torch.origin).parent] if torch is not None and torch.origin is not None else []
        environment = {**os.environ, **lasting_caches(os.environ, folders)}
        environment |= {"OPENCV_FOR_THREADS_NUM": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        program = "kopub.layout.pp_doclayout.process:main"
        # An unnamed file, in memory if the system supports it.
        in_memory = hasattr(os, "memfd_create")
        with os.fdopen(os.memfd_create("layout-pages"), "wb") if in_memory else TemporaryFile() as memory:
            self._connection, self._process = start_child(program, memory.fileno(), group=0, environment=environment)
            try:
                self._connection.send(start)
                if not self._connection.poll(_ANSWER_SECONDS):
                    raise self._hung(_NOT_LOADED)
                loaded = self._connection.recv()
            except (EOFError, ConnectionError):
                raise self._ended() from None
            if isinstance(loaded, LoadFailure):
                self._process.wait()
                raise EngineError(loaded.why)
            self.under_way, self.batch_size = loaded.under_way, loaded.batch_size
            memory.truncate(prod(loaded.shape))
            self._parts = map_parts(memory.fileno(), loaded)
        self.fallbacks: list[str] = []
        self.memory_peak = 0
        self.seconds = StageSeconds()
        self._sums: Mapping[str, float] = {}
        self._sending = threading.Lock()
        self._answers: dict[int, Future[list[Findings]]] = {}
        self._free: SimpleQueue[int] = SimpleQueue()
        for part in range(self.under_way):
            self._free.put(part)
        self._threads = ThreadPoolExecutor(self.under_way, "layout-batch")
        self._listener = threading.Thread(target=self._listen, name="layout-answers", daemon=True)
        self._listener.start()

    def submit(self, pages: Sequence[ModelInput], pixels: Sequence[NDArray[np.uint8]]) -> Future[list[Findings]]:
        """Submit pages as `Replicas.submit` does, but no more than the first `batch_size`."""
        return self._threads.submit(self._run, pages, pixels)

    def close(self) -> None:
        """End the process, dropping any batches in progress.

        This does not wait for the end; closing a GPU context alone takes 0.2 s.
        """
        with suppress(ConnectionError), self._sending:
            self._connection.send(None)
        threading.Thread(target=self._end, name="layout-end").start()

    def _end(self) -> None:
        end_child(self._process)
        self._listener.join()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._connection.close()

    def _run(self, pages: Sequence[ModelInput], pixels: Sequence[NDArray[np.uint8]]) -> list[Findings]:
        part = self._free.get()
        try:
            for place, page in zip(self._parts[part, : len(pages)], pixels, strict=True):
                place[:] = page
            answer = self._answers[part] = Future()
            with self._sending:
                self._connection.send(BatchRequest(part, [(page.page_id, page.width, page.height) for page in pages]))
            return answer.result(_ANSWER_SECONDS)
        except ConnectionError:
            raise self._ended() from None
        except TimeoutError:
            raise self._hung(_NOT_ANSWERED) from None
        finally:
            self._free.put(part)

    def _listen(self) -> None:
        try:
            while True:
                answer: BatchAnswer = self._connection.recv()
                self.batch_size, self.fallbacks = answer.batch_size, answer.fallbacks
                self.memory_peak = answer.memory_peak
                for stage, seconds in answer.seconds.items():
                    self.seconds.add(stage, seconds - self._sums.get(stage, 0.0))
                self._sums = answer.seconds
                waiting = self._answers.pop(answer.part)
                if isinstance(answer.findings, str):
                    waiting.set_exception(EngineError(answer.findings))
                else:
                    waiting.set_result(answer.findings)
        except (EOFError, ConnectionError):
            ended = self._ended()
        for waiting in list(self._answers.values()):
            waiting.set_exception(ended)

    def _hung(self, form: str) -> EngineError:
        self._process.kill()
        return EngineError(form, _ANSWER_SECONDS)

    def _ended(self) -> EngineError:
        """Return the error for a process that closed its pipe unasked."""
        code = self._process.wait()
        hint = "; SIGKILL is mostly the out-of-memory killer: see the system's log" if code == -signal.SIGKILL else ""
        return EngineError("the process of the layout model ended {how}{hint}", how_it_ended(code), hint)


_NOT_NEEDED = ("pandas", "scipy", "sklearn", "torchvision")
"""Packages that transformers imports if they are installed, for texts and losses, which takes a quarter of the time of
all imports."""


def main(connection: Connection, memory: int) -> None:
    """Load the model, then run batches until told to stop or until the pipe closes."""
    # Ctrl-C reaches the run as well, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):
        _work(connection, memory)
    sys.stdout.flush()
    sys.stderr.flush()
    # Shutting down the interpreter takes 0.7 s with PyTorch, for which a run would wait at its end.
    os._exit(0)


def _work(connection: Connection, memory: int) -> None:
    start: ModelStart = connection.recv()
    # In `sys.modules`, None means that there is no such package.
    sys.modules.update(cast("dict[str, ModuleType]", dict.fromkeys(_NOT_NEEDED)))
    try:
        devices = named_devices(start.device)
        import_packages(devices)
        gc.freeze()  # imported modules stay, so no garbage collection needs to visit them
        from kopub.layout.pp_doclayout.network import load
        from kopub.layout.pp_doclayout.replicas import Replicas

        replicas = Replicas(load(start.repo, start.revision), devices, start.rules, **start.options)
    except EngineError as error:
        return connection.send(LoadFailure(str(error)))
    # Imports, a driver, memory: whatever the cause, the run reports it in one line, and the log has the details.
    except Exception as error:
        traceback.print_exc()
        why = f"the layout model cannot be loaded: {first_line(f'{type(error).__name__}: {error}')}"
        return connection.send(LoadFailure(why))
    loaded = ModelReady(replicas.under_way, replicas.batch_size)
    connection.send(loaded)
    parts, sending = None, threading.Lock()
    while (batch := connection.recv()) is not None:
        # The parent sets the size of the memory before it sends the first batch.
        if parts is None:
            parts = map_parts(memory, loaded)
            replicas.pin(parts)
        assert isinstance(batch, BatchRequest)
        pixels = parts[batch.part, : len(batch.pages)]
        pages = [ModelInput(*page, pixels[i], seconds=0.0) for i, page in enumerate(batch.pages)]
        findings = replicas.submit(pages, pixels)
        findings.add_done_callback(partial(_answer, connection, sending, replicas, batch.part))


def _answer(
    connection: Connection, sending: threading.Lock, replicas: "Replicas", part: int, batch: Future[list[Findings]]
) -> None:
    error = batch.exception()
    findings = batch.result() if error is None else str(batch_error(error))
    try:
        with sending, suppress(ConnectionError):
            now = (replicas.batch_size, replicas.fallbacks, replicas.memory_peak, dict(replicas.seconds))
            connection.send(BatchAnswer(part, findings, *now))
    except Exception:
        # The run would wait for this answer forever, whereas it notices that the process has ended.
        traceback.print_exc()
        os._exit(1)
