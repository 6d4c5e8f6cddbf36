"""What the assets of scores have in common: how Dagster declares them, and how the UI shows their tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import dagster as dg
import pyarrow as pa

from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.dagster_assets import GROUP, OWNERS, column_schema
from resources.store.corpus_tables import Table

NO_DROP = "no_significant_drop"


def score_asset(
    table: Table, after: Iterable[Table], version: str, description: str | None, says: str
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """`dg.asset` for scores over all shards of the tables `after`; `says` is what their check holds."""
    assert isinstance(table.schema, pa.Schema)
    return dg.asset(
        name=table.name,
        description=description,
        deps=[dg.AssetDep(each.name, partition_mapping=dg.AllPartitionMapping()) for each in after],
        # Not partitioned, so there is one run of it anyway; `--partition-range` asks it of every asset it is given.
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=GROUP,
        kinds={"parquet", "metrics"},
        owners=OWNERS,
        code_version=version,
        check_specs=[dg.AssetCheckSpec(NO_DROP, asset=table.name, description=says)],
        metadata={"dagster/column_schema": column_schema(table.schema)},
    )


class Compared(Protocol):
    """Scores that were measured: by the contents of what they came from, and against which run."""

    @property
    def inputs(self) -> str: ...

    @property
    def compared(self) -> str: ...


def score_result(
    context: dg.AssetExecutionContext,
    measured: Compared,
    account: Iterable[str],
    drops: Sequence[str],
    metadata: Metadata,
) -> dg.MaterializeResult[Any]:
    """The result of an asset of scores; `account` says what was measured, `drops` what is worse than before."""
    for line in (*account, measured.compared, *drops):
        context.log.info(line)
    return dg.MaterializeResult(
        metadata=metadata,
        check_results=[drop_check("; ".join(drops) or measured.compared, passed=not drops)],
        data_version=dg.DataVersion(measured.inputs),
    )


def drop_check(says: str, passed: bool) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=passed, check_name=NO_DROP, severity=dg.AssetCheckSeverity.WARN, description=says)


def shown(scores: pa.Table, names: Sequence[str]) -> dg.TableMetadataValue:
    """The rows of a table of scores: the columns `names`, the value, the change, and their intervals."""
    figures = ("value", "interval", "change", "change_interval", "dropped")
    records = [
        {
            **{name: "" if row[name] is None else str(row[name]) for name in names},
            "value": _figure(row["value"]),
            "interval": _between(row["low"], row["high"]),
            "change": _figure(row["change"], "+"),
            "change_interval": _between(row["change_low"], row["change_high"], "+"),
            "dropped": "yes" if row["dropped"] else "",
        }
        for row in scores.to_pylist()
    ]
    columns = dg.TableSchema([dg.TableColumn(name) for name in (*names, *figures)])
    return dg.MetadataValue.table([dg.TableRecord(record) for record in records], columns)


def _figure(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.4f}"


def _between(low: float | None, high: float | None, sign: str = "") -> str:
    return "" if low is None or high is None else f"{low:{sign}.4f} to {high:{sign}.4f}"
