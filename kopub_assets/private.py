"""What Dagster 1.13.27 does not export: the one place that imports its private modules.

A new version may move any of them, and the test named with each then fails.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution import compute_logs
from dagster._core.execution.execute_in_process import core_execute_in_process
from dagster._core.execution.plan.outputs import StepOutputData, StepOutputHandle
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus

# A launcher's answer has no public name. Test: tests/deploy/test_what_dies.py.
__all__ = ["CheckRunHealthResult", "WorkerStatus", "execute_here", "output_copied_by", "output_in_part"]


def output_in_part(context: dg.AssetExecutionContext) -> dg.DagsterEvent:
    """Return the event that lets later steps begin although some shards of this step failed.

    Every public result of an asset reports all shards of the run as made. Test: tests/running/test_bad_shard.py.
    """
    step = context.get_step_execution_context()
    output = context.assets_def.get_output_name_for_asset_key(context.asset_key)
    return dg.DagsterEvent.step_output_event(step, StepOutputData(StepOutputHandle(step.step.key, output)))


def execute_here(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    assets: Iterable[str],
    tags: Mapping[str, str],
    run_config: Mapping[str, object],
    run_id: str | None = None,
) -> dg.ExecuteInProcessResult:
    """Run `assets` of a job in this process, by the executor of the job.

    The public `execute_in_process` replaces the executor by its own, which skips every step after one that failed in
    some of its shards. Test: tests/running/test_bad_shard.py.
    """
    keys = frozenset(dg.AssetKey(name) for name in assets)
    subset = InMemoryJob(job.get_subset(asset_selection=keys))
    return core_execute_in_process(run_config, subset, instance, False, False, tags, run_id, keys)


@contextmanager
def output_copied_by(copy: Callable[..., Any]) -> Iterator[None]:
    """Let `copy` show the output of steps, not Dagster's processes, until the context ends.

    Dagster has no setting for it. Test: tests/cli/test_command_line.py.
    """
    copies, compute_logs.execute_posix_tail = compute_logs.execute_posix_tail, copy
    try:
        yield
    finally:
        compute_logs.execute_posix_tail = copies
