"""`kopub plan`: what a change of models, prompts, code or pages makes stale, why, and what it will cost."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column
from rich.text import Text

from kopub_cli.display.console import count, duration, print_table, right, say, table_console
from kopub_cli.indexed_corpus import COMMAND, newer_lines
from kopub_cli.profile_option import with_profile
from resources.errors import ConfigError
from resources.printable import counted, visible

if TYPE_CHECKING:
    from kopub_assets.upgrades.guards import GuardStanding
    from resources.config.settings import Settings

_FIGURES = "0123456789."
_WHY_SHOWN, _WHY_WIDTH = 8, 200
"""Reasons of one asset; a new engine has more, which --json lists."""


def plan(
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What if: a key of a section (embedding.dim) or pin."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Show what is stale, why, and what making it again will cost; --set asks it of other values."""
    from resources.config.settings import what_if
    from resources.release.place import require_place
    from resources.store.faults import require_reachable

    settings = what_if(dict(_assignment(change) for change in changes or ()))
    require_reachable(settings.store.url)
    require_place(settings.release, settings.corpus, settings.store.url)
    shown = planned(settings)
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=1))
    else:
        out = table_console()
        # What was only asked is nowhere yet.
        first = f"put {' and '.join(changes)} into the profile, then " if changes else ""
        _show(shown, out, f"{first}{with_profile(COMMAND)}")
        if untested(settings):
            doctor = with_profile("kopub doctor")
            say(out, f"Its GPU engines were never tested on this machine: `{doctor}` reads the samples with them.")


def untested(settings: "Settings") -> bool:
    """Whether the profile uses a GPU, and one of its engines was never tested as it is."""
    from resources.store.records import self_tests

    engines = [engine for section, engine in settings.engines.items() if section in self_tests.TESTED]
    return any(each.gpus and self_tests.find(settings.home, each.recipe()) is None for each in engines)


def planned(settings: "Settings") -> dict[str, Any]:
    """The plan as JSON values: figures of every asset, their sums, and what `kopub run` takes. Raises `StoreError`."""
    from kopub_assets.upgrades.guards import standings_of_guards
    from kopub_assets.upgrades.stale_scan import survey
    from kopub_cli.forecasts import forecast_of_everything, is_measured
    from resources.store.footer_cache import FooterCache

    scan = survey(settings.resources, FooterCache(settings.store))
    forecast = forecast_of_everything(settings, scan)
    assets = []
    for each in scan.plans():
        shards = {str(standing): list(keys) for standing, keys in each.shards.items()}
        assets.append({**asdict(each), "shards": shards})
    return {
        "profile": settings.profile_name,
        "evaluations": [_evaluation(guard) for guard in standings_of_guards(settings)],
        "assets": assets,
        "off": dict(scan.off),
        **{
            name: sum(asset[name] for asset in assets)
            for name in ("seconds", "seconds_at_most", "gpu_seconds", "gpu_seconds_at_most")
        },
        "run": {
            "pages": settings.corpus.manifest.rows,
            "rows": sum(stage.rows for stage in forecast.stages.values()),
            "seconds": forecast.remaining(0.0),
            "seconds_to_start": forecast.seconds_to_start,
            "measured": is_measured(forecast),
        },
    }


def _evaluation(guard: "GuardStanding") -> dict[str, Any]:
    """A benchmark that guards the corpus: what it takes to evaluate it, and whether it lets an upgrade pass."""
    asked = guard.asked
    return {
        "benchmark": asked.benchmark,
        "folder": str(asked.folder),
        "samples": asked.limit,
        "command": asked.command,
        "current": guard.is_current,
        "why": guard.why,
        "pages": guard.pages,
        "seconds": guard.seconds,
        "closed": list(guard.closed),
    }


def _assignment(change: str) -> tuple[str, str]:
    key, equals, value = change.partition("=")
    if not equals:
        raise ConfigError(f"--set {change}: write KEY=VALUE, as in embedding.dim=512")
    return key.strip(), value


def _show(shown: dict[str, Any], out: Console, command: str) -> None:
    from kopub_cli.forecasts import so_far

    names = ("current", "stale", "perhaps", "missing", "rows", "regions", "time", "GPU time")
    rows = [_cells(asset) for asset in shown["assets"]]
    print_table(out, [Column("asset"), *right(*names)], rows, f"profile {shown['profile']}")
    for asset, why in shown["off"].items():
        say(out, f"{asset}: off, {why}")
    for asset in shown["assets"]:
        for line, shards in list(asset["why"].items())[:_WHY_SHOWN]:
            say(out, f"{asset['asset']}: {line} ({counted(shards, 'shard')})")
    for line in evaluation_lines(shown["evaluations"]):
        say(out, line, "yellow")
    for line in newer_lines(sum(len(asset["shards"]["newer"]) for asset in shown["assets"])):
        say(out, line, "yellow")
    missing = sum(len(asset["shards"]["missing"]) for asset in shown["assets"])
    stale = any(asset["shards"]["stale"] for asset in shown["assets"])
    if stale:
        total = in_between(shown["seconds"], shown["seconds_at_most"], duration)
        gpu = in_between(shown["gpu_seconds"], shown["gpu_seconds_at_most"], duration)
        known = so_far(all(asset["measured"] for asset in shown["assets"]))
        starts = shown["run"]["seconds_to_start"]
        besides = f" Models take {duration(starts)} more to start." if starts else ""
        say(out, f"Altogether {total}, {gpu} of GPU time, by what rows cost {known}.{besides} To make them: {command}")
    if missing:
        run = shown["run"]
        never = f"{counted(missing, 'table')} {'was' if missing == 1 else 'were'} never made"
        takes = f"about {duration(run['seconds'])} for {counted(run['pages'], 'page')}"
        said = f"{never}. To make {'it' if missing == 1 else 'them'}: {command}"
        say(out, f"{said}; {takes}, by what rows cost {so_far(run['measured'])}")
    if not stale and not missing:
        say(out, "Nothing is stale.")


def _cells(asset: dict[str, Any]) -> list[str | Text]:
    counts = {standing: len(keys) for standing, keys in asset["shards"].items()}
    return [
        asset["asset"],
        f"{counts['current']:,}",
        *(count(counts[standing], "yellow") for standing in ("stale", "perhaps")),
        count(counts["missing"] + counts["waiting"], "yellow"),
        *(
            in_between(asset[name], asset[f"{name}_at_most"], shown)
            for name, shown in (("pages", str), ("regions", str), ("seconds", duration), ("gpu_seconds", duration))
        ),
    ]


def evaluation_lines(evaluations: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What is to be evaluated before an upgrade, with the command, and what an evaluation forbids."""
    for each in evaluations:
        name = f"evaluation {each['benchmark']} of {each['folder']}"
        if not each["current"]:
            time = "an unknown time" if each["seconds"] is None else f"at most {duration(each['seconds'])}"
            why = "; ".join(visible(line, _WHY_WIDTH) for line in each["why"][:_WHY_SHOWN])
            yield f"{name}: stale, {why}; {time}, before an upgrade: {each['command']}"
        for line in each["closed"]:
            yield f"{name} stops an upgrade at night: {line}; give gates.override a reason to make it all the same"


def in_between(least: Any, most: Any, shown: Any) -> str:
    """What is certain, and with what may come to nothing: `12 - 40`."""
    low, high = shown(least), shown(most)
    if low == high:
        return high
    return f"{low.removesuffix(high.lstrip(_FIGURES)) if least else 0} - {high}"
