"""Runs of assets in this process, recorded in Dagster's instance like those of its own commands."""

import platform
import re
from collections.abc import Iterator, Sequence

import dagster as dg

# What Dagster's own commands run in: a run in this process is interrupted between two of its events.
from dagster._utils.interrupts import capture_interrupts

from kopub_assets.running.command_line import person_waits, tells_of_interrupt
from kopub_assets.running.watched_launcher import MACHINE_TAG
from resources.errors import KopubError, did_you_mean
from resources.printable import counted, first_line

_SILENT = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""A run's events are in the instance; whoever watches it here has a display of his own."""


def chosen(names: Sequence[str], wanted: Sequence[str], what: str) -> list[str]:
    """The `wanted` of `names` in their order, all when none is wanted. Raises `KopubError` for another name."""
    known, asked = frozenset(names), frozenset(wanted)
    for name in wanted:
        if name not in known:
            raise KopubError(f"there is no {what} {name} (there is {_listed(names)}){did_you_mean(name, names)}")
    return [name for name in names if not asked or name in asked]


def shard_ranges(keys: Sequence[str], wanted: Sequence[str], most: int | None) -> list[list[str]]:
    """`wanted` as runs of shards that follow each other in `keys`, with at most `most` in each. Pure."""
    runs: list[list[str]] = []
    before, asked = None, frozenset(wanted)
    for at, key in enumerate(keys):
        if key not in asked:
            continue
        if before is None or before != at - 1 or (most is not None and len(runs[-1]) >= most):
            runs.append([])
        runs[-1].append(key)
        before = at
    return runs


def range_tags(first: str, last: str) -> dict[str, str]:
    """The tags that make a run one of the shards from `first` to `last`."""
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def execute(
    definitions: dg.Definitions, instance: dg.DagsterInstance, assets: Sequence[str], shards: Sequence[str]
) -> list[str]:
    """Make `assets` of `shards`, which follow each other, in one run; return what failed, a line for each shard.

    Assets that have no partitions are made with the others. Ctrl-C raises `KeyboardInterrupt`.
    """
    job = definitions.resolve_implicit_global_asset_job_def()
    with capture_interrupts(), person_waits():
        result = job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(name) for name in assets],
            tags={**range_tags(shards[0], shards[-1]), MACHINE_TAG: platform.node()},
            run_config=_SILENT,
            raise_on_error=False,
        )
    if any(map(tells_of_interrupt, result.all_events)):
        raise KeyboardInterrupt
    return failures_of(result)


def failures_of(result: dg.ExecuteInProcessResult) -> list[str]:
    """What failed in a run, a line for each shard; nothing where it succeeded."""
    return [] if result.success else list(_failures(result.all_events)) or ["the run failed: see it in the UI"]


def said_once(failures: Sequence[str]) -> list[str]:
    """Join the failures that differ in names and paths alone into one line each."""
    alike: dict[str, list[str]] = {}
    for line in failures:
        alike.setdefault(re.sub(r"\S*(?:/|shard_)\S*|^\w+:", "", line), []).append(line)
    return [
        lines[0] if len(lines) == 1 else f"{lines[0]} (and {counted(len(lines) - 1, 'other')} like it)"
        for lines in alike.values()
    ]


@dg.run_failure_sensor(
    name="failed_runs",
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Says in a line why a run failed and what to do, in the log of its tick.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Log one line for a run that failed: its shards, the reason, and what to do."""
    run = context.dagster_run
    found = said_once(list(_failures([*context.get_step_failure_events(), context.failure_event])))
    reason = first_line(found[0] if found else context.failure_event.message or "no reason is known")
    more = f" (and {counted(len(found) - 1, 'other failure')})" if len(found) > 1 else ""
    first, last = (run.tags.get(tag) for tag in range_tags("", ""))
    shards = run.tags.get("dagster/partition") or (f"{first}...{last}" if first != last else first) or "no shard"
    if run.tags.get("dagster/will_retry") == "true":
        then = "it is tried again by itself"
    else:
        then = "mend that, then Re-execute from failure or kopub run"
    context.log.error(f"run {run.run_id[:8]} of {shards} failed: {reason}{more}; finished pages are kept: {then}")


def _failures(events: Sequence[dg.DagsterEvent]) -> Iterator[str]:
    for event in events:
        if event.is_step_failure and (error := event.step_failure_data.error):
            while error.cause:
                error = error.cause
            for line in error.message.partition(": ")[2].strip().splitlines():
                yield f"{event.step_key}: {line}"
        elif event.is_job_failure and event.job_failure_data.first_step_failure_event is None:
            # A resource could not be made, so that no step began.
            error = event.job_failure_data.error
            while error and error.cause:
                error = error.cause
            if error:
                yield first_line(error.message.partition(": ")[2])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 10 else f"{names[0]} to {names[-1]}"
