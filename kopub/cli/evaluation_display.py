"""An evaluation on a terminal, and as JSON values."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from kopub.cli.console import count, print_table, right, said, say
from kopub.config.settings import Settings
from kopub.diff.html import EmbeddedPicture
from kopub.errors import SourceError, UndecodableImage, counted, visible
from kopub.evaluation.benchmark import OWN_PAGES
from kopub.evaluation.metrics import ALL, METRICS, PairedChange
from kopub.evaluation.reading_scores import changes_between, readings, scores_of, significant_drops
from kopub.evaluation.report import Side, render
from kopub.evaluation.scoring import ADAPTERS
from kopub.files import replace_bytes
from kopub.pages.corpus import Corpus
from kopub.pages.drawing import preview
from kopub.states import State, phrase
from kopub.store.corpus_tables import TABLES
from kopub.tables.progress import Watcher, watched_by

if TYPE_CHECKING:
    from kopub.evaluation.home import EvaluationRequest, KnownAnswers
    from kopub.tables.evaluations import Evaluation

_LISTED = 10
"""Most left-out samples named on a terminal; --json names them all."""
_NAME, _REASON = 60, 200


def show(known: "KnownAnswers", evaluated: "Sequence[Evaluation]", out: Console) -> None:
    """Print the scores of every profile, and how they differ from the first."""
    _show_scores(known, evaluated, out)
    form = "{profile}: {metric} was skipped for {samples}: {reason}"
    for evaluation in evaluated:
        for row in evaluation.scores.to_pylist():
            if row["slice"] == ALL and row["skipped"]:
                # The reason is the commonest one.
                reason = visible(row["skipped_reason"] or "", _REASON)
                line = phrase(form, evaluation.profile, row["metric"], counted(row["skipped"], "sample"), reason)
                say(out, line, "yellow")
    for omission in known.benchmark.left_out[:_LISTED]:
        say(out, visible(said(phrase("left out {reason}", str(omission)))), "yellow")
    if len(known.benchmark.left_out) > _LISTED:
        say(out, phrase("and {count:,} more left out", len(known.benchmark.left_out) - _LISTED), "yellow")
    for evaluation in evaluated:
        say(out, phrase("{profile}: {reason}", evaluation.profile, evaluation.compared))
    # What each profile reads significantly worse than in its last accepted run.
    for evaluation in evaluated:
        for line in significant_drops(evaluation.scores):
            say(out, phrase("{profile}: {reason}", evaluation.profile, line), "red")
    if known.benchmark.licence != OWN_PAGES:
        say(out, phrase("licence of the benchmark: {licence}", visible(known.benchmark.licence)))
    for evaluation in evaluated:
        say(out, phrase("tables of {profile}: {url}", evaluation.profile, evaluation.settings.store.url))


def as_json_values(
    asked: "EvaluationRequest", known: "KnownAnswers", evaluated: "Sequence[Evaluation]"
) -> dict[str, Any]:
    """Return all contents of the tables, and each profile's paired changes."""
    benchmark = known.benchmark
    profiles: list[dict[str, Any]] = []
    for evaluation in evaluated:
        changes: list[dict[str, Any]] = []
        for (_, metric, part), change in _changes(evaluated[0], evaluation).items():
            figures = ("samples", "previous", "value", "change", "low", "high", "worse")
            values = {name: getattr(change, name) for name in figures}
            changes.append({"metric": metric, "slice": part, **values})
        profiles.append(
            {
                "profile": evaluation.profile,
                "compared": evaluation.compared,
                "accepted": evaluation.run.accepted,
                "scores": evaluation.scores.to_pylist(),
                "against_the_first": changes,
            }
        )
    return {
        "benchmark": benchmark.name,
        "version": benchmark.version,
        "licence": benchmark.licence,
        "source": benchmark.source,
        "folder": str(asked.folder),
        "samples": len(benchmark.samples),
        "of": known.of,
        "left_out": [{"what": omission.what, "reason": omission.reason} for omission in benchmark.left_out],
        "profiles": profiles,
    }


def _changes(first: "Evaluation", other: "Evaluation") -> Mapping[tuple[str, str, str], PairedChange]:
    return {} if first is other else changes_between(first.run.table, other.run.table)


