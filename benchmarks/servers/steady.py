"""The part of a benchmark's answers that a server's lasting rate is taken from, and when they came."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from resources.vllm.endpoint import Endpoint, sum_by_name

_EDGE = 0.15
"""Share of the answers that is left out at either end, at least."""
_PAUSE = 0.2
"""Seconds from one look at a server's counter to the next."""


def require_enough(answers: int, in_flight: int) -> None:
    """Raise `SystemExit` where so many answers give no lasting rate: before a server is started for them."""
    if answers - 2 * max(int(_EDGE * answers), in_flight) < max(2, in_flight // 2):
        wanted = 3 * in_flight
        raise SystemExit(
            f"{answers} answers are too few for a lasting rate with {in_flight} in flight: ask for {wanted} or more"
        )


def steady_part(answers: Sequence[tuple[float, float]], in_flight: int) -> list[tuple[float, float]]:
    """Answers (moment, amount) by time, without the first and the last.

    A server that has `in_flight` requests begins them all before it has answered one, and begins none while it answers
    the last: with those answers counted, one that reads 172 regions a second seems to read 246 of 2,240 regions.
    Raises `SystemExit` where too few are left.
    """
    ordered = sorted(answers)
    require_enough(len(ordered), in_flight)
    edge = max(int(_EDGE * len(ordered)), in_flight)
    return ordered[edge : len(ordered) - edge]


@contextmanager
def looks(endpoint: Endpoint, counter: str) -> Iterator[list[tuple[float, float]]]:
    """The counts of a server by moment, polled until the end."""
    looked: list[tuple[float, float]] = []
    ended = threading.Event()

    def look() -> None:
        looked.append((sum_by_name(endpoint.samples())[counter], time.monotonic()))

    def watch() -> None:
        while not ended.wait(_PAUSE):
            look()

    look()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield looked
    finally:
        ended.set()
        watcher.join()
    look()
    # A server counts an answer after it has sent it.
    while looked[-1][0] > looked[-2][0]:
        time.sleep(_PAUSE)
        look()


@contextmanager
def answer_times(endpoint: Endpoint) -> Iterator[list[float]]:
    """The times of the server's answers, filled at the end.

    Of whole pages: those that are begun together end together, so that the pages' own times come in waves.
    """
    times: list[float] = []
    with looks(endpoint, "vllm:request_success_total") as looked:
        yield times
    answers, moments = zip(*looked, strict=True)
    times.extend(np.interp(np.arange(answers[0] + 1, answers[-1] + 1), answers, moments))


def lasting_rate(looked: Sequence[tuple[float, float]]) -> float:
    """Amount a second between the first and the last 15 % of what a server counted.

    Of tokens it tells what answers of one length cannot: they end in waves, a few of which are no rate.
    """
    counts, moments = np.array(looked).T
    ends = counts[0] + np.array([_EDGE, 1 - _EDGE]) * (counts[-1] - counts[0])
    first, last = np.interp(ends, counts, moments)
    return float((ends[1] - ends[0]) / (last - first))
