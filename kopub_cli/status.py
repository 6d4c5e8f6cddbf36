"""`kopub status`: what was made of the indexed corpus, what is stale or missing, and the command that goes on."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from kopub_cli.display.console import table_console
from kopub_cli.indexed_corpus import COMMAND, corpus_check, open_settings
from resources.printable import visible
from resources.states import FINAL, LOST, State, count_states

if TYPE_CHECKING:
    from kopub_assets.upgrades.stale_scan import Survey
    from resources.config.settings import Settings
    from resources.store.ledger import LastRun
    from resources.store.shard_store import ShardStore
    from resources.store.table_source import IsOfCorpus

_LISTED = 20
"""Lost pages on a terminal; the tables have them all."""


def status() -> None:
    """Show what was made, from which corpus, where it lies, and what to run next."""
    show_status(open_settings(), table_console())


def show_status(settings: "Settings", out: Console) -> None:
    """Print the tables of the indexed corpus, the rows that were lost, what is to be done, and where all lies."""
    from kopub_assets.upgrades.stale_scan import survey
    from resources.store import ledger
    from resources.store.footer_cache import FooterCache

    store = settings.store
    is_of_corpus = corpus_check(settings).look()
    scan = survey(settings.resources, FooterCache(store))
    assets = [_AssetStatus.of(settings, scan, asset, is_of_corpus) for asset in scan.standings]
    unfinished = list(_unfinished(settings, scan, is_of_corpus))
    worked_on = {each.asset: set(each.made) for each in assets}
    for each in unfinished:
        worked_on[each.asset].add(each.shard)
    last = ledger.last_run(store, worked_on)
    out.print(_table(settings, assets, last))
    for line in _of_another_corpus(settings, assets):
        out.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    for lines, more in (
        (_pages_in(store, assets, LOST), "that failed or are quarantined"),
        (_pages_in(store, assets, (State.PARTIAL,)), "that were read in part"),
    ):
        for line in lines[:_LISTED]:
            out.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
        if len(lines) > _LISTED:
            out.print(f"and {len(lines) - _LISTED:,} more {more}", style="yellow", highlight=False)
    for each in unfinished:
        counts = f"{each.finished:,} of {each.rows:,} rows"
        line = f"{each.asset} of {each.shard}: {counts} are finished and kept for the next run"
        out.print(line, highlight=False, soft_wrap=True)
    for found, dropped in (
        retrieval_lines(store, settings.corpus.manifest.keys, is_of_corpus),
        reading_lines(settings, is_of_corpus),
    ):
        for line in found:
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        for line in dropped:
            out.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    for line in (*_last_run(last), *_to_do(settings, assets)):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print(f"corpus   {settings.corpus.manifest.location}", markup=False, highlight=False, soft_wrap=True)
    out.print(f"tables   {store.url}/<asset>/<shard>.parquet", markup=False, highlight=False, soft_wrap=True)
    out.print(f"release  {settings.release.folder}", markup=False, highlight=False, soft_wrap=True)
    out.print("UI       make ui, then http://127.0.0.1:3000", highlight=False)


@dataclass(frozen=True)
class _AssetStatus:
    """The tables of one asset by shard: those of the indexed corpus, how many are stale, those of another corpus."""

    asset: str
    made: Sequence[str]
    stale: int
    missing: int
    other: Sequence[str]
    rows: int
    states: Counter[str]

    @classmethod
    def of(cls, settings: "Settings", scan: "Survey", asset: str, is_of_corpus: "IsOfCorpus") -> "_AssetStatus":
        from kopub_assets.upgrades.plan import Standing

        shards = [shard for shard in settings.corpus.manifest.keys if shard in scan.tables[asset]]
        made = [shard for shard in shards if is_of_corpus(asset, shard)]
        stale = sum(scan.standings[asset][shard] is not Standing.CURRENT for shard in made)
        states: Counter[str] = Counter()
        for shard in made:
            if "state" in settings.store.columns(asset, shard):
                states.update(count_states(settings.store.read(asset, shard, ["state"])["state"].to_pylist()))
        rows = sum(scan.tables[asset][shard].rows for shard in made)
        other = [shard for shard in shards if shard not in made]
        return cls(asset, made, stale, len(settings.corpus.manifest.keys) - len(made), other, rows, states)


def _table(settings: "Settings", assets: Sequence[_AssetStatus], last: "LastRun | None") -> Table:
    keys = settings.corpus.manifest.keys
    title = f"{len(keys)} shards, profile {settings.profile_name}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("asset", no_wrap=True)
    for column in ("made", "stale", "rows", *State, "computed"):
        table.add_column(column, justify="right", overflow="fold")
    for each in assets:
        counts = [str(each.states[state]) if each.states else "" for state in State]
        made = f"{len(each.made)}/{len(keys)}"
        computed = str(last.rows[each.asset]) if last else "-"
        table.add_row(each.asset, made, str(each.stale), str(each.rows), *counts, computed)
    return table


def _of_another_corpus(settings: "Settings", assets: Sequence[_AssetStatus]) -> Iterator[str]:
    other = sum(len(each.other) for each in assets)
    if other:
        yield (
            f"{other} tables in the store are of another corpus than {settings.corpus.manifest.location}: "
            "they count as missing, and making them anew replaces them"
        )


def _to_do(settings: "Settings", assets: Sequence[_AssetStatus]) -> Iterator[str]:
    """The command that makes what is missing, stale or failed; or that there is nothing to do."""
    counts = {
        "missing": sum(each.missing for each in assets),
        "stale": sum(each.stale for each in assets),
    }
    todo = [f"{count} tables are {how}" for how, count in counts.items() if count]
    failed = sum(each.states[State.FAILED] for each in assets)
    if failed:
        todo.append(f"{failed} rows failed and are tried again")
    if todo:
        yield f"next     {COMMAND}  ({', '.join(todo)})"
    else:
        yield "next     nothing: every table is current, and another run would compute nothing"


def retrieval_lines(
    store: "ShardStore", keys: Sequence[str], is_of_corpus: "IsOfCorpus"
) -> tuple[list[str], list[str]]:
    """How well queries find their pages, if that was measured; and what they find significantly less well now.

    Scores of tables that are of another corpus, or were replaced since, are not shown.
    """
    from resources.retrieval.comparison import headline, significant_drops
    from resources.retrieval.run_history import ALL, HISTORY, SCORES
    from resources.store.schemas import RETRIEVAL_SCORES

    if not store.has(SCORES, ALL):
        return [], []
    scores = store.read(SCORES, ALL)
    if not scores.schema.equals(RETRIEVAL_SCORES) or not scores.num_rows:
        return [], []
    if not HISTORY.is_of_tables_now(store, keys, is_of_corpus):
        return [f"scores   none of the tables as they are now: materialize {SCORES}"], []
    shown = ("ndcg@10", "recall@1", "recall@5", "recall@10")
    each = [
        f"{retriever} {' '.join(f'{means[metric]:.3f}' for metric in shown)}"
        for retriever, means in headline(scores).items()
    ]
    return [f"scores   {', '.join(each)} (nDCG@10, recall@1, 5, 10)"], significant_drops(scores)


def reading_lines(settings: "Settings", is_of_corpus: "IsOfCorpus") -> tuple[list[str], list[str]]:
    """How well the pages with known answers are read, if that was measured; and what is read worse than before."""
    from resources.evaluation.runs.comparison import headline, significant_drops
    from resources.evaluation.runs.run_history import HISTORY
    from resources.scores.history import ALL
    from resources.store.corpus_tables import OCR_SCORES

    store = settings.store
    if settings.corpus.gold is None or not store.has(OCR_SCORES.name, ALL):
        return [], []
    scores = store.read(OCR_SCORES.name, ALL)
    if not scores.schema.equals(OCR_SCORES.schema) or not scores.num_rows:
        return [], []
    if not HISTORY.is_of_tables_now(store, settings.corpus.manifest.keys, is_of_corpus):
        return [f"reading  none of the tables as they are now: materialize {OCR_SCORES}"], []
    each = [
        f"{row['benchmark']} {row['metric']} {row['value']:.3f} of {row['samples']} samples, {row['lost']} not read"
        for row in headline(scores)
    ]
    return [f"reading  {'; '.join(each)}"], significant_drops(scores)


def _pages_in(store: "ShardStore", assets: Sequence[_AssetStatus], states: Sequence[State]) -> list[str]:
    """A line for every page in one of the states, where it got there first."""
    lines: dict[str, str] = {}
    for each in assets:
        if not any(each.states[state] for state in states):
            continue
        for shard in each.made:
            if "page_id" in store.columns(each.asset, shard):
                for row in store.read(each.asset, shard, ["page_id", "state", "reason"]).to_pylist():
                    if row["state"] in states:
                        lines.setdefault(row["page_id"], f"{row['state']} in {each.asset}, {shard}: {row['reason']}")
    return [visible(f"{page_id} {end}") for page_id, end in lines.items()]


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A shard of which a run that was stopped, or still goes on, has finished rows."""

    asset: str
    shard: str
    finished: int
    rows: int


