"""A program below a guard, as its supervisor handles it. Standard library only."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from resources.vllm.supervisor.processes import kill_session, start_time

GUARD_SECONDS = 30.0
"""Longer than a guard takes at worst: its grace, then ten seconds of killing."""
_ROOT = Path(__file__).resolve().parents[3]


class Guarded:
    """A program that ends with the supervisor, however that ends, and takes everything it started along."""

    def __init__(
        self, folder: Path, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes], kept: Sequence[int]
    ) -> None:
        """Start it in `folder`; the locks `kept` stay held until its last process is gone."""
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "resources.vllm.supervisor.guard", str(folder), *command],
            cwd=_ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=kept,
            start_new_session=True,
        )

    @property
    def session(self) -> tuple[int, int]:
        """Leader and its start time."""
        return self._guard.pid, start_time(self._guard.pid) or 0

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._guard.poll()

    def stop(self, at_once: bool = False) -> None:
        """Stop it and everything it started; SIGTERM first unless `at_once`."""
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
