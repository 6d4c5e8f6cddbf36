"""Waiting for a condition."""

import time
from collections.abc import Callable
from typing import Any

SOON = 60.0
"""Seconds to wait for what takes well under one on an idle machine."""


def until(
    condition: Callable[[], Any],
    seconds: float = SOON,
    pause: float = 0.02,
    told: Callable[[], str] = lambda: "it never came to that",
) -> Any:
    """Wait until `condition` returns something true, and return that; else fail with what `told` returns."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, told()
        time.sleep(pause)
    return value
