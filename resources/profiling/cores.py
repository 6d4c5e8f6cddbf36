"""The busy share of this machine's cores, also where the kernel keeps no sums."""

import os
import time
from typing import NamedTuple

import psutil

SECONDS = 0.1
"""Between two readings of the kernel's sums."""
_SECONDS_OF_PROCESSES = 1.0
"""The same where every process has to be read."""


class CoreShares(NamedTuple):
    """Shares of all cores, 0 to 1: `busy` here, `stolen` by the host of a virtual machine for other work."""

    busy: float
    stolen: float = 0.0


class Cores:
    """Call `shares` every `seconds` for those since the call before."""

    def __init__(self) -> None:
        # Containers of some kinds (gVisor) show a file of zeros.
        self._sums = sum(psutil.cpu_times()) > 0
        self.seconds = SECONDS if self._sums else _SECONDS_OF_PROCESSES
        self._at, self._before = time.monotonic(), {} if self._sums else process_seconds()
        if self._sums:
            psutil.cpu_times_percent()

    def shares(self) -> CoreShares:
        """Since the last call. Where the kernel keeps no sums, nothing is known of what was stolen."""
        if self._sums:
            times = psutil.cpu_times_percent()
            stolen = getattr(times, "steal", 0.0)
            busy = 100 - times.idle - getattr(times, "iowait", 0.0) - stolen
            return CoreShares(max(0.0, busy) / 100, stolen / 100)
        now, seconds = time.monotonic(), process_seconds()
        spent = sum(max(0.0, each - self._before.get(pid, 0.0)) for pid, each in seconds.items())
        elapsed, self._at, self._before = now - self._at, now, seconds
        return CoreShares(min(1.0, spent / (elapsed * (os.cpu_count() or 1))) if elapsed else 0.0)


def process_seconds() -> dict[int, float]:
    """CPU seconds of every process that can be seen, by its id."""
    found = {}
    for process in psutil.process_iter():
        try:
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        found[process.pid] = times.user + times.system
    return found
