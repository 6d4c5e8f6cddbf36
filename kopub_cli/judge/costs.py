"""`kopub costs`: what the pages have cost so far, by asset, and which of them most."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kopub_cli.display.as_json import print_json
from kopub_cli.display.console import table_console
from kopub_cli.display.durations import duration
from kopub_cli.indexed_corpus import open_located
from resources.printable import counted, visible

if TYPE_CHECKING:
    from resources.config.located import Located
    from resources.store.records.run_summary import AssetRun
    from resources.store.table_store import TableStore


def costs(
    top: Annotated[int, typer.Option(min=0, help="Costliest pages to list for each asset.")] = 3,
    runs: Annotated[int, typer.Option(min=0, help="Latest runs of each asset to sum up.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show the time and GPU time of all pages that were ever computed, and the costliest.

    Of the latest runs it shows rows a second, and what the engines counted: tokens, second tries and what they
    brought, loops, what was pruned and dropped.
    """
    shown = spent(open_located(), top, runs)
    if as_json:
        print_json(shown)
    else:
        _show(shown, table_console())


def spent(located: "Located", top: int, runs: int = 1) -> dict[str, Any]:
    """The costs as JSON values. Raises `StoreError`."""
    from resources.store.records import ledger

    store, keys = located.store, located.manifest.keys
    return {"assets": [_asset(store, asset, keys, top, runs) for asset in ledger.assets(store)]}


def _asset(store: "TableStore", asset: str, keys: list[str], top: int, runs: int) -> dict[str, Any]:
    import pyarrow as pa

    from resources.store.records import ledger
    from resources.store.records.run_summary import runs_of

    shards = {shard: ledger.read(store, asset, shard) for shard in keys}
    rows = pa.concat_tables(list(shards.values()))
    total = ledger.spent(rows)
    costliest = sorted(
        (
            {"shard": shard, **row}
            for shard, table in shards.items()
            for row in table.select(["row_id", "run_id", "seconds", "gpu_seconds"]).to_pylist()
            if row["seconds"] is not None
        ),
        key=lambda row: -row["seconds"],
    )
    return {
        "asset": asset,
        "computed": rows.num_rows,
        "of_unknown_cost": rows.num_rows - total.rows,
        "seconds": total.seconds,
        "seconds_each": total.seconds_each,
        "gpu_seconds": total.gpu_seconds,
        "gpu_seconds_each": total.gpu_seconds_each,
        "costliest": costliest[:top],
        "runs": [_run(run) for run in runs_of(rows, runs)],
    }


def _run(run: "AssetRun") -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "ended": run.ended.isoformat(timespec="seconds"),
        "rows": run.rows,
        "seconds": run.seconds,
        "rows_per_second": run.rows_per_second,
        "counted": run.summary.figures() if run.summary else {},
        "most_tokens": run.summary.most_tokens if run.summary else [],
    }


def _show(shown: dict[str, Any], out: Console) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("asset", no_wrap=True)
    for column in ("rows computed", "time", "s a row", "GPU time", "GPU s a row"):
        table.add_column(column, justify="right")
    for asset in shown["assets"]:
        table.add_row(
            asset["asset"],
            str(asset["computed"]),
            duration(asset["seconds"]),
            f"{asset['seconds_each']:.3f}",
            duration(asset["gpu_seconds"]),
            f"{asset['gpu_seconds_each']:.3f}",
        )
    out.print(table)
    for asset in shown["assets"]:
        for run in asset["runs"]:
            out.print(f"{asset['asset']}: {summary_line(run)}", markup=False, highlight=False, soft_wrap=True)
    for asset in shown["assets"]:
        for row in asset["costliest"]:
            line = f"{asset['asset']}: {visible(row['row_id'])} of {row['shard']} took {duration(row['seconds'])}"
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        if asset["of_unknown_cost"]:
            out.print(
                f"{asset['asset']}: {counted(asset['of_unknown_cost'], 'row')} finished by runs that were killed, "
                "at a cost that is not known.",
                highlight=False,
                soft_wrap=True,
            )


def summary_line(run: dict[str, Any]) -> str:
    """A run in one line."""
    from resources.store.records.run_summary import COUNTED

    counted = run["counted"]
    parts = [f"{run['rows']} rows, {run['rows_per_second']:.2f} a second"]
    if "tokens_per_row" in counted:
        each = (counted[name] for name in ("tokens_per_row", "tokens_median", "tokens_most"))
        parts.append("{:,.0f} answer tokens a row (median {:,.0f}, most {:,.0f})".format(*each))
    parts += [f"{name} {counted[key]:,.0f}" for key, name in COUNTED.items() if key in counted]
    return f"run {run['run_id'][:8]} of {run['ended'][:16].replace('T', ' ')}: {'; '.join(parts)}"
