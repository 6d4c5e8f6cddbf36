"""Processes that must not outlive their purpose. Linux only; standard library only."""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_REAP_SECONDS = 10.0
"""A killed process may spend seconds in the GPU driver giving its memory back."""
_START_TIME = 19
"""Field of /proc/PID/stat, counted after the command name; proc(5) calls it 22."""


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn`: the kernel kills the new process as soon as the one that starts it is gone, however it ends."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


def start_time(pid: int) -> int | None:
    """Clock ticks from the machine's start to the process's; None when there is no such process or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[_START_TIME])


def session_members(session: int) -> list[int]:
    """Living processes of a session, its leader and the caller left out."""
    members: list[int] = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) in (session, os.getpid()):
            continue
        try:
            if os.getsid(int(entry.name)) == session and start_time(int(entry.name)) is not None:
                members.append(int(entry.name))
        except ProcessLookupError:
            continue
    return members


def kill_session(session: int, only: Callable[[int], bool] = lambda pid: True) -> bool:
    """SIGKILL the members of a session until none is left; False when some would not go.

    A session holds every descendant of its leader, whatever process groups they made for
    themselves, and keeps its number from being given to other processes while it has a member.
    """
    deadline = time.monotonic() + _REAP_SECONDS
    while members := [pid for pid in session_members(session) if only(pid)]:
        if time.monotonic() > deadline:
            return False
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    return True


def kill_orphans(leader: int, started: int, programs: Collection[str]) -> bool:
    """End what a session's leader left behind when it could not do so itself; False when some would not go.

    `started` tells the leader from a later process of the same number, `programs` (parts of
    command lines, in lower case) its descendants from those of such a one.
    """
    now = start_time(leader)
    if now == started:
        os.kill(leader, signal.SIGKILL)
    elif now is not None:
        return True
    return kill_session(leader, lambda pid: any(program in _command_line(pid).lower() for program in programs))


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
