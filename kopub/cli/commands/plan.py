"""`kopub plan`: what a change makes stale, why, and what it costs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column
from rich.text import Text

from kopub.cli.console import count, duration, print_json, print_table, right, said, say, table_console
from kopub.cli.options import COMMAND, corpus_check, first_look_lines, newer_lines, with_profile
from kopub.errors import ConfigError, counted, visible
from kopub.pages.page_reader import changed_files
from kopub.states import Reason, phrase
from kopub.store import run_records
from kopub.store.corpus_tables import OCR_SCORES, RELEASED_FILES, SCORES
from kopub.store.faults import require_reachable
from kopub.store.table_source import FooterCache
from kopub.tables.progress import Forecast, Stage

if TYPE_CHECKING:
    from kopub.config.settings import Settings
    from kopub.tables.plan import Survey

_FIGURES = "0123456789."
_ALWAYS = ("asset", "current", "stale")
_NOTHING = ("0", "0 s")
_WHY_SHOWN, _WHY_WIDTH = 8, 200
"""Most reasons of one asset, and their width; a new engine has more reasons, which --json lists."""


def plan(
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Plan with another value for a key of a section (embedding.dim) or of a pin (glm_ocr.revision).",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show what is stale, why, and what making it again will cost; --set tries other values."""
    from kopub.config.settings import what_if
    from kopub.release.versions import require_place

    values: dict[str, str] = {}
    for change in changes or ():
        key, equals, value = change.partition("=")
        if not equals:
            raise ConfigError("--set {change}: write KEY=VALUE, as in embedding.dim=512", change)
        values[key.strip()] = value
    settings = what_if(values)
    require_reachable(settings.store.url)
    require_place(settings.release, settings.corpus, settings.store.url, writes=False)
    shown = plan_values(settings)
    if as_json:
        print_json(shown)
    else:
        out = table_console()
        run = with_profile(COMMAND)
        # The values of --set are not in the profile yet.
        with_changes = phrase("put {changes} into the profile, then {command}", ", ".join(changes or ()), run)
        _show(shown, out, with_changes if changes else run)
        for section, engine in settings.engines.items():
            is_tested_kind = section in run_records.TESTED and engine.gpus
            if is_tested_kind and run_records.find(settings.home, engine.recipe()) is None:
                doctor = with_profile("kopub doctor")
                form = "Its GPU engines were never tested on this machine: `{command}` tests them on the sample pages."
                say(out, phrase(form, doctor))
                break


def plan_values(settings: "Settings") -> dict[str, Any]:
    """Return the plan as JSON values.

    It has figures for every asset, their sums, and the time of `kopub run`. Raises `StoreError`.
    """
    from kopub.tables.evaluations import standings_of_guards
    from kopub.tables.plan import survey

    scan = survey(settings.resources, FooterCache(settings.store))
    forecast = forecast_of_everything(settings, scan)
    assets = []
    sums: dict[str, float] = dict.fromkeys(("seconds", "seconds_at_most", "gpu_seconds", "gpu_seconds_at_most"), 0)
    for plan in scan.plans():
        shards = {str(standing): list(keys) for standing, keys in plan.shards.items()}
        values = asdict(plan)
        assets.append({**values, "shards": shards})
        for name in sums:
            sums[name] += values[name]
    # The benchmarks that guard the corpus: what each costs, and whether it allows upgrades.
    evaluations: list[dict[str, Any]] = []
    for guard in standings_of_guards(settings):
        request = guard.asked
        evaluations.append(
            {
                "benchmark": request.benchmark,
                "folder": str(request.folder),
                "samples": request.limit,
                "command": request.command,
                "current": guard.is_current,
                "why": guard.why,
                "pages": guard.pages,
                "seconds": guard.seconds,
                "closed": list(guard.closed),
            }
        )
    return {
        "profile": settings.profile_name,
        "evaluations": evaluations,
        "assets": assets,
        "off": dict(scan.off),
        "first_looks": first_look_lines(settings.corpus.manifest),
        "files_differ": list(changed_files(settings.corpus.manifest)),
        **sums,
        "run": {
            "pages": settings.corpus.manifest.rows,
            "rows": sum(stage.rows for stage in forecast.stages.values()),
            "seconds": forecast.remaining(0.0),
            "seconds_to_start": forecast.seconds_to_start,
            "measured": is_measured(forecast),
        },
    }


