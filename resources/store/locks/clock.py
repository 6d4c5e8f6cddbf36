"""A clock that nobody sets, and that goes on while the machine sleeps."""

import time

_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds since some moment of the past, the same for all of this machine. No two machines are compared by it."""
    return time.monotonic() if _COUNTS_SLEEP is None else time.clock_gettime(_COUNTS_SLEEP)