def _unfinished(settings: "Settings", scan: "Survey", is_of_corpus: "IsOfCorpus") -> Iterator[_Unfinished]:
    from resources.store.corpus_tables import TABLES
    from resources.store.table_store import JOURNAL

    store = settings.store
    for asset in scan.standings:
        begun = {name.partition("/")[0] for name in store.parts(JOURNAL, asset).names()}
        for shard in (shard for shard in settings.corpus.manifest.keys if shard in begun):
            ids = _ids(settings, asset, shard, is_of_corpus)
            finished: set[str] = set()
            for part in store.parts(JOURNAL, asset, shard).read():
                column = "query_id" if asset == TABLES.query_vectors.name else "page_id"
                rows = zip(part[column].to_pylist(), part["state"].to_pylist(), strict=True)
                finished |= {row_id for row_id, state in rows if state in FINAL and row_id in ids}
            if finished:
                yield _Unfinished(asset, shard, len(finished), len(ids))


def _ids(settings: "Settings", asset: str, shard: str, is_of_corpus: "IsOfCorpus") -> set[str]:
    """The ids that the indexed corpus has in a shard, as far as they are known without reading its pages."""
    from resources.store.corpus_tables import TABLES

    if asset == TABLES.query_vectors.name:
        return {query.query_id for query in settings.corpus.queries(shard)}
    if is_of_corpus(TABLES.pages.name, shard):
        return set(settings.store.read(TABLES.pages.name, shard, ["page_id"])["page_id"].to_pylist())
    return set()


def _last_run(last: "LastRun | None") -> Iterator[str]:
    if last:
        rows = sum(last.rows.values())
        yield f"last run {last.run_id[:8]} computed {rows:,} rows, until {last.ended:%Y-%m-%d %H:%M} UTC"
