"""`kopub run`: index a source if one is named, then make every table of it through Dagster, with a live display."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from kopub_cli.display.console import table_console
from kopub_cli.index import DPI_HELP, SOURCE_HELP, index_source
from resources.errors import STOPPED_BY_HAND, KopubError
from resources.pages.documents.pdf import DPI
from resources.printable import counted

if TYPE_CHECKING:
    import dagster as dg

    from kopub_assets.running.forecast import Forecast
    from resources.config.settings import Settings

_SCORES_SECONDS = 3.0
"""What measuring queries takes besides the pages."""
_RELEASE_SECONDS = 2.0
"""What the card and the verification of a release take, however few its pages."""
_STEP_SECONDS = 0.15
_SHARD_SECONDS = 0.02
"""What Dagster takes for a step, and for each of its shards."""
_INSTANCE = Path(__file__).resolve().parent.parent / "deploy" / "local" / "dagster.yaml"


def run(
    source: Annotated[
        str | None, typer.Argument(metavar="[SOURCE]", help=f"{SOURCE_HELP} Left out: the corpus that is indexed.")
    ] = None,
    asset: Annotated[
        list[str] | None, typer.Option("--asset", help="Only this asset; more than once for more.")
    ] = None,
    shards: Annotated[
        str, typer.Option("--shards", metavar="A,B...D", help="Only these shards: names and ranges, with commas.")
    ] = "",
    profile: Annotated[str, typer.Option("--profile", help="Instead of $KOPUB_PROFILE.")] = "",
    dpi: Annotated[int, typer.Option(min=1, help=DPI_HELP)] = DPI,
) -> None:
    """Make every table that is missing or stale; what is finished is kept, also when it is stopped on the way."""
    if profile:
        os.environ["KOPUB_PROFILE"] = profile
    from resources.config.settings import load_settings

    settings = load_settings()
    if source is not None:
        index_source(source, settings.corpus.place, dpi)
        # The manifest was read when the settings were.
        load_settings.cache_clear()
        settings = load_settings()
    run_assets(settings, asset or [], shards, table_console())


def run_assets(settings: "Settings", wanted: Sequence[str], shards: str, out: Console) -> None:
    """Make `wanted` assets of `shards`, all where none is named, and say what was made.

    Raises `KopubError`: for a wrong name, and when a shard failed, after the others are made.
    """
    from definitions import definitions_of
    from kopub_assets.running.execution import chosen, execute, shard_ranges
    from kopub_assets.running.progress import watched_by
    from kopub_cli.display.run_display import RunDisplay
    from resources.store.reachable import require_reachable

    require_reachable(settings.store.url)
    definitions = definitions_of(settings)
    keys = settings.corpus.manifest.keys
    graph = definitions.resolve_asset_graph()
    made = graph.materializable_asset_keys
    names = [key.to_user_string() for key in graph.toposorted_asset_keys if key in made]
    _refuse_off(settings, wanted)
    assets = chosen(names, wanted, "asset")
    of_shards = chosen(keys, _listed(shards, keys), "shard")
    forecast = _forecast(settings, assets, of_shards)
    _say_what_comes(settings, forecast, of_shards, out)
    failures: list[str] = []
    with _instance(settings.home, out) as instance, RunDisplay(forecast, out) as display, watched_by(display):
        try:
            for some in shard_ranges(keys, of_shards, settings.shards_per_run):
                failures += execute(definitions, instance, assets, some)
        except KeyboardInterrupt:
            raise SystemExit(STOPPED_BY_HAND) from None
    for line in failures:
        out.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    if failures:
        raise KopubError(
            f"{counted(len(failures), 'shard')} failed; what was finished is kept: run the same command again"
        )
    out.print("next: kopub browse, kopub status, kopub search QUESTION, make ui", markup=False, highlight=False)


def _refuse_off(settings: "Settings", wanted: Sequence[str]) -> None:
    """Raise `KopubError` for an asset that the profile wants nothing of."""
    from kopub_assets.graph import GRAPH

    for name, why in GRAPH.off(settings.resources).items():
        if name in wanted:
            raise KopubError(f"{name} is off: {why}; docs/figures.md turns it on")


def _listed(shards: str, keys: Sequence[str]) -> list[str]:
    """The shards that `a,b...d` names. Raises `KopubError` for a range whose ends are none."""
    from kopub_assets.running.execution import chosen

    found: list[str] = []
    for part in filter(None, (part.strip() for part in shards.split(","))):
        first, dots, last = part.partition("...")
        if not dots:
            found.append(part)
            continue
        chosen(keys, [first, last], "shard")
        found += keys[keys.index(first) : keys.index(last) + 1]
        if keys.index(first) > keys.index(last):
            raise KopubError(f"--shards {part}: the first shard comes after the last")
    return found


def _forecast(settings: "Settings", assets: Sequence[str], shards: Sequence[str]) -> "Forecast":
    """What is likely to be computed, and what it is likely to take."""
    from kopub_assets.running.forecast import Forecast, Stage
    from kopub_assets.upgrades.plan import Standing
    from kopub_assets.upgrades.stale_scan import survey
    from resources.store import ledger
    from resources.store.corpus_tables import RELEASED_FILES
    from resources.store.footer_cache import FooterCache

    scan = survey(settings.resources, FooterCache(settings.store))
    rates = ledger.rates(settings.store, scan.standings)
    manifest = settings.corpus.manifest
    stages = []
    for name in assets:
        if name not in scan.assets:
            seconds = _SCORES_SECONDS + manifest.rows * 1e-3 if manifest.queries else 0.0
            stages.append(Stage(name, {}, 0.0, False, _STEP_SECONDS + seconds))
            continue
        made, declared = scan.tables[name], scan.assets[name]
        likely = {}
        for shard in shards:
            rows = declared.expected_rows(shard, made[shard].rows if shard in made else None)
            likely[shard] = 0 if scan.standings[name][shard] is Standing.CURRENT else rows
        typical = {shard.key: declared.typical_seconds(shard.bytes / shard.rows / 1e6) for shard in manifest.shards}
        mean = sum(typical[shard.key] * shard.rows for shard in manifest.shards) / manifest.rows
        rate = rates.get(name)
        each = rate.seconds_each if rate else mean
        more = _STEP_SECONDS + _SHARD_SECONDS * len(likely) + _RELEASE_SECONDS * (name == RELEASED_FILES.name)
        weights = {shard: typical[shard] / mean for shard in likely}
        stages.append(Stage(name, likely, each, rate is not None, more, weights))
    return Forecast(stages)


def _say_what_comes(settings: "Settings", forecast: "Forecast", shards: Sequence[str], out: Console) -> None:
    from kopub_cli.display.durations import duration

    rows = sum(stage.rows for stage in forecast.stages.values())
    pages = sum(settings.corpus.manifest.shard(shard).rows for shard in shards)
    what = f"{counted(pages, 'page')} in {counted(len(shards), 'shard')} by the profile {settings.profile_name}"
    if rows:
        known = all(stage.measured or not stage.rows for stage in forecast.stages.values())
        by = "by what rows cost so far" if known else "by what rows cost elsewhere"
        out.print(f"{what}: about {duration(forecast.remaining(0.0))}, {by}", markup=False, highlight=False)
    else:
        out.print(f"{what}: every table is current", markup=False, highlight=False)


def _instance(home: Path, out: Console) -> "dg.DagsterInstance":
    """Dagster's instance: $DAGSTER_HOME, or a folder in the home where that is not set."""
    import dagster as dg

    if not os.environ.get("DAGSTER_HOME"):
        folder = home.resolve() / ".dagster"
        folder.mkdir(parents=True, exist_ok=True)
        if _INSTANCE.exists() and not (folder / "dagster.yaml").exists():
            shutil.copy(_INSTANCE, folder / "dagster.yaml")
        os.environ["DAGSTER_HOME"] = str(folder)
        out.print(f"runs are recorded in {folder}, since DAGSTER_HOME is not set", markup=False, highlight=False)
    return dg.DagsterInstance.get()
