"""A process that guards a program, and ends all of its descendants when it ends.

`python -m kopub.vllm.supervisor.process_guard FOLDER COMMAND...`, with a pipe as standard input that only the
supervisor holds open. End of file means that the supervisor is gone or wants the server stopped; a byte before it means
at once. This module uses only the standard library.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

GUARD_SECONDS = 30.0
"""Seconds for a guard to end, more than it takes at worst: its grace period, then ten seconds of killing."""
_ROOT = Path(__file__).resolve().parents[3]


class GuardedProcess:
    """A program that ends with the supervisor, along with everything that it started."""

    def __init__(
        self, folder: Path, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes], locks: Sequence[int]
    ) -> None:
        """Start the program in `folder`; the `locks` are held until its last process ends."""
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "kopub.vllm.supervisor.process_guard", str(folder), *command],
            cwd=_ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=locks,
            start_new_session=True,
        )

    @property
    def session(self) -> tuple[int, int]:
        """The session's leader and its start time."""
        return self._guard.pid, start_time(self._guard.pid) or 0

    @property
    def status(self) -> int | None:
        """The exit status of the program, or None while it runs."""
        return self._guard.poll()

    def stop(self, at_once: bool = False) -> None:
        """Stop the program and everything it started, with SIGTERM first unless `at_once`."""
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            if at_once:
                self._guard.stdin.write(b"!")
            self._guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(GUARD_SECONDS)
        self._guard.kill()
        self._guard.wait()
        kill_session(self._guard.pid)


GRACE = 15.0
"""Seconds between SIGTERM and SIGKILL; vLLM takes 1 s, or 6 s with several API processes."""


def main(folder: str, command: list[str]) -> int:
    """Run `command` until it ends or the pipe says so; return its exit status.

    The status is 128 + n for signal n.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Only the pipe stops the guard. A handler, unlike SIG_IGN, is not inherited by the server.
        signal.signal(number, lambda *_: None)
    server = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 this process has one thread
    )
    ended = os.pidfd_open(server.pid)
    readable, _, _ = select.select([sys.stdin, ended], [], [])
    if ended not in readable and not os.read(sys.stdin.fileno(), 1):
        server.terminate()
        select.select([ended], [], [], GRACE)
    all_ended = kill_session(os.getpid())
    status = server.wait() if all_ended else 1
    return status if status >= 0 else 128 - status


_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_REAP_SECONDS = 10.0
"""Seconds for killed processes to end, which may spend time in the GPU driver to free their memory."""
_START_TIME = 19
"""Index of the start time in /proc/PID/stat, counted after the command name; field 22 in proc(5)."""


def die_with_parent() -> Callable[[], None]:
    """Return a `preexec_fn` that makes the kernel kill the new process with its parent."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


def start_time(pid: int) -> int | None:
    """Return a living process's start in clock ticks since boot, else None."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[_START_TIME])


def kill_session(session: int, only: Callable[[int], bool] = lambda pid: True) -> bool:
    """Kill the members of a session until none is left; return False if some stay.

    Only processes for which `only` is true are meant, and never the leader and the caller. A session contains every
    descendant of its leader, whatever process groups they created, and its number is not reused for other processes
    while it has a member.
    """
    deadline = time.monotonic() + _REAP_SECONDS
    while True:
        members: list[int] = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit() or int(entry.name) in (session, os.getpid()):
                continue
            pid = int(entry.name)
            with suppress(ProcessLookupError):
                if os.getsid(pid) == session and start_time(pid) is not None and only(pid):
                    members.append(pid)
        if not members:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def kill_orphans(leader: int, started: int, programs: Collection[str]) -> bool:
    """Kill what a session's leader left behind; return False if some stay.

    `started` distinguishes the leader from a later process with the same number, and `programs` (parts of command
    lines, in lower case) its descendants from those of such a process.
    """
    now = start_time(leader)
    if now == started:
        os.kill(leader, signal.SIGKILL)
    elif now is not None:
        return True

    def is_of_server(pid: int) -> bool:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").lower()
        except OSError:
            return False
        return any(program in command for program in programs)

    return kill_session(leader, is_of_server)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
