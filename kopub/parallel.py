"""Work in threads over a stream, a bounded number at once, or for one value."""

import gc
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, TypeVar

from kopub.processes import keep_blocks

In = TypeVar("In")
Out = TypeVar("Out")


_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The microseconds that all cores of a Linux container together have in each period, or "max"."""


def usable_cores() -> int:
    """Return how many cores this process may use, by its affinity and its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text("ascii").split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores  # no container, or one without a quota


def of_two_cores(threads: int) -> float:
    """Return how long work takes on `threads` threads, relative to two.

    0 means one thread per core.
    """
    return 2 / (threads or usable_cores())


def bounded_map(
    function: Callable[[In], Out], items: Iterable[In], threads: int, ahead: int = 0
) -> Generator[Out, None, None]:
    """Yield `function(item)` for every item, in order of completion.

    0 `threads` means one per core. At most `2 * threads + ahead` items are taken but not yet yielded, so a stream of
    decoded pages never fills the memory; `ahead` is for a caller that comes back late. An exception of `function`
    reaches the caller; if the caller stops early, no further items are started.
    """
    threads = threads or usable_cores()
    stream = iter(items)
    # A queue, since each wait for one of many futures would cost time for all of them.
    done: SimpleQueue[Future[Out]] = SimpleQueue()
    running: set[Future[Out]] = set()
    with ThreadPoolExecutor(threads) as pool:

        def begin(count: int) -> None:
            for item in islice(stream, count):
                running.add(future := pool.submit(function, item))
                future.add_done_callback(done.put)

        try:
            begin(2 * threads + ahead)
            while running:
                running.remove(future := done.get())
                yield future.result()
                begin(1)
        finally:
            for future in running:
                future.cancel()


def ordered_map(function: Callable[[In], Out], items: Iterable[In], threads: int = 0) -> Generator[Out, None, None]:
    """Do what `bounded_map` does, in the order of the items."""
    threads = threads or usable_cores()
    stream = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        running = deque(pool.submit(function, item) for item in islice(stream, 2 * threads))
        try:
            while running:
                yield running.popleft().result()
                running.extend(pool.submit(function, item) for item in islice(stream, 1))
        finally:
            for future in running:
                future.cancel()


@contextmanager
def closed_after(items: Iterable[Out]) -> Iterator[Iterator[Out]]:
    """Iterate over `items`, and close them at the end if they are a generator.

    Unlike `closing` around a generator of its own, it adds no frame between a loop and what it takes.
    """
    stream = iter(items)
    try:
        yield stream
    finally:
        if isinstance(stream, Generator):
            stream.close()


class BackgroundTask(Generic[Out]):
    """A value that a thread makes while other work goes on.

    The thread does not keep the process alive.
    """

    def __init__(self, make: Callable[[], Out]) -> None:
        self._value: Future[Out] = Future()
        threading.Thread(target=self._run, args=(make,), daemon=True).start()

    def _run(self, make: Callable[[], Out]) -> None:
        try:
            self._value.set_result(make())
        except BaseException as error:
            self._value.set_exception(error)

    def result(self) -> Out:
        """Wait for the value and return it; raises what making it raised."""
        return self._value.result()

    @property
    def done(self) -> bool:
        """True once the value has been made, or making it has failed."""
        return self._value.done()

    def when_done(self, function: Callable[[], object]) -> None:
        """Call `function` once `done` is true, which may be at once."""
        self._value.add_done_callback(lambda _: function())


SWITCH_INTERVAL = 0.0005
"""Seconds for which a decoding thread waits for the interpreter while another thread runs Python. With Python's default
of 5 ms, the waits left half of one of 16 cores idle."""


@contextmanager
def tuned_for_decoding() -> Iterator[None]:
    """Prepare the process for one decoding thread per core, then restore it."""
    import cv2
    from threadpoolctl import threadpool_limits

    # For each page three blocks of its size are freed, by as many threads as there are cores.
    keep_blocks()
    # A garbage collection would go through everything imported, 550,000 objects with PyTorch: 0.3 s in which no thread
    # decodes.
    gc.freeze()
    threads, interval = cv2.getNumThreads(), sys.getswitchinterval()
    # Threads of OpenCV and BLAS would busy-wait beside the decoding threads.
    cv2.setNumThreads(1)
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        sys.setswitchinterval(interval)
        cv2.setNumThreads(threads)
