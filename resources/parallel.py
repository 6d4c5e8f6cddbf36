"""Work in threads: over a stream, or for one value.

A function over a stream has a bounded number in flight; one value is made meanwhile.
"""

import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from queue import SimpleQueue
from typing import Generic, TypeVar

from resources.processes import keep_blocks

In = TypeVar("In")
Out = TypeVar("Out")


def of_two_cores(threads: int) -> float:
    """Return how long work takes on so many threads, relative to two.

    0 `threads` are one for each core.
    """
    return 2 / (threads or os.cpu_count() or 1)


def bounded_map(
    function: Callable[[In], Out], items: Iterable[In], threads: int, ahead: int = 0
) -> Generator[Out, None, None]:
    """Yield `function(item)` for every item, in order of completion.

    0 `threads` are one for each core. At most `2 * threads + ahead` items are taken that were not yielded, so a stream
    of decoded pages never fills the memory; `ahead` are for a caller that comes back late. An exception of `function`
    reaches the caller; when the caller stops early, nothing that has not started is run.
    """
    threads = threads or os.cpu_count() or 1
    stream = iter(items)
    # A queue, since to wait for one of many futures costs each time for all of them.
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
    """Do as `bounded_map`, in the order of the items."""
    threads = threads or os.cpu_count() or 1
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
        """Return the value, waited for; raises what making it raised."""
        return self._value.result()

    @property
    def done(self) -> bool:
        """True once the value is there, or its making has failed."""
        return self._value.done()

    def when_done(self, function: Callable[[], object]) -> None:
        """Call `function` when the value is there or failed.

        It is called at once if so already.
        """
        self._value.add_done_callback(lambda _: function())


SWITCH_INTERVAL = 0.0005
"""Seconds for which a thread that decodes waits for the interpreter while another runs Python. With Python's own 5 ms,
half of one of 16 cores was idle for it."""


@contextmanager
def tuned_for_decoding() -> Iterator[None]:
    """Prepare the process for threads that decode pages, then restore it.

    There is one for each core.
    """
    import cv2
    from threadpoolctl import threadpool_limits

    # Three blocks as large as a page are freed for each page, by as many threads as there are cores.
    keep_blocks()
    # A collection of garbage would go through all that is imported, 550,000 objects with PyTorch: 0.3 s in which no
    # thread decodes.
    gc.freeze()
    threads, interval = cv2.getNumThreads(), sys.getswitchinterval()
    # Threads of OpenCV and of BLAS would wait for work, at full load, beside those that decode.
    cv2.setNumThreads(1)
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        sys.setswitchinterval(interval)
        cv2.setNumThreads(threads)
