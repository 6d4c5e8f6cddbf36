"""`kopub costs`: what the pages have cost so far, by asset, and which of them most."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kopub_cli.display.console import table_console
from kopub_cli.display.durations import duration
from kopub_cli.indexed_corpus import open_settings
from resources.printable import visible

if TYPE_CHECKING:
    from resources.config.settings import Settings


def costs(
    top: Annotated[int, typer.Option(min=0, help="Costliest pages to list for each asset.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show the time and GPU time of all pages that were ever computed, and the costliest."""
    shown = spent(open_settings(), top)
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=1))
    else:
        _show(shown, table_console())


def spent(settings: "Settings", top: int) -> dict[str, Any]:
    """The costs as JSON values. Raises `StoreError`."""
    from kopub_assets.graph import GRAPH

    keys = settings.corpus.manifest.keys
    off = GRAPH.off(settings.resources)
    shown = [asset for asset in GRAPH.names if asset not in off or settings.store.published(asset)]
    return {"assets": [_asset(settings, asset, keys, top) for asset in shown]}


def _asset(settings: "Settings", asset: str, keys: list[str], top: int) -> dict[str, Any]:
    import pyarrow as pa

    from resources.store import ledger

    shards = {shard: ledger.read(settings.store, asset, shard) for shard in keys}
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
        for row in asset["costliest"]:
            line = f"{asset['asset']}: {visible(row['row_id'])} of {row['shard']} took {duration(row['seconds'])}"
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        if asset["of_unknown_cost"]:
            out.print(
                f"{asset['asset']}: {asset['of_unknown_cost']} rows were finished by runs that were killed, "
                "and their cost is not known.",
                highlight=False,
                soft_wrap=True,
            )