def _show_scores(known: "KnownAnswers", evaluated: "Sequence[Evaluation]", out: Console) -> None:
    benchmark = known.benchmark
    rows = [{(row["metric"], row["slice"]): row for row in evaluation.scores.to_pylist()} for evaluation in evaluated]
    changed = [_changes(evaluated[0], evaluation) for evaluation in evaluated]
    several = len(evaluated) > 1
    shown: dict[tuple[str, str], None] = {}
    for name in dict.fromkeys(name for of_profile in rows for name in of_profile):
        # Slices are shown only for the headlines; --json has them all.
        if name[1] == ALL or any(of_profile.get(name, {}).get("headline") for of_profile in rows):
            shown[name] = None
    # A column with the same value in every row would only take room.
    has_slices = has_counts = False
    for of_profile in rows:
        for row in map(of_profile.get, shown):
            if row is not None:
                has_slices |= row["slice"] != ALL
                has_counts |= row["samples"] != len(benchmark.samples)
    columns = [Column("metric"), *([Column("slice")] if has_slices else []), *([Column("profile")] if several else [])]
    columns += right("value", "95 % interval", *(["samples"] if has_counts else []), "not read")
    columns += right("change", "95 % interval") if several else []
    cells: list[list[str | Text]] = []
    for name in shown:
        for at, (evaluation, of_profile) in enumerate(zip(evaluated, rows, strict=True)):
            if (row := of_profile.get(name)) is None:
                continue
            part = [Text(visible(name[1], _NAME))] if has_slices else []
            profile = [visible(evaluation.profile, _NAME)] if several else []
            counts = [f"{row['samples']:,}"] if has_counts else []
            between = "" if row["low"] is None else phrase("{low:.3f} to {high:.3f}", row["low"], row["high"])
            value = [said("skipped"), ""] if row["value"] is None else [f"{row['value']:.4f}", between]
            change = _change_cells(changed[at].get((benchmark.name, *name))) if several else []
            cells.append([name[0], *part, *profile, *value, *counts, count(row["lost"], "red"), *change])
    samples = counted(known.of, "sample")
    if len(benchmark.samples) < known.of:
        samples = phrase("the first {count:,} of {samples}", len(benchmark.samples), samples)
    form, version = "{benchmark}, version {version}: {samples}", visible(benchmark.version, _NAME)
    print_table(out, columns, cells, phrase(form, benchmark.name, version, samples))
    if several:
        say(out, phrase("change: against {profile}, paired by sample", visible(evaluated[0].profile, _NAME)), "dim")
    for metric in dict.fromkeys(metric for metric, _ in shown):
        lower = METRICS[metric].lower_is_better
        form = "{metric}: {meaning} Lower is better." if lower else "{metric}: {meaning} Higher is better."
        say(out, phrase(form, metric, METRICS[metric].says), "dim")


def _change_cells(change: PairedChange | None) -> list[str | Text]:
    """Return cells, red where readings are significantly worse than the first profile's."""
    if change is None:
        return ["", ""]
    style = "red" if change.worse else ""
    between = said(phrase("{low:+.3f} to {high:+.3f}", change.low, change.high))
    return [Text(f"{change.change:+.4f}", style), Text(between, style)]


class _Bars(Watcher):
    """A bar for each table: the computed share of the rows to compute."""

    def __init__(self, bars: Progress, profile: str) -> None:
        self._bars = bars
        self._profile = profile
        self._tasks: dict[str, TaskID] = {}
        self._rows: dict[str, int] = {}

    def began(self, asset: str) -> None:
        self._tasks[asset] = self._bars.add_task(f"{self._profile} {asset}", total=None)

    def planned(self, asset: str, shard: str, rows: int) -> None:
        self._rows[asset] = self._rows.get(asset, 0) + rows
        self._bars.update(self._tasks[asset], total=self._rows[asset])

    def computed(self, asset: str, shard: str, state: State = State.OK) -> None:
        self._bars.advance(self._tasks[asset])

    def warned(self, asset: str, message: str) -> None:
        say(self._bars.console, phrase("{asset}: {reason}", asset, message), "yellow")

    def ended(self, asset: str) -> None:
        rows = self._rows.get(asset, 0)
        self._bars.update(self._tasks[asset], total=rows, completed=rows)


@contextmanager
def reading(settings: Settings, out: Console) -> Iterator[None]:
    """Show the table in the making and its finished rows, until done."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = Progress(*columns, console=out, transient=True, disable=not out.is_terminal)
    with shown as bars, watched_by(_Bars(bars, settings.profile_name)):
        yield


_PICTURE_BYTES = 60_000
_PICTURE_COLUMNS = ["page_id", "page_idx", "sha256", "upright"]
"""Columns of `raw_pages` that find a page's picture and set it upright."""


def write_page(path: Path, known: "KnownAnswers", evaluated: "Sequence[Evaluation]", pages: int) -> None:
    """Write the file; the worst `pages` samples have pictures. Raises `StoreError`."""
    benchmark = known.benchmark
    settings = evaluated[0].settings
    rows: dict[str, tuple[str, dict[str, Any]]] = {}
    for shard in settings.corpus.manifest.keys:
        for row in settings.store.read(TABLES.pages.name, shard, _PICTURE_COLUMNS).to_pylist():
            rows[row["page_id"]] = (shard, row)

    def picture(page_id: str) -> EmbeddedPicture | None:
        return picture_of(settings.corpus, *rows[page_id], _PICTURE_BYTES) if page_id in rows else None

    sides: list[Side] = []
    for evaluation in evaluated:
        texts = dict(readings(evaluation.settings.store, evaluation.settings.corpus.manifest.keys))
        means = [row for row in evaluation.scores.to_pylist() if row["slice"] == ALL]
        changes = {}
        for (_, metric, part), change in _changes(evaluated[0], evaluation).items():
            if part == ALL:
                changes[metric] = change
        sides.append(
            Side(evaluation.profile, texts, scores_of(benchmark.name, evaluation.run.table)[1], means, changes)
        )
    page = render(benchmark, known.of, sides, ADAPTERS[benchmark.name].headline, picture, pages)
    replace_bytes(path, page.encode("utf-8", "backslashreplace"))


def picture_of(corpus: Corpus, shard: str, page: Mapping[str, Any], most: int) -> EmbeddedPicture | None:
    """Return the upright page of a row of `raw_pages` in at most `most` bytes.

    None if it cannot be read or has changed.
    """
    try:
        with corpus.reader(shard) as source:
            image = source.page_of(page).image
    except (SourceError, UndecodableImage):
        return None
    height, width = image.shape[:2]
    return EmbeddedPicture(preview(image, max_bytes=most), width, height)
