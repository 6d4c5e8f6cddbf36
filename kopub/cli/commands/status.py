"""`kopub status`: what was made, what is stale, and what to do next."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column
from rich.text import Text

from kopub.cli.console import count, plain_reason, print_json, print_table, right, said, say, table_console
from kopub.cli.options import (
    COMMAND,
    corpus_check,
    first_look_lines,
    first_looks,
    newer_lines,
    open_settings,
    told_reasons,
    with_profile,
)
from kopub.errors import DamagedTable, counted, visible
from kopub.pages.page_reader import changed_files
from kopub.release.files import differences
from kopub.states import FINAL, LOST, Reason, State, count_states, phrase
from kopub.store import ledger
from kopub.store.corpus_tables import RELEASED_FILES, TABLES
from kopub.store.table_source import FooterCache, IsOfCorpus
from kopub.store.table_store import JOURNAL, ShardStore

if TYPE_CHECKING:
    from kopub.cli.score_lines import ScriptNotRead
    from kopub.config.settings import Settings
    from kopub.store.ledger import LastRun
    from kopub.tables.plan import Survey

_LISTED = 20
"""Most lost pages listed on a terminal; the tables have them all."""
_MORE_LOST = "and {count:,} more that failed or are quarantined; kopub status --json lists them all"
_MORE_PARTIAL = "and {count:,} more that were read in part; kopub status --json lists them all"


def status(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show what was made, from which corpus, where it is stored, and what to run next."""
    settings = open_settings()
    if as_json:
        print_json(status_values(settings))
    else:
        show_status(settings, table_console())


def status_values(settings: "Settings") -> dict[str, Any]:
    """Return the status as JSON values, with all lost or partial pages. Raises `StoreError`."""
    from kopub.cli.score_lines import reading_values, retrieval_values

    status = _StatusValues.of(settings)
    store = settings.store
    todo, looks = _counts_to_do(status.assets), first_looks(settings.corpus.manifest)
    return {
        "profile": settings.profile_name,
        "corpus": settings.corpus.manifest.location,
        "tables": store.url,
        "release": str(settings.release.folder),
        "release_differs": status.release_differs,
        "files_differ": status.files_differ,
        "damage": status.damage,
        "shards": len(settings.corpus.manifest.keys),
        "assets": [asset.values(status.last) for asset in status.assets],
        "lost": status.lost,
        "partial": status.partial,
        "unfinished": list(map(asdict, status.unfinished)),
        "first_looks": looks,
        "scripts_not_read": list(map(asdict, status.scripts)),
        "unreadable": dict(status.unreadable),
        "retrieval": None if status.unreadable else retrieval_values(settings, status.is_of_corpus),
        "reading": None if status.unreadable else reading_values(settings, status.is_of_corpus),
        "last_run": status.last
        and {"run_id": status.last.run_id, "ended": status.last.ended.isoformat(), "rows": dict(status.last.rows)},
        "to_do": todo,
        "next": with_profile(COMMAND) if any(todo.values()) else next((look["command"] for look in looks), None),
    }


