"""Work in threads: a function over a stream, with a bounded number in flight, and one value that is made meanwhile."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def of_two_cores(threads: int) -> float:
    """How much longer work takes on so many threads than on two; 0 `threads` are one for each core."""
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
    """`bounded_map` in the order of the items."""
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


class Begun(Generic[Out]):
    """A value that a thread of its own makes while other work goes on. The thread does not keep the process alive."""

    def __init__(self, make: Callable[[], Out]) -> None:
        self._value: Future[Out] = Future()
        threading.Thread(target=self._run, args=(make,), daemon=True).start()

    def _run(self, make: Callable[[], Out]) -> None:
        try:
            self._value.set_result(make())
        except BaseException as error:
            self._value.set_exception(error)

    def result(self) -> Out:
        """The value, waited for; raises what making it raised."""
        return self._value.result()

    @property
    def done(self) -> bool:
        """Whether the value is there, or its making has failed."""
        return self._value.done()

    def when_done(self, function: Callable[[], object]) -> None:
        """Call `function` when the value is there or its making failed, at once if so already."""
        self._value.add_done_callback(lambda _: function())
