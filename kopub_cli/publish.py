"""`kopub publish`: the release, to the repository that the profile configures."""

from typing import Annotated

import typer

from kopub_cli.indexed_corpus import open_settings, require_indexed
from resources.store.corpus_tables import RELEASED_FILES


def publish(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what the repository lacks.")] = False,
    tag: Annotated[str, typer.Option(help="Name of the tag; made from the contents when left out.")] = "",
) -> None:
    """Push the release to hub.repo, check every hash there, and tag it."""
    from kopub_assets.hf_release import HfRelease
    from resources.release.hub.publishing import publish as push
    from resources.release.hub.publishing import require_fit, whole

    settings = open_settings()
    require_indexed(settings, [RELEASED_FILES.name])
    about = HfRelease(settings.resources).about()
    if dry_run:
        found = settings.hub.difference(whole(about, settings.release, settings.store), _say)
        for line in found.lines():
            typer.echo(line)
        require_fit(about, settings.release)
        return
    pushed = push(about, settings.release, settings.hub, settings.store, tag or None, _say)
    for line in pushed.difference.lines():
        typer.echo(line)
    tagged = f", tag {pushed.tag}" if pushed.tag else "; no tag, for the release lacks shards of the corpus"
    typer.echo(f"{pushed.url}{tagged}")


def _say(line: str) -> None:
    typer.echo(line, err=True)
