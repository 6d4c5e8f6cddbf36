"""The report of an asset to Dagster: columns, metadata and the results of checks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from kopub.tables.checks import Check, Problems
from kopub.tables.metadata import Link, Markdown, Moment

_LOOKED_BACK = 20
"""Number of an asset's latest runs, including killed ones, that are searched for the last result of a check."""


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """Return the columns of a table with their descriptions, as the UI shows them."""
    return dg.TableSchema(
        [
            dg.TableColumn(
                field.name,
                str(field.type),
                (field.metadata or {}).get(b"description", b"").decode(),
                dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def shown(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as the UI shows it.

    Fractions get four significant digits, records become a table, and markdown and links are rendered.
    """
    values: dict[str, Any] = {}
    for name, value in metadata.items():
        match value:
            case Moment():
                values[name] = dg.MetadataValue.timestamp(float(value))
            case float():
                values[name] = float(f"{value:.4g}")
            case list():
                values[name] = dg.MetadataValue.table(list(map(dg.TableRecord, value)))
            case Markdown():
                values[name] = dg.MetadataValue.md(value)
            case Link():
                values[name] = dg.MetadataValue.url(value)
            case _:
                values[name] = value
    return values


def results_of(problems: Problems) -> list[dg.AssetCheckResult]:
    """Return what the checks found.

    An error stops the assets downstream in this run; all other problems are warnings.
    """
    results: list[dg.AssetCheckResult] = []
    for result in problems.results():
        results.append(
            dg.AssetCheckResult(
                passed=result.passed,
                check_name=result.check,
                severity=dg.AssetCheckSeverity.ERROR if result.stops else dg.AssetCheckSeverity.WARN,
                metadata=result.metadata,
                description=result.says,
            )
        )
    return results


def problems_before(
    instance: dg.DagsterInstance, asset: str, checks: Iterable[Check], shards: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return what the last run's checks found, by check and present shard."""
    problems: dict[str, dict[str, str]] = {}
    for check in checks:
        key = dg.AssetCheckKey(dg.AssetKey(asset), check.name)
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=_LOOKED_BACK)
        of_shards = problems[check.name] = {}
        for record in history:
            # A run that has just begun or was killed has a record without an evaluation.
            if record.event and (last := record.event.asset_check_evaluation):
                for name, value in last.metadata.items():
                    if name in shards and isinstance(value.value, str):
                        of_shards[name] = value.value
                break
    return problems
