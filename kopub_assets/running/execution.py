"""Runs of assets in this process, recorded in Dagster's instance."""

import io
import os
import platform
import re
import shutil
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import dagster as dg

from kopub.errors import KopubError, counted, did_you_mean, first_line
from kopub.states import Reason
from kopub_assets.private import execute_here, output_copied_by
from kopub_assets.running.engines import range_tags
from kopub_assets.running.watched_launcher import MACHINE_TAG

_SILENT = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""A run's events are in the instance; its watcher in this process has its own display."""


EXECUTOR = dg.in_process_executor.configured(
    {"step_dependency_config": {"require_upstream_step_success": False}}, name="in_process"
)
"""All steps of a run in its process, because a stage uses all cores or the GPU by itself, so that a process per step
would only add its start-up time. A step begins once those before it have given it something to work on: if a shard
fails, the others go on."""


def chosen(names: Sequence[str], choice: Sequence[str], what: str) -> list[str]:
    """Return the `choice` in the order of `names`; all if it is empty.

    Raises `KopubError` for an unknown name.
    """
    every, of_choice = frozenset(names), frozenset(choice)
    for name in choice:
        if name not in every:
            form = "there is no {kind} {name} (there are {names}){guess}"
            raise KopubError(form, Reason(what), name, _listed(names), did_you_mean(name, names))
    return [name for name in names if not of_choice or name in of_choice]


def shard_ranges(keys: Sequence[str], shards: Sequence[str], most: int | None) -> list[list[str]]:
    """Split `shards` into runs of at most `most` shards that are consecutive in `keys`."""
    runs: list[list[str]] = []
    before, of_runs = None, frozenset(shards)
    for at, key in enumerate(keys):
        if key not in of_runs:
            continue
        if before is None or before != at - 1 or (most is not None and len(runs[-1]) >= most):
            runs.append([])
        runs[-1].append(key)
        before = at
    return runs


def execute(
    definitions: dg.Definitions, instance: dg.DagsterInstance, assets: Sequence[str], shards: Sequence[str]
) -> list[str]:
    """Make `assets` for consecutive `shards` in one run; return a line per failed shard.

    Assets without partitions are made with the others. Ctrl-C raises `KeyboardInterrupt`.
    """
    job = definitions.resolve_implicit_global_asset_job_def()
    run_id = str(uuid.uuid4())
    tags = {**range_tags(shards[0], shards[-1]), MACHINE_TAG: platform.node()}
    # Until it ends, a person waits for this process's run.
    _waiting.set()
    try:
        with output_copied_by(copy_to_the_end):
            result = execute_here(job, instance, assets, tags, _SILENT, run_id)
    except KeyboardInterrupt:
        # Dagster handles an interrupt only once the run has started.
        _record_as_canceled(instance, run_id)
        raise
    finally:
        _waiting.clear()
    for event in result.all_events:
        # Between its steps, Dagster records an interrupt as a failure.
        if any(kind in _INTERRUPT_NAMES for kind, _ in _errors(event)):
            _record_as_canceled(instance, run_id)
            raise KeyboardInterrupt
    return failures_of(result)


def _record_as_canceled(instance: dg.DagsterInstance, run_id: str) -> None:
    run = instance.get_run_by_id(run_id)
    if run is not None and (run.is_failure or not run.is_finished):
        instance.report_run_canceled(run)


def failures_of(result: dg.ExecuteInProcessResult) -> list[str]:
    """Return a line per failed shard of a run; nothing if the run succeeded."""
    return [] if result.success else list(_failures(result.all_events)) or ["the run failed: see it in the UI"]


def join_failures(failures: Sequence[str]) -> list[str]:
    """Join failures that differ only in names and paths into one line each."""
    alike: dict[str, list[str]] = {}
    for line in failures:
        alike.setdefault(re.sub(r"\S*(?:/|shard_)\S*|^\w+:", "", line), []).append(line)
    joined: list[str] = []
    for lines in alike.values():
        joined.append(lines[0] if len(lines) == 1 else f"{lines[0]} (and {counted(len(lines) - 1, 'other')} like it)")
    return joined


