"""The report of the whole graph's benchmark: a table per case, sentences, JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.whole_graph.cases import Case
from kopub.profiling.observer import Observations
from kopub.profiling.report import ReportTable, RunReport, RunSection, StageReport, section

_STAGES = (
    "stage", "pages", "wall s", "pages/s", "steady", "by itself", "share", "starting", "ramping", "working", "waiting",
    "draining", "platform", "between shards", "busy", "cores", "stolen", "requests", "tokens in/page", "J/page",
    "cache hits",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A measured case: its report, the observations, and the servers' keys by asset.

    `host` are the core seconds by stage and kind of process.
    """

    case: Case
    pages: int
    run: RunReport
    observed: Observations
    host: Mapping[str, Mapping[str, float]]
    servers: Mapping[str, str]
    failures: Sequence[str]

    @property
    def pages_per_second(self) -> float:
        """Return the pages a second from the command's start to its end."""
        return self.pages / self.run.span.seconds

    @property
    def stages_per_second(self) -> float:
        """Return the pages a second from the first stage's start to the command's end."""
        return self.pages / max(1e-9, self.run.span.seconds - self.run.loading)


def console_tables(measured: Measured, own: Mapping[str, float], out: Console) -> None:
    for table in _tables(measured, own):
        shown = RichTable(title=f"{measured.case.name}: {table.title}", title_justify="left", box=None, padding=(0, 1))
        for column in table.head:
            first = column == table.head[0]
            shown.add_column(column, justify="left" if first else "right", no_wrap=first)
        for row in table.rows:
            shown.add_row(*row)
        out.print(shown)
    for line in _lines(measured):
        out.print(line, markup=False)


def html_section(measured: Measured, own: Mapping[str, float]) -> RunSection:
    title = f"{measured.case.name}: {measured.pages} pages"
    return section(title, measured.run, measured.observed, _tables(measured, own), _lines(measured))


def comparisons(cases: Sequence[Measured]) -> list[str]:
    """Return lines that compare cases with the cases that they are variants of."""
    lines = []
    by_name = {each.case.name: each for each in cases}
    for each in cases:
        reference = by_name.get({"shards8": "warm", "two_gpus": "ocr"}.get(each.case.base, each.case.base))
        if reference is None or reference is each or each.failures or reference.failures:
            continue
        seconds = each.run.span.seconds / reference.run.span.seconds * reference.pages / each.pages
        lines.append(f"{each.case.name}: {seconds:.3f} of the time of {reference.case.name}")
        theirs = {stage.stage.name: stage for stage in reference.run.stages}
        lines += [
            f"  {stage.stage.name}: {stage.rate:.1f} against {theirs[stage.stage.name].rate:.1f} pages/s, "
            f"{stage.rate / theirs[stage.stage.name].rate:.2f} times"
            for stage in each.run.stages
            if stage.stage.name in theirs and theirs[stage.stage.name].rate
        ]
    return lines


def figures(measured: Measured) -> dict[str, Any]:
    """Return a case as JSON values."""
    run, began = measured.run, measured.run.span.start
    return {
        "case": measured.case.name,
        "pages": measured.pages,
        "seconds": run.span.seconds,
        "pages_per_second": measured.pages_per_second,
        "pages_per_second_of_stages": measured.stages_per_second,
        "busy": run.busy,
        "device": run.device,
        "loading": run.loading,
        "between": run.between,
        "ending": run.ending,
        "idle_between": {f"{a} to {b}": seconds for (a, b), seconds in run.idle_between.items()},
        "stages": {
            each.stage.name: {
                "start": each.stage.span.start - began,
                "seconds": each.stage.span.seconds,
                "computed": each.stage.computed,
                "pages_per_second": each.rate,
                "steady": each.steady,
                **asdict(each.split),
                "between_shards": list(each.gaps),
                "busy": each.busy,
                "cores": each.cores,
                "stolen": each.stolen,
                "gpu": dict(each.gpu),
                "cache_hits": each.cache_hits,
                "figures": {
                    shard: {name: value for name, value in values.items() if isinstance(value, int | float | str)}
                    for shard, values in each.stage.metadata.items()
                },
            }
            for each in run.stages
        },
        "moments": _moments(measured),
        "core_seconds": measured.host,
        "failures": list(measured.failures),
    }


