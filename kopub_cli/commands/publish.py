"""`kopub publish`: the release, to the repository that the profile configures."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kopub_cli.display.console import print_json, say, table_console, tell
from kopub_cli.indexed_corpus import open_settings, require_indexed

if TYPE_CHECKING:
    from resources.release.fitness import Fitness


def publish(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the gates, and what the repository lacks if one is configured.")
    ] = False,
    tag: Annotated[str, typer.Option(help="Name of the tag; made from the contents when left out.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: one JSON object instead of lines.")] = False,
) -> None:
    """Push the release to hub.repo, check every hash there, and tag it."""
    from kopub_assets.hf_release import HfRelease
    from resources.release.publishing import fitness_of, whole
    from resources.release.publishing import publish as push
    from resources.store.corpus_tables import RELEASED_FILES

    settings = open_settings()
    require_indexed(settings, [RELEASED_FILES.name])
    about = HfRelease(settings.resources).replace_release(_say, _say)
    if dry_run:
        files = whole(about, settings.release, settings.store)
        lines = list(settings.hub.difference(files, _say).lines()) if settings.hub.repo else None
        fit = fitness_of(about, settings.release)
        if as_json:
            print_json({"repo": settings.hub.repo or None, "difference": lines, "closed": fit.closed, **asdict(fit)})
        else:
            _show(fit, lines)
        if fit.closed:
            raise typer.Exit(1)
        return
    pushed = push(about, settings.release, settings.hub, settings.store, tag or None, _say)
    for line in pushed.difference.lines():
        tell(line)
    tagged = f", tag {pushed.tag}" if pushed.tag else "; no tag, for the release lacks shards of the corpus"
    tell(f"{pushed.url}{tagged}")


def _show(fit: "Fitness", difference: list[str] | None) -> None:
    out = table_console()
    for line in difference or ():
        say(out, line)
    if difference is None:
        say(out, "no repository: set hub.repo in the profile to compare with one, and to publish")
    gates = (
        ("gates.override", fit.quality, fit.override),
        ("gates.license_override", fit.licences, fit.license_override),
    )
    for gate, problems, reason in gates:
        for problem in problems:
            if reason:
                say(out, f"overlooked, {gate} says {reason!r}: {problem}", "yellow")
            else:
                say(out, f"closed: {problem}", "red")
    keys = [key for key, problems, reason in gates if problems and not reason]
    opened = f"the gates are closed; a reason in {' and '.join(keys)} opens them"
    say(out, opened if fit.closed else "the gates are open", "red" if fit.closed else "green")


def _say(line: str) -> None:
    tell(line, err=True)
