"""An evaluation as a table on a terminal, and as JSON values."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from resources.evaluation.aggregate import ALL
from resources.printable import visible

if TYPE_CHECKING:
    from kopub_assets.evaluations.running import Evaluated
    from resources.evaluation.aggregate import Change
    from resources.evaluation.runs.gold_file import KnownAnswers
    from resources.evaluation.runs.home import Asked

_LISTED = 10
"""Samples that are left out, on a terminal; --json names them all."""
_NAME, _REASON = 60, 200


def show(known: "KnownAnswers", evaluated: "Sequence[Evaluated]", out: Console) -> None:
    """Print the scores of every profile side by side, and what differs from the first one."""
    out.print(_table(known, evaluated))
    for line in _skipped(evaluated):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    for each in known.benchmark.left_out[:_LISTED]:
        out.print(f"left out {visible(str(each))}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if len(known.benchmark.left_out) > _LISTED:
        out.print(f"and {len(known.benchmark.left_out) - _LISTED:,} more left out", style="yellow", highlight=False)
    for each in evaluated:
        out.print(f"{each.profile}: {each.compared}", markup=False, highlight=False, soft_wrap=True)
    for line in drops(evaluated):
        out.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    out.print(f"licence  {visible(known.benchmark.licence)}", markup=False, highlight=False, soft_wrap=True)
    for each in evaluated:
        out.print(f"tables   {each.settings.store.url}", markup=False, highlight=False, soft_wrap=True)


def as_json_values(asked: "Asked", known: "KnownAnswers", evaluated: "Sequence[Evaluated]") -> dict[str, Any]:
    """Everything the tables say, and the paired changes of every profile against the first."""
    benchmark = known.benchmark
    return {
        "benchmark": benchmark.name,
        "version": benchmark.version,
        "licence": benchmark.licence,
        "source": benchmark.source,
        "folder": str(asked.folder),
        "samples": len(benchmark.samples),
        "of": known.of,
        "left_out": [{"what": each.what, "reason": each.reason} for each in benchmark.left_out],
        "profiles": [
            {
                "profile": each.profile,
                "compared": each.compared,
                "accepted": each.run.accepted,
                "scores": each.scores.to_pylist(),
                "against_the_first": [
                    {"metric": metric, "slice": part, **_change_values(change)}
                    for (_, metric, part), change in _changes(evaluated[0], each).items()
                ],
            }
            for each in evaluated
        ],
    }


def drops(evaluated: "Sequence[Evaluated]") -> list[str]:
    """What each profile reads significantly worse than its last accepted run did."""
    from resources.evaluation.runs.comparison import significant_drops

    return [f"{each.profile}: {line}" for each in evaluated for line in significant_drops(each.scores)]


def _changes(first: "Evaluated", other: "Evaluated") -> "Mapping[tuple[str, str, str], Change]":
    from resources.evaluation.runs.comparison import changes_between

    return {} if first is other else changes_between(first.run.table, other.run.table)


def _change_values(change: "Change") -> dict[str, Any]:
    return {
        "samples": change.samples,
        "previous": change.previous,
        "value": change.value,
        "change": change.change,
        "low": change.low,
        "high": change.high,
        "worse": change.worse,
    }


def _skipped(evaluated: "Sequence[Evaluated]") -> list[str]:
    """The metrics that could not be computed of some samples, with the commonest reason."""
    return [
        f"{each.profile}: {row['metric']} was skipped for {row['skipped']} samples: "
        f"{visible(row['skipped_reason'] or '', _REASON)}"
        for each in evaluated
        for row in each.scores.to_pylist()
        if row["slice"] == ALL and row["skipped"]
    ]


def _table(known: "KnownAnswers", evaluated: "Sequence[Evaluated]") -> Table:
    benchmark = known.benchmark
    some = f"the first {len(benchmark.samples):,} of {known.of:,}" if len(benchmark.samples) < known.of else known.of
    title = f"{benchmark.name} {visible(benchmark.version, _NAME)}, {some} samples"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("metric", no_wrap=True)
    table.add_column("slice", overflow="fold")
    table.add_column("samples", justify="right", no_wrap=True)
    for at, each in enumerate(evaluated):
        table.add_column(each.profile, justify="right", overflow="fold")
        for column in ("95 %", "lost", *(("change", "95 %") if at else ())):
            table.add_column(column, justify="right", no_wrap=True)
    rows = [{(row["metric"], row["slice"]): row for row in each.scores.to_pylist()} for each in evaluated]
    changed = [_changes(evaluated[0], each) for each in evaluated]
    for metric, part in dict.fromkeys(name for of_profile in rows for name in of_profile):
        # Slices are shown of the headlines alone; --json has them all.
        if part != ALL and not any(
            of_profile[metric, part]["headline"] for of_profile in rows if (metric, part) in of_profile
        ):
            continue
        cells = [str(next(of_profile[metric, part]["samples"] for of_profile in rows if (metric, part) in of_profile))]
        for at, of_profile in enumerate(rows):
            cells += _cells(of_profile.get((metric, part)))
            if at:
                cells += _change_cells(changed[at].get((benchmark.name, metric, part)))
        table.add_row(metric, Text(visible(part, _NAME)), *cells)
    return table


def _cells(row: Mapping[str, Any] | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    if row["value"] is None:
        return ["skipped", "", str(row["lost"])]
    between = "" if row["low"] is None else f"{row['low']:.3f}-{row['high']:.3f}"
    return [f"{row['value']:.4f}", between, str(row["lost"])]


def _change_cells(change: "Change | None") -> list[str]:
    if change is None:
        return ["", ""]
    return [f"{change.change:+.4f}", f"{change.low:+.3f} to {change.high:+.3f}"]
