"""`kopub costs`: what the pages have cost so far, by asset."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.console import Console
from rich.table import Column

from kopub.cli.console import duration, print_json, print_table, right, say, table_console
from kopub.cli.options import corpus_check, open_located
from kopub.errors import counted, visible
from kopub.states import State, joined, phrase
from kopub.store import ledger
from kopub.store.corpus_tables import CHUNK_VECTORS, RELEASED_FILES, TABLES
from kopub.store.run_records import COUNTED, runs_of

if TYPE_CHECKING:
    from kopub.config.environment import Location
    from kopub.store.table_store import TableStore

_BAD = {"rows_failed": "red", "rows_quarantined": "red", "rows_partial": "yellow"}
"""Counts of a run that a person should see."""


def costs(
    top: Annotated[int, typer.Option(min=0, help="Costliest pages to list for each asset.")] = 3,
    runs: Annotated[int, typer.Option(min=0, help="Latest runs of each asset to summarise.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show the time and GPU time that the pages of the corpus took in all runs, and the costliest pages.

    For the latest runs it shows rows per second and what the engines counted: tokens, retries and what they
    gained, loops, and what was pruned and dropped.
    """
    shown = collect_costs(open_located(), top, runs)
    if as_json:
        print_json(shown)
    else:
        _show(shown, table_console())


@dataclass(frozen=True)
class _Entries:
    """The ledger's entries of the indexed corpus."""

    pages: Mapping[str, pa.Table | None]
    """The pages of the corpus with their states, by shard; None if none was made."""
    other_runs: pa.ChunkedArray
    """The runs that only computed pages of other corpora."""

    @classmethod
    def of(cls, located: "Location") -> "_Entries":
        """Return the entries after reading the pages of every shard. Raises `StoreError`."""
        store, asset = located.store, TABLES.pages.name
        is_of_corpus = corpus_check(located.manifest, store).look()
        pages: dict[str, pa.Table | None] = {}
        own, every = list[pa.Array](), list[pa.Array]()
        for shard in located.manifest.keys:
            own_pages = store.read(asset, shard, ["page_id", "state"]) if is_of_corpus(asset, shard) else None
            rows = ledger.read(store, asset, shard)
            every += rows["run_id"].chunks
            own += _with(rows, "row_id", own_pages["page_id"])["run_id"].chunks if own_pages is not None else []
            pages[shard] = own_pages
        runs = pa.Table.from_arrays([pa.chunked_array(every, pa.string())], ["run_id"])
        return cls(pages, _with(runs, "run_id", pa.chunked_array(own, pa.string()), keep=False)["run_id"])

    def read(self, store: "TableStore", asset: str, shard: str) -> pa.Table:
        """Return the entries of a shard.

        Releases, queries and chunks have no page ids, so their entries are selected by run.
        """
        rows, pages = ledger.read(store, asset, shard), self.pages[shard]
        if asset in (TABLES.query_vectors.name, CHUNK_VECTORS.name, RELEASED_FILES.name):
            return _with(rows, "run_id", self.other_runs, keep=False)
        return rows.slice(0, 0) if pages is None else _with(rows, "row_id", pages["page_id"])


def _with(rows: pa.Table, column: str, values: pa.ChunkedArray, keep: bool = True) -> pa.Table:
    """Return the rows whose column has one of these values, or none of them."""
    # This uses Arrow's functions, because an array of Python values or an expression would load pandas.
    is_in = pc.call_function("is_in", [rows[column]], pc.SetLookupOptions(values.combine_chunks()))
    return rows.filter(is_in if keep else pc.call_function("invert", [is_in]))


