"""The `kopub` command line."""

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from dotenv import load_dotenv
from rich.console import Console

from kopub.cli.console import said, say
from kopub.cli.on_demand import COMMANDS, CommandsOnDemand, placeholder
from kopub.cli.options import open_settings
from kopub.errors import STOPPED, STOPPED_BY_HAND, KopubError, StoppedByHand, visible
from kopub.states import phrase

_ENV = Path(__file__).resolve().parents[2] / ".env"
_KEEP_PAGES = ("run", "index", "evaluate")
"""Commands that continue where they were stopped."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_DISK = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY")
"""Errors of SQLite that the disk causes, and no damage of its files."""

app = typer.Typer(
    cls=CommandsOnDemand,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"kopub {version('kopub')}")
        raise typer.Exit


@app.callback()
def kopub(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Turn PDFs and scans into searchable text, markdown and vectors, and release them as a dataset."""


for command in COMMANDS:
    app.command(command.name, rich_help_panel=command.panel, help=command.summary)(placeholder)


def main() -> None:
    """Run the command; an error that a person can correct is reported in one line."""
    _open_closed_streams()
    load_dotenv(_ENV)
    for stream in (sys.stdout, sys.stderr):
        # A terminal in EUC-KR or ASCII lacks some characters of pages.
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):
                stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except StoppedByHand as stopped:
        _end(visible(said(str(stopped))), STOPPED_BY_HAND)
    except KopubError as error:
        _end(_error_line(str(error)), 1)
    except SystemExit as ended:
        if ended.code == STOPPED_BY_HAND:
            _end(said(STOPPED if sys.argv[1:2] and sys.argv[1] in _KEEP_PAGES else "stopped"), STOPPED_BY_HAND)
        raise
    except Exception as error:
        # Libraries for object stores have their own errors, so the store is checked for a problem.
        problem = _problem_with_files(error)
        if problem is None:
            try:
                open_settings()
            except KopubError as unusable:
                problem = str(unusable)
            else:
                raise
        _end(_error_line(problem), 1, error)


def _open_closed_streams() -> None:
    """Redirect standard streams to nowhere if they were closed at the start.

    The next opened files would otherwise get their descriptors, and prints would be written into them.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _problem_with_files(error: Exception) -> str | None:
    """Return what to do about an unusable file or a damaged Dagster history."""
    if isinstance(error, OSError) and not error.filename and error.errno in _NO_ROOM:
        return phrase(
            "the output or a temporary file cannot be written: {strerror}; free some space and run again",
            error.strerror,
        )
    if isinstance(error, OSError) and error.filename:
        return phrase(
            "{filename}: {error}; check the file, its permissions and the free space on its disk, and run again",
            error.filename,
            error.strerror or type(error).__name__,
        )
    if "sqlalchemy" in sys.modules:
        from sqlalchemy.exc import DatabaseError

        if isinstance(error, DatabaseError):
            home = os.environ.get("DAGSTER_HOME", ".dagster")
            if getattr(error.orig, "sqlite_errorname", "").startswith(_OF_DISK):
                return phrase(
                    "Dagster's history in {home} cannot be used ({error}): check the free space and the permissions "
                    "there, and run again",
                    home,
                    error.orig,
                )
            return phrase(
                "Dagster's history in {home} cannot be used ({error}): move that folder away and run again; no tables "
                "or releases are in it",
                home,
                error.orig,
            )
    return None


def _error_line(problem: str) -> str:
    """Return the line for a problem, wholly in one language."""
    line = said(problem)
    return f"{said('Error') if line != problem else 'Error'}: {visible(line)}"


def _end(line: str, status: int, error: Exception | None = None) -> NoReturn:
    say(Console(stderr=True), line)
    raise SystemExit(status) from error
