"""Processes that may end while a test looks at them or kills them."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil


def lives(process: psutil.Process) -> bool:
    """Return whether a process has not ended; one that its parent has not waited for has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_together(processes: Sequence[psutil.Process]) -> None:
    """Kill processes at the same moment, so that none sees another die, and wait for them."""
    send: Callable[[psutil.Process], None]
    for send in (psutil.Process.suspend, psutil.Process.kill):
        for process in processes:
            # Short-lived ones may have ended since they were listed.
            with suppress(psutil.NoSuchProcess):
                send(process)
    psutil.wait_procs(processes, timeout=10)
