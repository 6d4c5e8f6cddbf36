"""What a person at a terminal sees of `dagster asset materialize` and `dg launch`: one line for what went wrong.

Dagster prints a traceback for a wrong partition, a misspelt asset, a failed shard and Ctrl-C, and it has no hook to
change that. So its two commands are changed where Python and click can be: the excepthook, the class of loggers, the
message of click's exceptions, and what copies a step's output to the terminal, which `kopub run` needs as well. Runs
of the UI, of the daemon and of tests are left as they are.
"""

import io
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import click
import dagster as dg

# It shows what a step prints by processes that are ended before they have (dagster-io/dagster#23336).
from dagster._core.execution import compute_logs
from dagster_shared.check import CheckError

from resources.errors import STOPPED, STOPPED_BY_HAND, KopubError, did_you_mean
from resources.printable import visible

_INTERRUPTS = (KeyboardInterrupt, dg.DagsterExecutionInterruptedError)
_INTERRUPT_NAMES = frozenset(interrupt.__name__ for interrupt in _INTERRUPTS)
_REFUSALS = (
    KopubError,
    CheckError,
    dg.DagsterInvalidConfigError,
    dg.DagsterInvalidSubsetError,
    dg.DagsterUnknownPartitionError,
)
"""Errors in what was typed: a selection, a partition, a value of the configuration."""
_LOOKS_EVERY = 0.1
"""Seconds between two looks at what a step has written."""
_waiting = threading.Event()


@contextmanager
def person_waits() -> Iterator[None]:
    """Say that a person waits for the runs of this process, until the context ends."""
    _waiting.set()
    copies, compute_logs.execute_posix_tail = compute_logs.execute_posix_tail, shown_to_the_end
    try:
        yield
    finally:
        compute_logs.execute_posix_tail = copies
        _waiting.clear()


def at_terminal() -> bool:
    """Whether this process is a command that a person waits for."""
    if _waiting.is_set():
        return True
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.stem
    commands = {"dagster": ["asset", "materialize"], "dg": ["launch"], "dagster_dg_cli": ["launch"]}
    return name in commands and sys.argv[1 : 1 + len(commands[name])] == commands[name]


def install(assets: Sequence[str], shards: Sequence[str]) -> None:
    """Shorten what the command of this process prints; `assets` and `shards` are the names to suggest."""
    if not at_terminal():
        return
    shown = sys.excepthook

    def one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, _INTERRUPTS):
            click.echo(STOPPED, err=True)
            raise SystemExit(STOPPED_BY_HAND)
        if not isinstance(error, _REFUSALS):
            return shown(kind, error, trace)
        click.echo(f"Error: {visible(_reason(error, assets, shards))}", err=True)

    sys.excepthook = one_line
    # Dagster makes the logger that prints a run's events of this class.
    logging.setLoggerClass(_TerminalLogger)
    compute_logs.execute_posix_tail = shown_to_the_end


@contextmanager
def canceled_when_stopped(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Record a run that a person stops as canceled; Dagster takes an interrupt that nobody requested for a failure."""
    try:
        yield
    except dg.DagsterExecutionInterruptedError:
        if at_terminal():
            context.instance.report_run_canceling(context.run, "stopped at the terminal")
        raise


def _reason(error: BaseException, assets: Sequence[str], shards: Sequence[str]) -> str:
    """The one line for an error of the command line."""
    text = str(error)
    if found := re.search(r"AssetKey\(s\) \[(.*?)\] were selected", text):
        unknown = re.findall(r"'([^']*)'", found[1])
        return f"there is no asset {' or '.join(unknown)}{did_you_mean(unknown[0], assets)}"
    if "containing the passed partition key" in text:
        return _wrong_partition(shards)
    if "no '--partition' option was provided" in text:
        return f"say which shards: --partition {shards[0]} or --partition-range {shards[0]}...{shards[-1]}"
    first, _, rest = text.partition("\n")
    return first.removeprefix("Failure condition: ") or rest or type(error).__name__


def _wrong_partition(shards: Sequence[str]) -> str:
    asked = [key for value in _partition_options() for key in value.split("...")]
    unknown = next((key for key in asked if key not in shards), None)
    known = f"the corpus has {shards[0]} to {shards[-1]}"
    if unknown is None:
        return f"the selected assets have no shards in common with {', '.join(asked)}: {known}"
    return f"there is no partition {unknown}: {known}{did_you_mean(unknown, shards)}"


def _partition_options() -> Iterator[str]:
    """The values of `--partition` and `--partition-range`; Dagster's message names one that may be right."""
    for at, word in enumerate(sys.argv):
        name, equals, value = word.partition("=")
        if name in ("--partition", "--partition-range"):
            yield value if equals else next(iter(sys.argv[at + 1 : at + 2]), "")


class _TerminalLogger(logging.Logger):
    """Prints a failure that a person can put right, and a stopped run, without Dagster's stack."""

    def handle(self, record: logging.LogRecord) -> None:
        event = getattr(record, "dagster_event", None)
        if not isinstance(event, dg.DagsterEvent):
            return super().handle(record)
        for kind, message in _chain(getattr(event.event_specific_data, "error", None)):
            if kind in _INTERRUPT_NAMES:
                return _end_as_stopped()
            if kind == dg.Failure.__name__:
                # The run's own event repeats the error of its first step.
                record.msg = f"{event.step_key}: {message}" if event.step_key else event.message
        super().handle(record)


def tells_of_interrupt(event: dg.DagsterEvent) -> bool:
    """Whether an event of a run says that somebody stopped it."""
    error = getattr(event.event_specific_data, "error", None)
    return any(kind in _INTERRUPT_NAMES for kind, _ in _chain(error))


def _chain(error: Any) -> Iterator[tuple[str, str]]:
    """(class, message) of a serialized error and of its causes."""
    while error is not None:
        yield error.cls_name, error.message.partition(": ")[2].strip()
        error = error.cause


def _end_as_stopped() -> None:
    """Let the command end as a stopped one: Dagster ends a canceled run by a ClickException of its own."""

    def show(self: click.ClickException, file: Any = None) -> None:
        click.echo(STOPPED, err=True)

    click.ClickException.show, click.ClickException.exit_code = show, STOPPED_BY_HAND


@contextmanager
def shown_to_the_end(path: str, stream: TextIO) -> Iterator[tuple[None, None]]:
    """Show in `stream` what a step writes into the file `path`, to its last line.

    Dagster has two processes for each stream do it, and ends them before they have shown everything
    (dagster-io/dagster#23336): of a short step, that is the reason why it failed. Ctrl-C in a terminal reaches them
    too, and they complain of it.
    """
    try:
        # While a step runs, the descriptor of the stream is that of the file.
        shown = os.fdopen(os.dup(stream.fileno()), "wb")
    except io.UnsupportedOperation:
        yield (None, None)
        return
    over = threading.Event()

    def show() -> None:
        with shown, open(path, "rb") as written, suppress(BrokenPipeError):
            last = False
            while not last:
                # What was written before the end is there when the end is known.
                last = over.wait(_LOOKS_EVERY)
                shutil.copyfileobj(written, shown)
                shown.flush()

    copying = threading.Thread(target=show)
    copying.start()
    try:
        yield (None, None)
    finally:
        over.set()
        copying.join()
