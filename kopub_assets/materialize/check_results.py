"""Checks as Dagster knows them: declared with an asset, told at the end of its step, and looked up in the next run."""

from collections.abc import Iterable, Sequence

import dagster as dg

from kopub_assets.materialize.checks import Check, Problems

_LOOKED_BACK = 20
"""Runs of an asset, killed ones among them, in which the last result of a check is looked for."""


def spec_of(check: Check, asset: str) -> dg.AssetCheckSpec:
    """A check as an asset declares it."""
    return dg.AssetCheckSpec(check.name, asset=asset, blocking=check.blocking, description=check.description)


def results_of(problems: Problems) -> list[dg.AssetCheckResult]:
    """What the checks found. An error stops the assets below in this run; the rest are warnings."""
    return [
        dg.AssetCheckResult(
            passed=found.passed,
            check_name=found.check,
            severity=dg.AssetCheckSeverity.ERROR if found.stops else dg.AssetCheckSeverity.WARN,
            metadata=found.metadata,
            description=found.says,
        )
        for found in problems.results()
    ]


def problems_before(
    instance: dg.DagsterInstance, asset: str, checks: Iterable[Check], shards: Sequence[str]
) -> dict[str, dict[str, str]]:
    """What the last run's checks found, by check and shard of the corpus as it is now."""
    found: dict[str, dict[str, str]] = {}
    for check in checks:
        key = dg.AssetCheckKey(dg.AssetKey(asset), check.name)
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=_LOOKED_BACK)
        # A run that has just begun, or was killed, has a record without an evaluation.
        evaluations = (record.event.asset_check_evaluation for record in history if record.event)
        last = next((evaluation for evaluation in evaluations if evaluation), None)
        values = {name: value.value for name, value in last.metadata.items() if name in shards} if last else {}
        found[check.name] = {shard: value for shard, value in values.items() if isinstance(value, str)}
    return found
