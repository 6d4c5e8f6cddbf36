"""`kopub status`: a table of what was made, by asset."""

import os
from collections import Counter
from collections.abc import Sequence

import dagster as dg
from rich.console import Console
from rich.table import Table

from kopub_assets.graph import GRAPH
from resources.config.settings import Settings
from resources.printable import visible
from resources.retrieval.comparison import headline, significant_drops
from resources.retrieval.run_history import ALL, SCORES
from resources.states import State, count_states
from resources.store.schemas import RETRIEVAL_SCORES
from resources.store.shard_store import ShardStore

_LISTED = 20
"""Lost pages on a terminal; the tables have them all."""


def show_status(settings: Settings, out: Console) -> None:
    """Print the tables of the store, the rows that were lost, and where everything lies."""
    keys = settings.corpus.manifest.keys
    store = settings.store
    computed = _computed_last(keys)
    title = f"{len(keys)} shards, profile {settings.profile_name}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("asset", no_wrap=True)
    for column in ("shards", "rows", *State, "computed"):
        table.add_column(column, justify="right")
    for asset in GRAPH.names:
        made = [key for key in keys if store.has(asset, key)]
        states = _states(store, asset, made)
        counts = [str(states[state]) if states else "" for state in State]
        rows = sum(store.rows(asset, key) for key in made)
        table.add_row(asset, f"{len(made)}/{len(keys)}", str(rows), *counts, computed.get(asset, "-"))
    out.print(table)
    losses = _losses(store, keys)
    for line in losses[:_LISTED]:
        out.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if len(losses) > _LISTED:
        out.print(f"and {len(losses) - _LISTED:,} more that failed or are quarantined", style="yellow", highlight=False)
    found, dropped = retrieval_lines(store)
    for line in found:
        out.print(line, highlight=False, soft_wrap=True)
    for line in dropped:
        out.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if computed and set(computed.values()) == {"0"}:
        out.print("Nothing was computed: nothing had changed since the tables were made.")
    out.print(f"corpus   {settings.corpus.manifest.location}", highlight=False, soft_wrap=True)
    out.print(f"tables   {store.url}/<asset>/<shard>.parquet", highlight=False, soft_wrap=True)
    out.print(f"release  {settings.release.folder}", highlight=False, soft_wrap=True)
    out.print("UI       make ui, then http://127.0.0.1:3000", highlight=False)


def retrieval_lines(store: ShardStore) -> tuple[list[str], list[str]]:
    """How well queries find their pages, if that was measured; and what they find significantly less well now."""
    if not store.has(SCORES, ALL):
        return [], []
    scores = store.read(SCORES, ALL)
    if not scores.schema.equals(RETRIEVAL_SCORES) or not scores.num_rows:
        return [], []
    shown = ("ndcg@10", "recall@1", "recall@5", "recall@10")
    each = [
        f"{retriever} {' '.join(f'{means[metric]:.3f}' for metric in shown)}"
        for retriever, means in headline(scores).items()
    ]
    return [f"scores   {', '.join(each)} (nDCG@10, recall@1, 5, 10)"], significant_drops(scores)


def _states(store: ShardStore, asset: str, made: Sequence[str]) -> Counter[str]:
    states: Counter[str] = Counter()
    for key in made:
        if "state" in store.columns(asset, key):
            states.update(count_states(store.read(asset, key, ["state"])["state"].to_pylist()))
    return states


def _losses(store: ShardStore, keys: Sequence[str]) -> list[str]:
    """A line for every page that failed or is quarantined, where it was lost first."""
    told: dict[str, str] = {}
    for asset in GRAPH.names:
        for key in keys:
            if store.has(asset, key) and {"page_id", "state"} <= set(store.columns(asset, key)):
                for row in store.read(asset, key, ["page_id", "state", "reason"]).to_pylist():
                    if row["state"] in (State.FAILED, State.QUARANTINED):
                        told.setdefault(row["page_id"], f"{row['state']} in {asset}, {key}: {row['reason']}")
    return [visible(f"{page_id} {end}") for page_id, end in told.items()]


def _computed_last(keys: Sequence[str]) -> dict[str, str]:
    """Rows computed by the last materialization of every shard, by asset, as Dagster recorded them."""
    if not os.environ.get("DAGSTER_HOME"):
        return {}
    computed = {}
    with dg.DagsterInstance.get() as instance:
        for asset in GRAPH.names:
            records = instance.fetch_materializations(dg.AssetKey(asset), limit=4 * len(keys)).records
            latest: dict[str, int] = {}
            for record in records:
                event = record.asset_materialization
                rows = event.metadata["computed"].value if event and "computed" in event.metadata else None
                if event and event.partition in keys and isinstance(rows, int):
                    latest.setdefault(str(event.partition), rows)
            if latest:
                computed[asset] = str(sum(latest.values()))
    return computed
