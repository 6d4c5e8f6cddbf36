"""`kopub run`: index a source, make every table, with a live display."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from kopub.cli.commands.index import SOURCE_HELP, Add, Dpi, Home, Replace, index_source, use_home
from kopub.cli.console import lasting_console, say, tell
from kopub.cli.dagster_home import instance_at
from kopub.cli.options import OCR_HELP, TEXT_LAYER_HELP, text_layer_choice
from kopub.errors import STOPPED_BY_HAND, ConfigError, KopubError, counted
from kopub.states import phrase
from kopub.store.corpus_tables import RELEASED_FILES, TABLES
from kopub.store.faults import require_reachable
from kopub.store.table_source import FooterCache
from kopub.tables.progress import watched_by
from kopub.texts.layer_counts import from_layers

if TYPE_CHECKING:
    from kopub.config.settings import Settings


def run(
    source: Annotated[
        str | None, typer.Argument(metavar="[SOURCE]", help=f"{SOURCE_HELP} By default, the indexed corpus.")
    ] = None,
    asset: Annotated[list[str] | None, typer.Option("--asset", help="Make only this asset; may be repeated.")] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            "--shards", metavar="A,B...D", help="Make only these shards: names and ranges, separated by commas."
        ),
    ] = None,
    add: Add = False,
    replace: Replace = False,
    home: Home = None,
    dpi: Dpi = None,
    max_pages: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="For a first look: how many pages of SOURCE's documents to make; a run without it makes the rest.",
        ),
    ] = None,
    ocr: Annotated[bool, typer.Option("--ocr", help=f"{OCR_HELP} Only in this run.")] = False,
    text_layer: Annotated[bool, typer.Option("--text-layer", help=f"{TEXT_LAYER_HELP} This is the default.")] = False,
) -> None:
    """Make every table that is missing or stale, and say what was lost. Finished pages are kept, even after Ctrl-C.

    Exit status: 0 if every page is whole and no gate is closed; 1 if the run could not be done; 2 for a wrong option;
    3 if it ended with pages that failed, are quarantined or were read in part, with reading or finding worse than
    before, or with a closed gate; 130 after Ctrl-C.
    """
    from kopub.config.settings import load_settings
    from kopub.doctor.checks import find_idle_card
    from kopub.pages.indexing import retry_failed
    from kopub.weights.fetch import require_ready

    use_home(home)
    if shards is not None and not shards.strip(" ,"):
        # An empty variable in a script looks like this, and would make all shards.
        raise ConfigError("--shards names no shard: leave it out for all")
    for option, given in (("--add", add), ("--replace", replace), ("--dpi", dpi), ("--max-pages", max_pages)):
        if given and source is None:
            raise ConfigError("{option} needs a SOURCE: name its folder too", option)
    if chosen := text_layer_choice(ocr, text_layer):
        os.environ["KOPUB_PDF__TEXT_LAYER"] = chosen
    settings = load_settings()
    if source is not None:
        if not asset:
            require_ready(settings.engines, settings.profile_name)
        index_source(source, settings.corpus.place, dpi, add, replace, max_pages=max_pages)
    if source is not None or retry_failed(settings.corpus.place, tell):
        # The settings have the manifest from before the change.
        load_settings.cache_clear()
        settings = load_settings()
    if idle := find_idle_card(settings.engines):
        tell(phrase("{finding}: {remedy}", idle.says, idle.do), err=True)
    out = lasting_console()
    status = run_assets(settings, asset or [], shards or "", out)
    if ocr:
        say(out, "the next run uses text layers again, unless it has --ocr or KOPUB_PDF__TEXT_LAYER=never is exported")
    if status:
        raise typer.Exit(status)


def run_assets(settings: "Settings", wanted: Sequence[str], shards: str, out: Console) -> int:
    """Make `wanted` assets of `shards`, and return the exit status.

    All are made if none is named. Raises `KopubError` for a wrong name, and if a shard failed, after the others are
    made.
    """
    from kopub.cli.commands.plan import about, forecast_of
    from kopub.cli.run_display import RunDisplay, RunEnd
    from kopub.release.versions import require_place
    from kopub.tables.graph import GRAPH
    from kopub.tables.plan import survey
    from kopub.weights.fetch import require_ready
    from kopub_assets.definitions import definitions_of
    from kopub_assets.running.execution import chosen, execute, join_failures, shard_ranges

    require_reachable(settings.store.url)
    footers = FooterCache(settings.store)
    scan = survey(settings.resources, footers)
    definitions = definitions_of(settings, scan=scan)
    keys = settings.corpus.manifest.keys
    graph = definitions.resolve_asset_graph()
    makeable = graph.materializable_asset_keys
    names = [key.to_user_string() for key in graph.toposorted_asset_keys if key in makeable]
    for name, why in GRAPH.off(settings.resources).items():
        if name in wanted:
            raise KopubError("{asset} is off: {reason}; docs/figures.md turns it on", name, why)
    assets = chosen(names, wanted, "asset")
    if RELEASED_FILES.name in assets:
        require_place(settings.release, settings.corpus, settings.store.url)
    of_shards = chosen(keys, _parse_shards(shards, keys), "shard")
    forecast = forecast_of(settings, scan, assets, of_shards)
    # Engines without rows to make need not be ready.
    at_work: set[int] = set()
    for name, stage in forecast.stages.items():
        if stage.rows and name in scan.assets:
            at_work.update(map(id, scan.assets[name].engines))
    engines = {section: engine for section, engine in settings.engines.items() if id(engine) in at_work}
    require_ready(engines, settings.profile_name)
    if any(stage.rows for stage in forecast.stages.values()):
        pages = sum(settings.corpus.manifest.shard(shard).rows for shard in of_shards)
        counts = (counted(pages, "page"), counted(len(of_shards), "shard"))
        form = "{pages} in {shards} by the profile {profile}: {time}"
        say(out, phrase(form, *counts, settings.profile_name, about(forecast)))
    failures: list[str] = []
    with instance_at(settings.home) as instance, RunDisplay(forecast, out) as display, watched_by(display):
        try:
            for some in shard_ranges(keys, of_shards, settings.shards_per_run):
                failures += execute(definitions, instance, assets, some)
        except KeyboardInterrupt:
            raise SystemExit(STOPPED_BY_HAND) from None
    for line in join_failures(failures):
        say(out, line, "red")
    end = RunEnd.of(settings, survey(settings.resources, footers), display.closed, display.unjudged)
    if display.made_anything and TABLES.readings.name in assets:
        with_layers = (shard.key for shard in settings.corpus.manifest.shards if shard.text_layers)
        texts = from_layers(
            settings.store, [key for key in with_layers if settings.store.has(TABLES.readings.name, key)]
        )
        if texts.regions:
            say(out, texts.line)
    end.tell(out, anew=display.made_anything or bool(failures))
    if failures:
        raise KopubError(
            "{failures}; what was finished is kept: fix what is named above and run again",
            counted(len(failures), "failure"),
        )
    return end.status


def _parse_shards(shards: str, keys: Sequence[str]) -> list[str]:
    """Return the shards that `a,b...d` names. Raises `KopubError` for ends that are not shards."""
    from kopub_assets.running.execution import chosen

    named: list[str] = []
    for part in filter(None, (part.strip() for part in shards.split(","))):
        first, dots, last = part.partition("...")
        if not dots:
            named.append(part)
            continue
        if not (first and last):
            raise KopubError(
                "--shards {part}: a range needs two ends, such as {first}...{last}", part, keys[0], keys[-1]
            )
        chosen(keys, [first, last], "shard")
        named += keys[keys.index(first) : keys.index(last) + 1]
        if keys.index(first) > keys.index(last):
            raise KopubError("--shards {part}: the first shard comes after the last", part)
    return named
