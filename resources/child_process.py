"""A process of this project at the other end of a pipe."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

STOP_SECONDS = 10.0
"""For a process to end when it is told to; then it is killed."""
_BOOT = (
    "import sys; from importlib import import_module; from multiprocessing.connection import Connection; "
    "main, pipe, further, *sys.path = sys.argv[1:]; module, _, name = main.partition(':'); "
    "getattr(import_module(module), name)(Connection(int(pipe)), *map(int, further.split()))"
)


def start_child(
    main: str, *descriptors: int, group: int | None = None, environment: Mapping[str, str] | None = None
) -> "tuple[Connection, subprocess.Popen[bytes]]":
    """Start `module:function` in a process, which is called with its end of the pipe and `descriptors`.

    Unlike one that `multiprocessing` spawns, it does not import this process's main module: that of a Dagster run
    imports all of Dagster, and a script that reads a file may have no guard. In a process `group` of its own (0),
    Ctrl-C does not reach it.
    """
    ours, theirs = Pipe()
    # Only the process holds its end after this block, so its death closes the pipe.
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, main, str(theirs.fileno()), " ".join(map(str, descriptors)), *_path()],
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=(theirs.fileno(), *descriptors),
            process_group=group,
        )
    return ours, process


def end_child(process: "subprocess.Popen[bytes]") -> None:
    """Wait until a process that was told to end has ended; kill one that takes longer."""
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def how_it_ended(code: int) -> str:
    """By which signal, or with which status, as `Popen.returncode` has it."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"


def _path() -> list[str]:
    """Where this process finds modules, but for folders of packages that it finds itself.

    OpenCV has its folder there while another thread imports it, and a `typing` in it.
    """
    path = list(sys.path)
    return [each for each in path if str(Path(each).parent) not in path or not Path(each, "__init__.py").exists()]
