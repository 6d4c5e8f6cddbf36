"""Commands in processes of their own, which begin with the platform imported."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from resources.config.settings import ROOT

CONTEXT = multiprocessing.get_context("forkserver")
"""Its server imports what follows once, and every process is a fork of it."""
CONTEXT.set_forkserver_preload(["tests.support.preloaded"])


def run(
    command: Sequence[str], environment: Mapping[str, str], said_to_it: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run an installed command, or `python -c PROGRAM` or `python -` with the program as its input.

    As `subprocess.run` does in the folder of the project, with `environment` and nothing else of this process's.
    The settings of other libraries that are read at their import are those of the server.
    """
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(said_to_it)
        process = CONTEXT.Process(target=_command, args=(list(command), dict(environment), list(map(str, streams))))
        process.start()
        process.join()
        assert process.exitcode is not None
        said, complained = (path.read_text() if path.exists() else "" for path in streams[1:])
        return subprocess.CompletedProcess(list(command), process.exitcode, said, complained)


def _command(command: Sequence[str], environment: Mapping[str, str], streams: Sequence[str]) -> None:
    for number, (path, flags) in enumerate(zip(streams, _OPENED, strict=True)):
        os.dup2(os.open(path, flags), number)
    sys.stdin = open(0)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
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
        # A command may have said how errors of this process are shown.
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


_OPENED = (os.O_RDONLY, *2 * (os.O_WRONLY | os.O_CREAT | os.O_APPEND,))


def _python(arguments: Sequence[str]) -> None:
    if arguments[0] == "-c":
        program, sys.argv = arguments[1], ["-c", *arguments[2:]]
    else:
        program, sys.argv = sys.stdin.read(), ["-"]
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