def collect_costs(located: "Location", top: int, runs: int = 1) -> dict[str, Any]:
    """Return the costs as JSON values. Raises `StoreError`."""
    entries, assets = _Entries.of(located), list[dict[str, Any]]()
    for asset in ledger.assets(located.store):
        tables: list[pa.Table] = []
        costliest: list[dict[str, Any]] = []
        for shard in entries.pages:
            table = entries.read(located.store, asset, shard)
            tables.append(table)
            # If a run computed nothing, its time is divided among the pages that it merely passed on.
            passed_on: set[str] = set()
            if asset != TABLES.pages.name and (pages := entries.pages[shard]) is not None:
                states = zip(pages["page_id"].to_pylist(), pages["state"].to_pylist(), strict=True)
                passed_on = {page for page, state in states if state == State.QUARANTINED}
            for row in table.select(["row_id", "run_id", "seconds", "gpu_seconds"]).to_pylist():
                if row["seconds"] is not None and row["row_id"] not in passed_on:
                    costliest.append({"shard": shard, **row})
        costliest.sort(key=lambda row: -row["seconds"])
        rows = pa.concat_tables(tables)
        latest: list[dict[str, Any]] = []
        for run in runs_of(rows, runs):
            latest.append(
                {
                    "run_id": run.run_id,
                    "ended": run.ended.isoformat(timespec="seconds"),
                    "rows": run.rows,
                    "seconds": run.seconds,
                    "rows_per_second": run.rows_per_second,
                    "counted": run.summary.figures() if run.summary else {},
                    "most_tokens": run.summary.most_tokens if run.summary else [],
                }
            )
        total = ledger.sum_costs(rows)
        assets.append(
            {
                "asset": asset,
                "computed": rows.num_rows,
                "of_unknown_cost": rows.num_rows - total.rows,
                "seconds": total.seconds,
                "seconds_each": total.seconds_each,
                "gpu_seconds": total.gpu_seconds,
                "gpu_seconds_each": total.gpu_seconds_each,
                "costliest": costliest[:top],
                "runs": latest,
            }
        )
    return {"assets": assets}


def _show(shown: dict[str, Any], out: Console) -> None:
    assets = shown["assets"]
    gpu = ("GPU time", "GPU s/row") if any(asset["gpu_seconds"] for asset in assets) else ()
    columns = [Column("asset"), *right("rows", "time", "s/row", *gpu)]
    totals: list[list[str]] = []
    for asset in assets:
        cells = [asset["asset"], f"{asset['computed']:,}", duration(asset["seconds"]), f"{asset['seconds_each']:.3f}"]
        if gpu:
            cells += [duration(asset["gpu_seconds"]), f"{asset['gpu_seconds_each']:.3f}"]
        totals.append(cells)
    print_table(out, columns, totals)
    runs: list[tuple[str, dict[str, Any]]] = []
    last_runs: list[list[str]] = []
    for asset in assets:
        for run in asset["runs"]:
            runs.append((asset["asset"], run))
            ended = run["ended"][:16].replace("T", " ")
            rate = f"{run['rows_per_second']:.2f}"
            last_runs.append([asset["asset"], run["run_id"][:8], ended, f"{run['rows']:,}", rate])
    if runs:
        columns = [Column("latest run of"), Column("run"), Column("ended"), *right("rows", "rows/s")]
        print_table(out, columns, last_runs)
    for asset, run in runs:
        if line := counts_line(run):
            bad = next((style for name, style in _BAD.items() if run["counted"].get(name)), "")
            say(out, phrase("{asset}, {run}: {reason}", asset, run["run_id"][:8], line), bad)
    for asset in assets:
        if asset["of_unknown_cost"]:
            rows = counted(asset["of_unknown_cost"], "row")
            say(out, phrase("{asset}: killed runs finished {rows} at an unknown cost", asset["asset"], rows))
    costliest: list[list[str]] = []
    for asset in assets:
        for row in asset["costliest"]:
            costliest.append([asset["asset"], visible(row["row_id"]), row["shard"], duration(row["seconds"])])
    if costliest:
        print_table(out, [Column("costliest of"), Column("page"), Column("shard"), *right("time")], costliest)


def counts_line(run: dict[str, Any]) -> str:
    """Return what the engines of a run counted, in one line, empty if they count nothing."""
    counts = run["counted"]
    parts = []
    if "tokens_per_row" in counts:
        tokens = (counts[name] for name in ("tokens_per_row", "tokens_median", "tokens_most"))
        parts.append(phrase("{mean:,.0f} answer tokens a row (median {median:,.0f}, most {most:,.0f})", *tokens))
    parts += [phrase(f"{name} {{count:,.0f}}", counts[key]) for key, name in COUNTED.items() if key in counts]
    return joined(parts)