def _tables(measured: Measured, own: Mapping[str, float]) -> list[ReportTable]:
    stages = ReportTable("stages", _STAGES, [_row(each, own) for each in measured.run.stages])
    moments = [(what, f"{seconds:.1f}") for what, seconds in _moments(measured).items()]
    tables = [stages, _host(measured)]
    if moments:
        tables.append(ReportTable("from the command to", ("", "seconds"), moments))
    return tables


def _host(measured: Measured) -> ReportTable:
    """Return the core milliseconds a page, by stage and kind of process."""
    kinds = sorted({kind for sums in measured.host.values() for kind in sums})
    rows = [
        (name, *(sums.get(kind, 0.0) for kind in kinds), sum(sums.values())) for name, sums in measured.host.items()
    ]
    total = ("all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True)))
    shown = [(row[0], *(f"{1000 * seconds / measured.pages:.0f}" for seconds in row[1:])) for row in [*rows, total]]
    return ReportTable("core milliseconds a page", ("stage", *kinds, "all"), shown)


def _row(each: StageReport, own: Mapping[str, float]) -> tuple[str, ...]:
    alone, split = own.get(each.stage.name), each.split
    pages = each.stage.computed
    return (
        each.stage.name + ("" if each.stage.succeeded else " (failed)"),
        str(pages),
        f"{each.stage.span.seconds:.1f}",
        f"{each.rate:.1f}",
        f"{each.steady:.1f}" if each.steady else "-",
        f"{alone:.1f}" if alone else "-",
        f"{each.rate / alone:.0%}" if alone else "-",
        *(f"{seconds:.1f}" for seconds in split),
        " ".join(f"{gap:.1f}" for gap in each.gaps) or "-",
        "-" if each.busy is None else f"{each.busy:.0%}",
        f"{each.cores:.0%}",
        f"{each.stolen:.0%}",
        f"{each.requests:.0f}",
        f"{each.prompt_tokens / pages:.0f}" if pages and each.prompt_tokens else "-",
        f"{each.gpu['gpu_joules'] / pages:.1f}" if pages and each.gpu.get("gpu_joules") else "-",
        f"{each.cache_hits:.0f}",
    )


def _lines(measured: Measured) -> list[str]:
    run = measured.run
    lines = [
        f"{measured.pages} pages in {run.span.seconds:.1f} s: {measured.pages_per_second:.2f} pages/s; "
        f"{measured.stages_per_second:.2f} from the first stage on; {run.device} busy {run.busy:.0%}",
        f"not in a stage: {run.loading:.1f} s before the first, {run.between:.1f} s between them, "
        f"{run.ending:.1f} s after the last",
    ]
    total = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in asdict(run.split).items())
    lines.append(f"in the stages: {total}")
    lines += [
        f"without work for the {run.device} from {a} to {b}: {seconds:.1f} s"
        for (a, b), seconds in run.idle_between.items()
    ]
    longest = sorted(run.idle, key=lambda gap: -gap.seconds)[:5]
    if longest:
        begins = ", ".join(f"{gap.seconds:.1f} s from {gap.start - run.span.start:.0f} s on" for gap in longest)
        lines.append(f"longest times without work: {begins}")
    if run.slowed:
        lines.append(run.slowed)
    if measured.observed.no_gpu:
        lines.append(f"no figures of a GPU: {measured.observed.no_gpu}; activity is that of the cores")
    return [*lines, *measured.failures]


def first_growth(counts: Sequence[tuple[float, float]]) -> float | None:
    """Return the time when the count was first seen above its first value."""
    return next((at for at, count in counts if count > counts[0][1]), None)


def _moments(measured: Measured) -> dict[str, float]:
    """Return the seconds from the command's start to the events that a user waits for."""
    began, moments = measured.run.span.start, {}
    for each in measured.run.stages[:1]:
        moments["the first stage"] = each.stage.span.start - began
    used = set(measured.servers.values())
    for key, history in measured.observed.servers.items():
        name = Path(history.model).name
        for start in history.starts:
            moments[f"the start of the server of {name}"] = start.start - began
            moments[f"the server of {name} up"] = start.end - began
        # The requests that check whether a server is ready come before the first observation.
        answered = first_growth(history.requests)
        if answered is not None and key in used:
            moments[f"the first answer of the server of {name}"] = answered - began
    return moments
