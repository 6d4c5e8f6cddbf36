"""A server's sustained rate, from the times of a benchmark's answers."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from kopub.vllm.endpoint import Endpoint, sum_by_name

_EDGE = 0.15
"""Least share of the answers that is left out at each end."""
_PAUSE = 0.2
"""Seconds between two reads of a server's counter."""


def require_enough(answers: int, in_flight: int) -> None:
    """Raise `SystemExit` if there are too few answers for a sustained rate.

    It is called before a server is started for them.
    """
    if answers - 2 * max(int(_EDGE * answers), in_flight) < max(2, in_flight // 2):
        wanted = 3 * in_flight
        raise SystemExit(
            f"{answers} answers are too few for a lasting rate with {in_flight} in flight: ask for {wanted} or more"
        )


def steady_part(answers: Sequence[tuple[float, float]], in_flight: int) -> list[tuple[float, float]]:
    """Return the answers (moment, amount) by time, without the first and the last.

    A server with `in_flight` requests begins them all before it answers one, and begins none while it answers the last:
    if those answers counted, a server that reads 172 regions a second would seem to read 246, with 2,240 regions.
    Raises `SystemExit` if too few are left.
    """
    ordered = sorted(answers)
    require_enough(len(ordered), in_flight)
    edge = max(int(_EDGE * len(ordered)), in_flight)
    return ordered[edge : len(ordered) - edge]


@contextmanager
def looks(endpoint: Endpoint, counter: str) -> Iterator[list[tuple[float, float]]]:
    """Yield the list of (count, moment) of a server's counter, polled until the end."""
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
    # A server counts an answer only after sending it.
    while looked[-1][0] > looked[-2][0]:
        time.sleep(_PAUSE)
        look()


@contextmanager
def answer_times(endpoint: Endpoint) -> Iterator[list[float]]:
    """Yield the list of times of the server's answers, which is filled at the end.

    It is for whole pages: those that begin together end together, so that the pages' own times come in waves.
    """
    times: list[float] = []
    with looks(endpoint, "vllm:request_success_total") as looked:
        yield times
    answers, moments = zip(*looked, strict=True)
    times.extend(np.interp(np.arange(answers[0] + 1, answers[-1] + 1), answers, moments))


def lasting_rate(looked: Sequence[tuple[float, float]]) -> float:
    """Return a server's count a second, without the first and last 15 %.

    For tokens it works even if all answers have the same length, and so end in waves, a few of which give no rate.
    """
    counts, moments = np.array(looked).T
    ends = counts[0] + np.array([_EDGE, 1 - _EDGE]) * (counts[-1] - counts[0])
    first, last = np.interp(ends, counts, moments)
    return float((ends[1] - ends[0]) / (last - first))
