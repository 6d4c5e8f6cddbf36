"""One way to run a function over a stream with several threads and a bounded number in flight."""

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def bounded_map(function: Callable[[In], Out], items: Iterable[In], threads: int) -> Generator[Out, None, None]:
    """Yield `function(item)` for every item, in order of completion.

    0 `threads` are one for each core. At most `2 * threads` items are taken ahead, so a stream of
    decoded pages never fills the memory. An exception of `function` reaches the caller; when the
    caller stops early, nothing that has not started is run.
    """
    threads = threads or os.cpu_count() or 1
    stream = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        running: set[Future[Out]] = {pool.submit(function, item) for item in islice(stream, 2 * threads)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                    running.update(pool.submit(function, item) for item in islice(stream, 1))
        finally:
            for future in running:
                future.cancel()