def _show(shown: dict[str, Any], out: Console, command: str) -> None:
    columns: list[dict[str, str | Text]] = []
    shards_by_standing: Counter[str] = Counter()
    for asset in shown["assets"]:
        counts = {standing: len(keys) for standing, keys in asset["shards"].items()}
        shards_by_standing.update(counts)
        columns.append(
            {
                "asset": asset["asset"],
                "current": f"{counts['current']:,}",
                "stale": count(counts["stale"], "yellow"),
                "perhaps": count(counts["perhaps"], "yellow"),
                "missing": count(counts["missing"] + counts["waiting"], "yellow"),
                "rows": in_between(asset["pages"], asset["pages_at_most"], str),
                "regions": in_between(asset["regions"], asset["regions_at_most"], str),
                "time": in_between(asset["seconds"], asset["seconds_at_most"], duration),
                "GPU time": in_between(asset["gpu_seconds"], asset["gpu_seconds_at_most"], duration),
            }
        )
    names: list[str] = []
    for name in columns[0]:
        # A column with only zeros takes up width that others need.
        if name in _ALWAYS or any(str(cells[name]) not in _NOTHING for cells in columns):
            names.append(name)
    rows = [[cells[name] for name in names] for cells in columns]
    print_table(out, [Column("asset"), *right(*names[1:])], rows, phrase("profile {profile}", shown["profile"]))
    for asset, why in shown["off"].items():
        say(out, phrase("{asset}: off, {reason}", asset, why))
    for asset in shown["assets"]:
        for line, shards in list(asset["why"].items())[:_WHY_SHOWN]:
            say(out, phrase("{asset}: {reason} ({shards})", asset["asset"], line, counted(shards, "shard")))
    for line in evaluation_lines(shown["evaluations"]):
        say(out, line, "yellow")
    newer = newer_lines(shards_by_standing["newer"])
    for line in (*newer, *shown["first_looks"], *shown["files_differ"]):
        say(out, line, "yellow")
    missing, stale = shards_by_standing["missing"], shards_by_standing["stale"]
    if stale:
        total = in_between(shown["seconds"], shown["seconds_at_most"], duration)
        gpu = in_between(shown["gpu_seconds"], shown["gpu_seconds_at_most"], duration)
        hint = so_far(all(asset["measured"] for asset in shown["assets"]))
        starts = shown["run"]["seconds_to_start"]
        besides = phrase(" Models take {time} more to start.", duration(starts)) if starts else ""
        form = "Altogether {time}, {gpu_time} of GPU time, by what rows cost {so_far}.{besides} To make them: {command}"
        say(out, phrase(form, total, gpu, hint, besides, command))
    if missing:
        run = shown["run"]
        were, them = ("was", "it") if missing == 1 else ("were", "them")
        form = "{tables} {were} never made. To make {them}: {command}; {time} for {pages}, by what rows cost {so_far}"
        takes = (phrase("about {time}", duration(run["seconds"])), counted(run["pages"], "page"))
        say(out, phrase(form, counted(missing, "table"), were, them, command, *takes, so_far(run["measured"])))
    if not stale and not missing:
        say(out, "Nothing is stale.")


