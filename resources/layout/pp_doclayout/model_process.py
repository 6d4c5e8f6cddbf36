"""The layout model in a process of its own: decoded pages go there through shared memory, regions come by a pipe.

So PyTorch and the model are imported beside what the run does meanwhile, neither the launch of a kernel nor the rules
for regions share an interpreter with the threads that decode pages, and all memory is given back with the process,
that of the GPU's context too.
"""

import mmap
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from resources.child_process import end_child, how_it_ended, start_child
from resources.errors import EngineError
from resources.lasting_caches import lasting_caches
from resources.layout.pp_doclayout.model import StageSeconds
from resources.layout.pp_doclayout.page_regions import Found, PageRules
from resources.layout.pp_doclayout.preprocess import SIDE, Prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ANSWER_SECONDS = 1800.0
"""For the model to be loaded, and to answer a batch. Compiling takes 90 s, and three batches of 32 pages on a slow host
a few minutes; what takes longer hangs, as a driver may."""


@dataclass(frozen=True, slots=True)
class Start:
    """What the model is; `options` are those of `PageModel`."""

    repo: str
    revision: str
    device: str
    rules: PageRules
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The model takes batches: so many at once, of so many pages at most."""

    under_way: int
    batch_size: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the shared memory in bytes: a part for each batch under way, with the pages of a batch."""
        return self.under_way, self.batch_size, SIDE, SIDE, 3


@dataclass(frozen=True, slots=True)
class Batch:
    """Pages, by id with width and height, whose pixels lie in a part of the shared memory."""

    part: int
    pages: Sequence[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found on the pages in a part of the shared memory, or why nothing was, and how the model is by now.

    `seconds` are sums by stage; the other fields are those of `Replicas`.
    """

    part: int
    found: list[Found] | str
    batch_size: int
    fallbacks: list[str]
    memory_peak: int
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """Why there is no model, in one line for a person."""

    why: str


def parts_of(descriptor: int, loaded: Loaded) -> "NDArray[np.uint8]":
    """The shared memory as uint8 (under_way, batch_size, SIDE, SIDE, 3)."""
    return np.frombuffer(mmap.mmap(descriptor, prod(loaded.shape)), np.uint8).reshape(loaded.shape)


class ModelProcess:
    """`Replicas` in a process of its own, used like it. Raises `EngineError` when there is no model.

    It is there when the model is loaded; the first passes go on. The process ends with this one.
    """

    def __init__(self, start: Start) -> None:
        with _memory() as memory:
            self._connection, self._process = start_child(
                "resources.layout.pp_doclayout.model_worker:main", memory.fileno(), group=0, environment=_environment()
            )
            try:
                self._connection.send(start)
                if not self._connection.poll(_ANSWER_SECONDS):
                    raise self._hung("was not loaded")
                loaded = self._connection.recv()
            except (EOFError, ConnectionError):
                raise self._ended() from None
            if isinstance(loaded, NotLoaded):
                self._process.wait()
                raise EngineError(loaded.why)
            self.under_way, self.batch_size = loaded.under_way, loaded.batch_size
            memory.truncate(prod(loaded.shape))
            self._parts = parts_of(memory.fileno(), loaded)
        self.fallbacks: list[str] = []
        self.memory_peak = 0
        self.seconds = StageSeconds()
        self._sums: Mapping[str, float] = {}
        self._sending = threading.Lock()
        self._answers: dict[int, Future[list[Found]]] = {}
        self._free: SimpleQueue[int] = SimpleQueue()
        for part in range(self.under_way):
            self._free.put(part)
        self._threads = ThreadPoolExecutor(self.under_way, "layout-batch")
        self._listener = threading.Thread(target=self._listen, name="layout-answers", daemon=True)
        self._listener.start()

    def submit(self, pages: Sequence[Prepared], pixels: "Sequence[NDArray[np.uint8]]") -> Future[list[Found]]:
        """As `Replicas.submit`, of at most as many pages as `batch_size` was in the beginning."""
        return self._threads.submit(self._run, pages, pixels)

    def close(self) -> None:
        """End the process, whatever it is at: nobody wants the batches that are still under way.

        Nobody waits for it either; a GPU's context alone takes 0.2 s.
        """
        with suppress(ConnectionError), self._sending:
            self._connection.send(None)
        threading.Thread(target=self._end, name="layout-end").start()

    def _end(self) -> None:
        end_child(self._process)
        self._listener.join()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._connection.close()

    def _run(self, pages: Sequence[Prepared], pixels: "Sequence[NDArray[np.uint8]]") -> list[Found]:
        part = self._free.get()
        try:
            for place, page in zip(self._parts[part, : len(pages)], pixels, strict=True):
                place[:] = page
            answer = self._answers[part] = Future()
            with self._sending:
                self._connection.send(Batch(part, [(page.page_id, page.width, page.height) for page in pages]))
            return answer.result(_ANSWER_SECONDS)
        except ConnectionError:
            raise self._ended() from None
        except TimeoutError:
            raise self._hung("did not answer") from None
        finally:
            self._free.put(part)

    def _listen(self) -> None:
        try:
            while True:
                self._take(self._connection.recv())
        except (EOFError, ConnectionError):
            ended = self._ended()
        for answer in list(self._answers.values()):
            answer.set_exception(ended)

    def _take(self, answer: Answer) -> None:
        self.batch_size, self.fallbacks, self.memory_peak = answer.batch_size, answer.fallbacks, answer.memory_peak
        for stage, seconds in answer.seconds.items():
            self.seconds.add(stage, seconds - self._sums.get(stage, 0.0))
        self._sums = answer.seconds
        waiting = self._answers.pop(answer.part)
        if isinstance(answer.found, str):
            waiting.set_exception(EngineError(answer.found))
        else:
            waiting.set_result(answer.found)

    def _hung(self, what: str) -> EngineError:
        self._process.kill()
        return EngineError(f"the layout model {what} within {_ANSWER_SECONDS:.0f} s, so its process was killed")

    def _ended(self) -> EngineError:
        """What to say of a process that has closed its pipe without being told to."""
        code = self._process.wait()
        hint = "; SIGKILL is mostly the out-of-memory killer: see the system's log" if code == -signal.SIGKILL else ""
        return EngineError(f"the process of the layout model ended {how_it_ended(code)}{hint}")


def _environment() -> dict[str, str]:
    """Of the process: what it compiles, of Python and of the model, is there for the next one."""
    torch = find_spec("torch")
    folders = [Path(torch.origin).parent] if torch is not None and torch.origin is not None else []
    # Threads of OpenCV would wait for work at full load, on the cores of those that decode pages.
    return {**os.environ, **lasting_caches(os.environ, folders), "OPENCV_FOR_THREADS_NUM": "1"}


def _memory() -> IO[bytes]:
    """A file that no folder has: in memory where the system can."""
    return os.fdopen(os.memfd_create("layout-pages"), "wb") if hasattr(os, "memfd_create") else TemporaryFile()