@dataclass(frozen=True)
class _StatusValues:
    """The status of a store: its tables by asset, unfinished shards and last run."""

    assets: "Sequence[_AssetStatus]"
    unfinished: "Sequence[_UnfinishedShard]"
    last: "LastRun | None"
    is_of_corpus: IsOfCorpus
    release_differs: Sequence[str]
    """The differences between the release folder and what was released."""
    files_differ: Sequence[str]
    """The differences between the files of the corpus and the indexed ones."""
    unreadable: Mapping[str, str]
    """The reasons why the tables of assets cannot be read; they count as missing."""
    lost: Sequence[dict[str, Any]]
    """The pages that failed or are quarantined, each with the first readable asset where it is."""
    partial: Sequence[dict[str, Any]]
    scripts: "Sequence[ScriptNotRead]"
    damage: Sequence[str]
    """The damaged tables, and files of corrections, for which everything that depends on corrections waits."""

    @classmethod
    def of(cls, settings: "Settings") -> "_StatusValues":
        from kopub.cli.score_lines import scripts_not_read
        from kopub.tables.plan import survey

        unreadable: dict[str, str] = {}
        damage: set[str] = set()
        scan = survey(settings.resources, FooterCache(settings.store), unreadable=unreadable, damage=damage)
        is_of_corpus = corpus_check(settings.corpus.manifest, settings.store).look(scan.tables)
        assets = [_AssetStatus.of(settings, scan, asset, is_of_corpus) for asset in scan.standings]
        unfinished = list(_unfinished(settings, scan, is_of_corpus))
        worked_on = {asset.asset: set(asset.made) for asset in assets}
        for shard in unfinished:
            worked_on[shard.asset].add(shard.shard)
        last = ledger.last_run(settings.store, worked_on)
        differs: list[str] = []
        released = next((asset.made for asset in assets if asset.asset == RELEASED_FILES.name), ())
        # Nothing is compared for a release at a URL, or before the first release.
        if released and settings.release.url is None:
            listed: dict[str, str] = {}
            # In a remote store, each table would take a request.
            for key in released if settings.store.local else ():
                rows = settings.store.read(RELEASED_FILES.name, key, ["path", "sha256"])
                listed.update(zip(rows["path"].to_pylist(), rows["sha256"].to_pylist(), strict=True))
            differs += differences(settings.release.root, listed)
        files_differ = list(changed_files(settings.corpus.manifest))
        lost, partial = (_pages_in(settings.store, assets, states, damage) for states in (LOST, (State.PARTIAL,)))
        scripts: Sequence[ScriptNotRead] = ()
        with _noted(damage):
            scripts = scripts_not_read(settings, is_of_corpus)
        return cls(
            *(assets, unfinished, last, is_of_corpus, differs, files_differ, unreadable),
            *(lost, partial, scripts, sorted(damage)),
        )


@contextmanager
def _noted(damage: set[str]) -> Iterator[None]:
    """Add what a damaged table raises to `damage`."""
    try:
        yield
    except DamagedTable as error:
        damage.add(str(error))


def show_status(settings: "Settings", out: Console) -> None:
    """Print the tables, lost rows, next commands, and where everything is."""
    from kopub.cli.score_lines import reading_lines, retrieval_lines

    status = _StatusValues.of(settings)
    store, assets = settings.store, status.assets
    _show_table(settings, assets, out)
    for line in status.damage:
        say(out, line, "red")
    for line in (
        *first_look_lines(settings.corpus.manifest),
        *status.files_differ,
        *_of_another_corpus(settings, assets),
        *newer_lines(sum(asset.newer for asset in assets)),
        *(script.line for script in status.scripts),
    ):
        say(out, line, "yellow")
    stored = told_reasons(store)
    for pages, style, more in (
        (status.lost, "red", _MORE_LOST),
        (status.partial, "yellow", _MORE_PARTIAL),
    ):
        for page in pages[:_LISTED]:
            say(out, visible(said(_lost_line(settings, page, stored))), style)
        if len(pages) > _LISTED:
            say(out, phrase(more, len(pages) - _LISTED), style)
    for shard in status.unfinished:
        form = "{asset} of {shard}: {finished:,} of {rows:,} rows are finished and kept for the next run"
        say(out, phrase(form, shard.asset, shard.shard, shard.finished, shard.rows))
    for asset, reason in status.unreadable.items():
        say(out, phrase("{asset} cannot be read, and counts as missing: {reason}", asset, reason), "red")
    # Scores are of all tables, so none are shown without some of them.
    for scores in (reading_lines, retrieval_lines) if not status.unreadable else ():
        lines, dropped = scores(settings, status.is_of_corpus)
        for line in lines:
            say(out, line, indent=9)
        for line in dropped:
            say(out, line, "red")
    if last := status.last:
        form = "last run {run} computed {rows:,} rows and ended {ended:%Y-%m-%d %H:%M} UTC"
        say(out, phrase(form, last.run_id[:8], sum(last.rows.values()), last.ended), indent=9)
    say(out, _to_do(settings, assets, status.files_differ), indent=9)
    say(out, phrase("corpus   {location}", settings.corpus.manifest.location), indent=9)
    say(out, phrase("tables   {url}/<asset>/<shard>.parquet", store.url), indent=9)
    say(out, phrase("release  {folder}", settings.release.folder), indent=9)
    for line in status.release_differs:
        say(out, line, "yellow", indent=9)
    say(out, "UI       kopub ui")


