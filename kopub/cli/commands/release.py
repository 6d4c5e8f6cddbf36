"""`kopub publish`, `pull` and `verify`: a release and the profile's repository or weights."""

from pathlib import Path
from typing import Annotated

import typer

from kopub.cli.options import require_named
from kopub.errors import ConfigError
from kopub.files import is_url


def publish(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the gates, and what the repository lacks if one is configured.")
    ] = False,
    tag: Annotated[str, typer.Option(help="Name of the tag; by default made from the contents.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: one JSON object instead of lines.")] = False,
) -> None:
    """Push the release to hub.repo, check every hash there, and tag it."""
    if as_json and not dry_run:
        raise ConfigError("--json needs --dry-run: add it")
    # It loads Arrow, as the others do.
    from kopub.cli.releasing import publish_release

    publish_release(dry_run, tag or None, as_json)


def pull() -> None:
    """Fetch the weights that the profile pins, and verify them: sizes and hashes as the Hub lists them.

    What was fetched before is kept, an interrupted download resumes, and a damaged file is fetched again.
    """
    from kopub.cli.fetching import fetch_weights

    fetch_weights()


def verify(
    release: Annotated[
        str,
        typer.Argument(metavar="RELEASE", help="Folder or URL of a release, or a repository, `owner/name`."),
    ],
    revision: Annotated[
        str | None, typer.Option(help="Tag, branch or commit of a repository; by default main.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Check every file, hash, count, column and join of RELEASE, and that every row loads; print a line per problem."""
    require_named(release)
    if revision is not None and (is_url(release) or Path(release).is_dir()):
        raise ConfigError("--revision is of a repository: leave it out for a folder or a URL")
    from kopub.cli.releasing import verify_release

    verify_release(release, revision, as_json)