@dg.run_failure_sensor(
    name="failed_runs",
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Logs one line on why a run failed and what to do, in the log of its tick.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Log one line for a failed run: shards, reason, and what to do."""
    run = context.dagster_run
    events = [*context.get_step_failure_events(), context.failure_event]
    # Dagster's error has a type that many others share, so its message decides.
    gone: set[str] = set()
    for event in events:
        for _, message in _errors(event):
            if keys := re.search(r"Nonexistent partition keys:\s*\[(.*?)\]", message):
                gone.update(re.findall(r"'([^']*)'", keys[1]))
    if gone:
        are = "is" if len(gone) == 1 else "are"
        listed = _listed(sorted(gone))
        return context.log.error(f"run {run.run_id[:8]}: {listed} {are} no longer in the corpus: nothing to do")
    failures = join_failures(list(_failures(events)))
    reason = first_line(failures[0] if failures else context.failure_event.message or "no reason is known")
    more = f" (and {counted(len(failures) - 1, 'other failure')})" if len(failures) > 1 else ""
    first, last = (run.tags.get(tag) for tag in range_tags("", ""))
    shards = run.tags.get("dagster/partition") or (f"{first}...{last}" if first != last else first) or "no shard"
    if run.tags.get("dagster/will_retry") == "true":
        then = "it is retried automatically"
    else:
        then = "fix that, then choose Re-execute from failure, or kopub run"
    context.log.error(f"run {run.run_id[:8]} of {shards} failed: {reason}{more}; finished pages are kept: {then}")


def _errors(event: dg.DagsterEvent) -> Iterator[tuple[str, str]]:
    """Yield (class, message) for the error of an event, if any, and for its causes."""
    error = getattr(event.event_specific_data, "error", None)
    while error is not None:
        yield error.cls_name, error.message.partition(": ")[2].strip()
        error = error.cause


def _failures(events: Sequence[dg.DagsterEvent]) -> Iterator[str]:
    for event in events:
        messages = [message for _, message in _errors(event)]
        if not messages:
            continue
        if event.is_step_failure:
            for line in messages[-1].splitlines():
                yield f"{event.step_key}: {line}"
        elif event.is_job_failure and event.job_failure_data.first_step_failure_event is None:
            # A resource could not be made, so no step began.
            yield first_line(messages[-1])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 10 else f"{names[0]} to {names[-1]}"


_INTERRUPTS = (KeyboardInterrupt, dg.DagsterExecutionInterruptedError)
_INTERRUPT_NAMES = frozenset(interrupt.__name__ for interrupt in _INTERRUPTS)
_LOOKS_EVERY = 0.1
"""Seconds between two checks for new output of a step."""
_waiting = threading.Event()


def at_terminal() -> bool:
    """Return whether this process is a command that a person waits for."""
    if _waiting.is_set():
        return True
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.stem
    commands = {"dagster": ["asset", "materialize"], "dg": ["launch"], "dagster_dg_cli": ["launch"]}
    return name in commands and sys.argv[1 : 1 + len(commands[name])] == commands[name]


@contextmanager
def canceled_when_stopped(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Record a run that a person stops as canceled.

    Dagster would record an interrupt that nobody requested as a failure.
    """
    try:
        yield
    except dg.DagsterExecutionInterruptedError:
        if at_terminal():
            context.instance.report_run_canceling(context.run, "stopped at the terminal")
        raise


@contextmanager
def copy_to_the_end(path: str, stream: TextIO) -> Iterator[tuple[None, None]]:
    """Copy a step's output from the file `path` to `stream`, to the last line.

    Dagster uses two processes per stream for this and ends them before they have shown everything
    (dagster-io/dagster#23336), which hides why a short step failed. Ctrl-C in a terminal also reaches them, and they
    print complaints.
    """
    try:
        # Once the step runs, the stream's own descriptor points to the file, so it is duplicated now.
        screen = os.fdopen(os.dup(stream.fileno()), "wb")
    except io.UnsupportedOperation:
        yield (None, None)
        return
    over = threading.Event()

    def show() -> None:
        with screen, open(path, "rb") as output, suppress(BrokenPipeError):
            last = False
            while not last:
                # One more copy after the end is known catches everything written before it.
                last = over.wait(_LOOKS_EVERY)
                shutil.copyfileobj(output, screen)
                screen.flush()

    copying = threading.Thread(target=show)
    copying.start()
    try:
        yield (None, None)
    finally:
        over.set()
        copying.join()
