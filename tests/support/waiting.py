"""Waiting until something is true."""

import time
from collections.abc import Callable
from typing import Any

SOON = 60.0
"""Seconds for what takes well under one on an idle machine."""


def until(condition: Callable[[], Any], seconds: float = SOON) -> Any:
    """Wait until `condition` is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
    return value