def _lost_line(settings: "Settings", page: dict[str, Any], stored: Mapping[str, Reason]) -> Reason:
    """Return a line on a lost page, with its source if the corpus has several."""
    manifest, reason = settings.corpus.manifest, page["reason"]
    source = f" ({manifest.shard(page['shard']).source})" if len(manifest.sources) > 1 else ""
    return phrase(
        "{page} {state} in {asset}, {shard}: {reason}",
        page["page_id"],
        page["state"],
        page["asset"],
        f"{page['shard']}{source}",
        plain_reason(page["page_id"], stored.get(reason, reason)),
    )


@dataclass(frozen=True)
class _AssetStatus:
    """The tables of one asset by shard: current, stale, or of another corpus."""

    asset: str
    made: Sequence[str]
    stale: int
    newer: int
    missing: int
    other: Sequence[str]
    rows: int
    states: Counter[str]
    tried_again: int

    @classmethod
    def of(cls, settings: "Settings", scan: "Survey", asset: str, is_of_corpus: IsOfCorpus) -> "_AssetStatus":
        from kopub.tables.staleness import Standing

        shards = [shard for shard in settings.corpus.manifest.keys if shard in scan.tables[asset]]
        made = [shard for shard in shards if is_of_corpus(asset, shard)]
        rows, standings, states = 0, list[Standing](), Counter[str]()
        for shard in made:
            entry = scan.tables[asset][shard]
            rows += entry.rows
            standings.append(scan.standings[asset][shard])
            if entry.made_with:
                states.update({State(state): count for state, count in entry.states.items()})
            elif "state" in settings.store.columns(asset, shard):
                states.update(count_states(settings.store.read(asset, shard, ["state"])["state"].to_pylist()))
        other = sorted(set(shards) - set(made))
        return cls(
            asset=asset,
            made=made,
            stale=sum(not standing.stands for standing in standings),
            newer=standings.count(Standing.NEWER),
            missing=len(settings.corpus.manifest.keys) - len(made),
            other=other,
            rows=rows,
            states=states,
            tried_again=sum(scan.tables[asset][shard].tried_again for shard in made),
        )

    def values(self, last: "LastRun | None") -> dict[str, Any]:
        """Return tables by standing, rows by state, and the last run's work."""
        return {
            "asset": self.asset,
            "made": len(self.made),
            "stale": self.stale,
            "newer": self.newer,
            "missing": self.missing,
            "of_another_corpus": len(self.other),
            "rows": self.rows,
            "states": {state.value: self.states[state] for state in State} if self.states else None,
            "computed": last.rows[self.asset] if last else None,
        }


def _show_table(settings: "Settings", assets: Sequence[_AssetStatus], out: Console) -> None:
    """Show the tables and rows of every asset, without empty columns."""
    keys = settings.corpus.manifest.keys
    pages = counted(settings.corpus.manifest.rows, "page")
    title = phrase("{pages} in {shards}, profile {profile}", pages, counted(len(keys), "shard"), settings.profile_name)
    styles = {"stale": "yellow"} | dict.fromkeys(State, "") | {State.PARTIAL: "yellow"} | dict.fromkeys(LOST, "red")
    counts = [{"stale": asset.stale, **asset.states} for asset in assets]
    shown = {name: style for name, style in styles.items() if any(numbers.get(name) for numbers in counts)}
    rows: list[list[str | Text]] = []
    for asset, numbers in zip(assets, counts, strict=True):
        cells = [
            asset.asset,
            Text(f"{len(asset.made)}/{len(keys)}", "yellow" if asset.missing else ""),
            f"{asset.rows:,}",
        ]
        for name, style in shown.items():
            cells.append(count(numbers.get(name, 0), style) if asset.states or name == "stale" else "")
        rows.append(cells)
    print_table(out, [Column("asset"), *right("shards", "rows", *shown)], rows, title)


