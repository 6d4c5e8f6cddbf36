"""Times of the steps of OCR, recorded while `kopub profile` watches.

Every process and thread of a run appends to one file, one line per call.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kopub.recognition.base import STEP_TIMES

STEPS = ("decode", "crop", "encode", "request", "answer", "read")
"""The steps in order: `read` is Tesseract's, and the three before it are a model server's."""

_file = os.environ.get(STEP_TIMES)
_descriptor = os.open(_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if _file else None


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Record the time of the context's body as a call of `step`."""
    if _descriptor is None:
        yield
        return
    began = time.perf_counter()
    try:
        yield
    finally:
        keep(step, time.perf_counter() - began)


def keep(step: str, seconds: float) -> None:
    """Record a call of `step` that took `seconds`."""
    if _descriptor is not None:
        # A short line goes out in a single write, so that lines of other processes cannot mix with it.
        os.write(_descriptor, f"{step} {seconds:.6f}\n".encode())


@dataclass(frozen=True, slots=True)
class StepTime:
    """The calls of one step: their number, total seconds, mean and two quantiles.

    `share` is relative to all steps; threads and requests overlap, so the seconds add up to more than the clock shows.
    """

    step: str
    calls: int
    seconds: float
    share: float
    mean: float
    p50: float
    p95: float


def step_times(file: Path) -> list[StepTime]:
    """Return the steps in `file` in order; none if nothing was recorded."""
    calls: dict[str, list[float]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        step, _, time_of_call = line.partition(" ")
        calls.setdefault(step, []).append(float(time_of_call))
    total = sum(map(sum, calls.values())) or 1.0
    steps: list[StepTime] = []
    for step in STEPS:
        if seconds := calls.get(step):
            spent, quantiles = sum(seconds), np.quantile(seconds, (0.5, 0.95))
            steps.append(StepTime(step, len(seconds), spent, spent / total, float(np.mean(seconds)), *quantiles))
    return steps
