"""Commands as forks of a process that has imported the platform."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kopub.config.settings import ROOT

CONTEXT = multiprocessing.get_context("forkserver")
"""A fork server that imports the preloaded module once; every process is a fork of it."""
CONTEXT.set_forkserver_preload(["tests.support.processes.preloaded"])


def inherited() -> dict[str, str]:
    """Return the environment without settings of the platform and of Dagster, but for the folder of locks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KOPUB_", "DAGSTER_"))}
    return kept | {name: os.environ[name] for name in ("KOPUB_RUNTIME",) if name in os.environ}


def run(
    command: Sequence[str], environment: Mapping[str, str], said_to_it: str = "", folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run an installed command, `python -c PROGRAM`, or `python -` with a program as input.

    Like `subprocess.run`, in `folder` (by default the project's) and with `environment` only. Libraries that read their
    settings at import have those of the fork server.
    """
    with _started(command, environment, said_to_it, cwd=folder) as running:
        return running.ended()


@contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], terminal: Path | None = None
) -> Iterator["Running"]:
    """Start a command in its own process group, as a shell does, and yield it.

    Its output goes to `terminal` if one is given.
    """
    with _started(command, environment, own_group=True, terminal=terminal) as running:
        try:
            yield running
        finally:
            running.process.kill()
            running.process.join()


@dataclass(frozen=True)
class Running:
    """A running command with its standard output and standard error."""

    command: Sequence[str]
    process: Any
    out: Path
    err: Path

    @property
    def at_work(self) -> bool:
        return self.process.is_alive()

    @property
    def said(self) -> str:
        return self.out.read_text() if self.out.exists() else ""

    def interrupt(self) -> None:
        """Send SIGINT to all processes of the group, as Ctrl-C does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        self.process.join(timeout)
        assert self.process.exitcode is not None, "it has not ended"
        complained = self.err.read_text() if self.err.exists() else ""
        return subprocess.CompletedProcess(list(self.command), self.process.exitcode, self.said, complained)


@contextmanager
def _started(
    command: Sequence[str],
    environment: Mapping[str, str],
    said_to_it: str = "",
    own_group: bool = False,
    terminal: Path | None = None,
    cwd: Path = ROOT,
) -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(said_to_it)
        if terminal is not None:
            streams[1] = terminal
        given = (list(command), dict(environment), list(map(str, streams)), own_group, str(cwd))
        process = CONTEXT.Process(target=_command, args=given)
        process.start()
        yield Running(command, process, *streams[1:])


def _command(
    command: Sequence[str], environment: Mapping[str, str], streams: Sequence[str], own_group: bool, cwd: str
) -> None:
    if own_group:
        os.setpgrp()
    for number, (path, flags) in enumerate(zip(streams, _OPENED, strict=True)):
        os.dup2(os.open(path, flags), number)
    sys.stdin = open(0)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if environment.get("PYTHONWARNINGS") == "ignore":
        warnings.simplefilter("ignore")
    name, *arguments = command
    sys.argv = [name, *arguments]
    try:
        if Path(name).name == "python":
            _python(arguments)
        else:
            found = next(iter(metadata.entry_points(group="console_scripts", name=Path(name).name)))
            sys.exit(found.load()())
    except Exception as error:
        # A command may have set its own hook for uncaught errors.
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


_OPENED = (os.O_RDONLY, *2 * (os.O_WRONLY | os.O_CREAT | os.O_APPEND,))


def _python(arguments: Sequence[str]) -> None:
    if arguments[0] == "-c":
        program, sys.argv = arguments[1], ["-c", *arguments[2:]]
    else:
        program, sys.argv = sys.stdin.read(), ["-"]
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