def _of_another_corpus(settings: "Settings", assets: Sequence[_AssetStatus]) -> Iterator[str]:
    other = sum(len(asset.other) for asset in assets)
    if other:
        yield phrase(
            "{tables} in the store {are} of another corpus than {location}: counted as missing, and replaced when made "
            "anew",
            counted(other, "table"),
            "is" if other == 1 else "are",
            settings.corpus.manifest.location,
        )


def _to_do(settings: "Settings", assets: Sequence[_AssetStatus], files_differ: Sequence[str]) -> str:
    """Return the line with the next command, or that there is nothing to do."""
    counts = _counts_to_do(assets)
    forms = (
        ("missing", "table", "{tables} {are} missing"),
        ("stale", "table", "{tables} {are} stale"),
        ("failed", "row", "{rows} {are} tried again"),
    )
    todo: list[str] = []
    for name, unit, form in forms:
        if number := counts[name]:
            todo.append(phrase(form, counted(number, unit), "is" if number == 1 else "are"))
    if todo:
        return phrase("next     {command}  ({reason})", with_profile(COMMAND), ", ".join(map(said, todo)))
    if files_differ:
        return phrase(
            "next     {command}  (its files have changed since they were indexed)", with_profile("kopub index SOURCE")
        )
    if looks := first_looks(settings.corpus.manifest):
        return phrase("next     {command}  (the rest of its pages)", looks[0]["command"])
    # Rows stay quarantined until their files change.
    quarantined = max((asset.states[State.QUARANTINED] for asset in assets), default=0)
    lost = phrase(", but {pages} quarantined until the files change", counted(quarantined, "page"))
    form = "next     nothing: every table is current{lost}, and another run would compute nothing"
    return phrase(form, lost if quarantined else "")


def _counts_to_do(assets: Sequence[_AssetStatus]) -> dict[str, int]:
    counts = {"missing": 0, "stale": 0, "failed": 0}
    for asset in assets:
        counts["missing"] += asset.missing
        counts["stale"] += asset.stale
        counts["failed"] += asset.tried_again
    return counts


def _pages_in(
    store: ShardStore, assets: Sequence[_AssetStatus], states: Sequence[State], damage: set[str]
) -> list[dict[str, Any]]:
    """Return every page in one of the states, with the first readable asset where it is."""
    pages: dict[str, dict[str, Any]] = {}
    for asset in assets:
        if not any(asset.states[state] for state in states):
            continue
        for shard in asset.made:
            if "page_id" not in store.columns(asset.asset, shard):
                continue
            with _noted(damage):
                for row in store.read(asset.asset, shard, ["page_id", "state", "reason"]).to_pylist():
                    if row["state"] in states:
                        pages.setdefault(row["page_id"], {**row, "asset": asset.asset, "shard": shard})
    return list(pages.values())


@dataclass(frozen=True, slots=True)
class _UnfinishedShard:
    """A shard with finished rows of a run that has not ended."""

    asset: str
    shard: str
    finished: int
    rows: int


def _unfinished(settings: "Settings", scan: "Survey", is_of_corpus: IsOfCorpus) -> Iterator[_UnfinishedShard]:
    store = settings.store
    begun = {tuple(name.split("/", 2)[:2]) for name in store.parts(JOURNAL).names()}
    for asset in scan.standings:
        for shard in settings.corpus.manifest.keys:
            if (asset, shard) not in begun:
                continue
            # The ids that are known without reading the shard's pages.
            ids: set[str] = set()
            if asset == TABLES.query_vectors.name:
                ids.update(query.query_id for query in settings.corpus.queries(shard))
            elif is_of_corpus(TABLES.pages.name, shard):
                ids.update(store.read(TABLES.pages.name, shard, ["page_id"])["page_id"].to_pylist())
            finished: set[str] = set()
            for part in store.parts(JOURNAL, asset, shard).read():
                column = "query_id" if asset == TABLES.query_vectors.name else "page_id"
                rows = zip(part[column].to_pylist(), part["state"].to_pylist(), strict=True)
                finished |= {row_id for row_id, state in rows if state in FINAL and row_id in ids}
            if finished:
                yield _UnfinishedShard(asset, shard, len(finished), len(ids))
