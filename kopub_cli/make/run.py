"""`kopub run`: index a source if one is named, then make every table of it through Dagster, with a live display."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from kopub_cli.display.console import lasting_console
from kopub_cli.make.index import DPI_HELP, SOURCE_HELP, index_source
from resources.errors import STOPPED_BY_HAND, KopubError
from resources.pages.documents.pdf import DPI
from resources.printable import counted

if TYPE_CHECKING:
    import dagster as dg

    from kopub_assets.running.forecast import Forecast
    from resources.config.settings import Settings


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
    run_assets(settings, asset or [], shards, lasting_console())


def run_assets(settings: "Settings", wanted: Sequence[str], shards: str, out: Console) -> None:
    """Make `wanted` assets of `shards`, all where none is named, and say what was made.

    Raises `KopubError`: for a wrong name, and when a shard failed, after the others are made.
    """
    from definitions import definitions_of
    from kopub_assets.running.execution import chosen, execute, shard_ranges
    from kopub_assets.running.progress import watched_by
    from kopub_assets.upgrades.stale_scan import survey
    from kopub_cli.display.run_display import RunDisplay
    from kopub_cli.forecasts import forecast_of
    from resources.store.files.reachable import require_reachable
    from resources.store.footer_cache import FooterCache

    require_reachable(settings.store.url)
    definitions = definitions_of(settings)
    keys = settings.corpus.manifest.keys
    graph = definitions.resolve_asset_graph()
    made = graph.materializable_asset_keys
    names = [key.to_user_string() for key in graph.toposorted_asset_keys if key in made]
    _refuse_off(settings, wanted)
    assets = chosen(names, wanted, "asset")
    of_shards = chosen(keys, _listed(shards, keys), "shard")
    scan = survey(settings.resources, FooterCache(settings.store))
    forecast = forecast_of(settings, scan, assets, of_shards)
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
        if not (first and last):
            raise KopubError(f"--shards {part}: a range has two ends, as {keys[0]}...{keys[-1]}")
        chosen(keys, [first, last], "shard")
        found += keys[keys.index(first) : keys.index(last) + 1]
        if keys.index(first) > keys.index(last):
            raise KopubError(f"--shards {part}: the first shard comes after the last")
    return found


def _say_what_comes(settings: "Settings", forecast: "Forecast", shards: Sequence[str], out: Console) -> None:
    from kopub_cli.forecasts import about

    rows = sum(stage.rows for stage in forecast.stages.values())
    pages = sum(settings.corpus.manifest.shard(shard).rows for shard in shards)
    what = f"{counted(pages, 'page')} in {counted(len(shards), 'shard')} by the profile {settings.profile_name}"
    out.print(f"{what}: {about(forecast) if rows else 'every table is current'}", markup=False, highlight=False)


def _instance(home: Path, out: Console) -> "dg.DagsterInstance":
    """Dagster's instance: $DAGSTER_HOME, or a folder in the home where that is not set."""
    import dagster as dg

    from kopub_cli.dagster_home import prepared

    named = os.environ.get("DAGSTER_HOME")
    folder = prepared(Path(named).expanduser() if named else home.resolve() / ".dagster")
    os.environ["DAGSTER_HOME"] = str(folder)
    if not named:
        out.print(f"runs are recorded in {folder}, since DAGSTER_HOME is not set", markup=False, highlight=False)
    return dg.DagsterInstance.get()
