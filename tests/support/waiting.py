"""Waiting for a condition."""

import time
from collections.abc import Callable
from typing import Any

SOON = 60.0
"""Seconds to wait for what takes well under one on an idle machine."""


def until(condition: Callable[[], Any], seconds: float = SOON) -> Any:
    """Wait until `condition` returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
    return value