def evaluation_lines(evaluations: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the evaluations due before an upgrade, and what they forbid."""
    for evaluation in evaluations:
        name = phrase("evaluation {benchmark} of {folder}", evaluation["benchmark"], evaluation["folder"])
        if not evaluation["current"]:
            seconds = evaluation["seconds"]
            time = "an unknown time" if seconds is None else phrase("at most {time}", duration(seconds))
            why = "; ".join(visible(said(line), _WHY_WIDTH) for line in evaluation["why"][:_WHY_SHOWN])
            form = "{evaluation}: stale, {reason}; {time}, before an upgrade: {command}"
            yield phrase(form, name, why, time, evaluation["command"])
        for line in evaluation["closed"]:
            form = "{evaluation} blocks the nightly upgrade: {reason}; give gates.override a reason to upgrade anyway"
            yield phrase(form, name, line)


def in_between(least: Any, most: Any, shown: Any) -> str:
    """Return a range such as `12 - 40`, from what is certain to what is possible."""
    low, high = shown(least), shown(most)
    if low == high:
        return high
    return f"{low.removesuffix(high.lstrip(_FIGURES)) if least else 0} - {high}"


_SCORES_SECONDS = 3.0
"""Seconds for measuring queries, in addition to the pages' time."""
_RELEASE_SECONDS = 2.0
"""Seconds for the card and the verification of a release, however few its pages."""
_STEP_SECONDS = 0.15
_SHARD_SECONDS = 0.02
"""Seconds that Dagster takes for each shard, and `_STEP_SECONDS` for a step."""


def forecast_of(settings: "Settings", scan: "Survey", assets: Sequence[str], shards: Sequence[str]) -> Forecast:
    """Return the forecast of a run that makes `assets` of `shards`."""
    from kopub.weights.hub import server_of

    is_of_corpus = corpus_check(settings.corpus.manifest, settings.store).look(scan.tables)
    costs = scan.costs([name for name in assets if name in scan.assets])
    manifest = settings.corpus.manifest
    stages: list[Stage] = []
    started: set[str] = set()
    for name in assets:
        if name not in scan.assets:
            seconds = _SCORES_SECONDS + manifest.rows * 1e-3 if manifest.queries else 0.0
            stages.append(Stage(name, {}, 0.0, False, _STEP_SECONDS + seconds))
            continue
        tables, declared = scan.tables[name], scan.assets[name]
        likely = {}
        for shard in shards:
            entry = tables[shard] if shard in tables and is_of_corpus(name, shard) else None
            if entry is not None and scan.standings[name][shard].stands:
                likely[shard] = entry.tried_again
            else:
                likely[shard] = scan.expected_rows(name, shard, None if entry is None else entry.rows)
        typical = {shard.key: declared.typical_seconds(shard.bytes / shard.rows / 1e6) for shard in manifest.shards}
        mean = sum(typical[shard.key] * shard.rows for shard in manifest.shards) / manifest.rows
        more = _STEP_SECONDS + _SHARD_SECONDS * len(likely) + _RELEASE_SECONDS * (name == RELEASED_FILES.name)
        weights = {shard: typical[shard] / mean for shard in likely}
        stage = Stage(name, likely, costs[name].seconds, costs[name].measured, more, 0.0, weights)
        for engine in declared.engines if stage.rows else ():
            # A server or model that another asset started takes no more time.
            server = server_of(engine)
            server_name = server.model_dump_json() if server else str(id(engine))
            if server_name not in started:
                started.add(server_name)
                stage.seconds_to_start += engine.start_seconds
        stages.append(stage)
    return Forecast(stages)


def forecast_of_everything(settings: "Settings", scan: "Survey") -> Forecast:
    """Return the forecast of `kopub run` without an option."""
    from kopub.corrections.gold import has_known_answers

    scores = [SCORES.name, *([OCR_SCORES.name] if has_known_answers(settings.corpus, settings.store) else [])]
    return forecast_of(settings, scan, [*scan.assets, *scores], settings.corpus.manifest.keys)


def about(forecast: Forecast) -> str:
    """Return words such as `about 20 s, by what rows cost so far`."""
    seconds = forecast.seconds_to_start
    starts = phrase(", of which {time} for models to start", duration(seconds)) if seconds else ""
    form = "about {time}{starts}, by what rows cost {so_far}"
    return phrase(form, duration(forecast.remaining(0.0)), starts, so_far(is_measured(forecast)))


def is_measured(forecast: Forecast) -> bool:
    """Return whether the engines of all rows to compute were measured here."""
    return all(stage.measured or not stage.rows for stage in forecast.stages.values())


def so_far(measured: bool) -> Reason:
    """Return the word for where the cost of a row was measured."""
    return phrase("so far" if measured else "elsewhere")
