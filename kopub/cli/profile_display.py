"""The display of `kopub profile`: stages, their limits, the slowest pages and regions."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kopub.config.settings import Settings
from kopub.engine import Engine
from kopub.errors import counted, visible
from kopub.profiling.observer import Observations, SampleHome
from kopub.profiling.report import (
    ReportTable,
    RunReport,
    RunSection,
    RunStage,
    StageReport,
    render,
    report,
    section,
)
from kopub.profiling.timeline import Limit, Span, limit
from kopub.recognition.step_times import StepTime, step_times
from kopub.states import Reason, phrase
from kopub.store import ledger
from kopub.store.corpus_tables import RELEASED_FILES, SUNK_CHUNKS, TABLES
from kopub.store.table_store import ShardStore
from kopub.tables.graph import GRAPH
from kopub.weights.hub import managed_server

if TYPE_CHECKING:
    import dagster as dg

_SLOWEST = 5


@dataclass(frozen=True)
class RunProfile:
    """A run on some pages: its report, observations, limits and slowest work."""

    pages: int
    profile: str
    run: RunReport
    observed: Observations
    limits: dict[str, Limit]
    settings: Settings
    steps: Sequence[StepTime]
    slow_pages: Sequence[tuple[str, str, float]]
    slow_regions: Sequence[tuple[str, str, float]]

    @property
    def lines(self) -> list[str]:
        """Return the most important facts in sentences."""
        run = self.run
        form = (
            "{pages} in {seconds:.1f} s, {rate:.2f} pages/s; {loading:.1f} s before the first stage, {between:.1f} s "
            "between and after them; {device} busy {busy:.0%}"
        )
        pages, seconds, between = counted(self.pages, "page"), run.span.seconds, run.between + run.ending
        lines: list[str] = [
            phrase(form, pages, seconds, self.pages / seconds, run.loading, between, Reason(run.device), run.busy)
        ]
        for stage in run.stages:
            cause = self.limits[stage.stage.name]
            if not cause.name:
                continue
            line = phrase("{stage} is limited by {limit}: {reason}", stage.stage.name, Reason(cause.name), cause.why)
            # Keys of the profile as a person writes them, with their values.
            section_name = GRAPH.by_name[stage.stage.name].engine_section or ""
            keys: list[str] = []
            for key in cause.keys:
                value: Any = attrgetter(key)(self.settings.resources[section_name])
                keys.append(f"{section_name}.{key} ({'null' if value is None else value})")
            lines.append(phrase("{reason}; settings that affect it: {keys}", line, ", ".join(keys)) if keys else line)
        if run.slowed:
            lines.append(run.slowed)
        if self.observed.no_gpu:
            lines.append(phrase("no figures of a GPU: {reason}", self.observed.no_gpu))
        return lines


def stages_to_run(settings: Settings) -> list[str]:
    """Return every asset made from pages; a release or sink of some pages is useless."""
    return [name for name in GRAPH.on(settings.resources).names if name not in (RELEASED_FILES.name, SUNK_CHUNKS.name)]


def stages_of(instance: "dg.DagsterInstance", run_id: str) -> list[RunStage]:
    """Return the stages of a run in the order of their starts.

    A stage that did not end lasts until the last event. One that was begun ahead of its step lasts from then on.
    """
    import dagster as dg

    stages: dict[str, RunStage] = {}
    begun: dict[str, float] = {}
    ended: set[str] = set()
    last = 0.0
    for entry in instance.all_logs(run_id):
        last = max(last, entry.timestamp)
        event = entry.dagster_event
        if event is None:
            continue
        if event.event_type is dg.DagsterEventType.STEP_START and event.step_key:
            begun[event.step_key] = entry.timestamp
            stages[event.step_key] = RunStage(event.step_key, Span(entry.timestamp, entry.timestamp), succeeded=False)
        elif event.event_type in (dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE):
            stage = stages[str(event.step_key)]
            stage.span = Span(stage.span.start, entry.timestamp)
            stage.succeeded = event.event_type is dg.DagsterEventType.STEP_SUCCESS
            ended.add(stage.name)
        elif event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
            materialization = event.step_materialization_data.materialization
            stage = stages[materialization.asset_key.to_user_string()]
            metadata: dict[str, Any] = {name: value.value for name, value in materialization.metadata.items()}
            stage.metadata[materialization.partition or ""] = metadata
            if "published" in metadata:
                stage.shards[materialization.partition or ""] = metadata["published"]
            stage.span = Span(begun[stage.name] - metadata.get("seconds_before_step", 0.0), stage.span.end)
    for stage in stages.values():
        stage.computed = int(stage.figure("computed"))
        if stage.name not in ended:
            stage.span = Span(stage.span.start, last)
    return sorted(stages.values(), key=lambda stage: stage.span.start)


def profile_run(
    settings: Settings, home: SampleHome, began: float, ended: float, observed: Observations, steps: Path
) -> RunProfile:
    """Return the profile of a run in `home`.

    `steps` is the file with the times of the steps of OCR.
    """
    import dagster as dg

    with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
        stages: list[RunStage] = []
        for dagster_run in instance.get_runs():
            stages += stages_of(instance, dagster_run.run_id)
    keys: dict[str, str] = {}
    for name in GRAPH.names:
        engine = settings.resources.get(GRAPH.by_name[name].engine_section or "")
        if isinstance(engine, Engine) and (server := managed_server(engine)) is not None:
            keys[name] = server.key
    run = report(Span(began, ended), stages, observed, keys)
    limits: dict[str, Limit] = {}
    for entry in run.stages:
        section_name = GRAPH.by_name[entry.stage.name].engine_section
        engine = settings.resources.get(section_name or "")
        has: list[str] = []
        if isinstance(engine, Engine):
            has = [*type(engine).model_fields]
            server = getattr(engine, "server", None)
            has += [f"server.{name}" for name in (type(server).model_fields if server is not None else ())]
        seconds, cores = entry.stage.span.seconds, entry.cores + entry.stolen
        limits[entry.stage.name] = limit(section_name, seconds, entry.split, entry.busy, cores, has)
    store = ShardStore(url=home.environment["KOPUB_STORE__URL"])
    slow_pages, slow_regions = _slowest(store, home.shards)
    return RunProfile(
        pages=home.pages,
        profile=settings.profile_name,
        run=run,
        observed=observed,
        limits=limits,
        settings=settings,
        steps=step_times(steps),
        slow_pages=slow_pages,
        slow_regions=slow_regions,
    )


def tables(profile: RunProfile) -> list[ReportTable]:
    """Return the stages, the slowest pages and the slowest regions, as text."""
    head = ["stage", "wall s", "pages/s", "start s", "CPU s"]
    head += ["requests", "tokens in", "tokens out", "limited by"]
    stages = [ReportTable("stages", head, [_row(entry, profile) for entry in profile.run.stages])]
    if profile.observed.cards:
        rows: list[list[str]] = []
        for entry in profile.run.stages:
            cells = [entry.stage.name]
            for names, form in _GPU_FIGURES:
                figures = [form.format(entry.gpu[name]) for name in names if name in entry.gpu]
                cells.append(", ".join(figures) or "-")
            joules = entry.gpu.get("gpu_joules")
            rows.append([*cells, "-" if joules is None else f"{joules / 3600:.2f}"])
        stages.append(ReportTable("GPU: mean, median, most", _GPU_HEAD, rows))
    if profile.steps:
        rows = []
        for step in profile.steps:
            milliseconds = [f"{1000 * seconds:.1f}" for seconds in (step.mean, step.p50, step.p95)]
            rows.append([step.step, str(step.calls), f"{step.seconds:.1f}", f"{step.share:.0%}", *milliseconds])
        stages.append(ReportTable("inside OCR", _STEP_HEAD, rows))
    for title, slowest in (("slowest pages", profile.slow_pages), ("slowest regions", profile.slow_regions)):
        if slowest:
            cells = [(visible(name), of, f"{seconds:.2f}") for name, of, seconds in slowest]
            stages.append(ReportTable(title, ["", "of", "seconds"], cells))
    return stages


def page_of(profile: RunProfile) -> str:
    """Return the HTML page."""
    title = f"{counted(profile.pages, 'page')} with profile {profile.profile}"
    shown: RunSection = section("Timeline", profile.run, profile.observed, tables(profile), profile.lines)
    return render(title, [shown])


_STEP_HEAD = ["step", "calls", "seconds", "share", "mean ms", "p50 ms", "p95 ms"]
_GPU_HEAD = ["stage", "busy", "memory busy", "GiB in use", "Wh"]
_GPU_FIGURES = (
    (("gpu_busy", "gpu_busy_median", "gpu_busy_max"), "{:.0%}"),
    (("gpu_memory_busy", "gpu_memory_busy_median", "gpu_memory_busy_max"), "{:.0%}"),
    (("gpu_memory_used_gib", "gpu_memory_used_median_gib", "gpu_memory_used_peak_gib"), "{:.1f}"),
)


def _row(entry: StageReport, profile: RunProfile) -> list[str]:
    stage = entry.stage
    cells = [
        stage.name,
        f"{stage.span.seconds:.1f}",
        f"{entry.rate:.2f}",
        f"{entry.split.starting:.1f}",
        f"{entry.cores * (os.cpu_count() or 1) * stage.span.seconds:.1f}",
    ]
    requests = entry.requests
    if not requests:
        for figures in stage.metadata.values():
            requests += sum(float(value) for name, value in figures.items() if name.startswith("finished_"))
    tokens_in = stage.figure("prompt_tokens") or entry.prompt_tokens
    tokens_out = stage.figure("generated_tokens") or entry.generated_tokens
    cells += [f"{count:.0f}" if count else "-" for count in (requests, tokens_in, tokens_out)]
    return [*cells, Reason(profile.limits[stage.name].name or "-")]


_Cost = tuple[str, str, float]


def _slowest(store: ShardStore, shards: Sequence[str]) -> tuple[list[_Cost], list[_Cost]]:
    """Return the slowest pages (page, asset, seconds) and regions (page and region, label, seconds)."""
    pages: list[_Cost] = []
    regions: list[_Cost] = []
    for asset in GRAPH.names:
        for shard in shards:
            rows = ledger.read(store, asset, shard).select(["row_id", "seconds"]).to_pylist()
            # Pages with a share of their shard's cost have none of their own.
            if len({row["seconds"] for row in rows}) > 1:
                pages += [(row["row_id"], asset, row["seconds"]) for row in rows if row["seconds"] is not None]
    for shard in shards:
        for row in store.read(TABLES.readings.name, shard).select(["page_id", "regions"]).to_pylist():
            for region in row["regions"] or ():
                if region["seconds"]:
                    name = f"{row['page_id']}, region {region['index']}"
                    regions.append((name, region["native_label"], region["seconds"]))
    pages.sort(key=lambda page: -page[2])
    regions.sort(key=lambda region: -region[2])
    return pages[:_SLOWEST], regions[:_SLOWEST]
