"""`kopub verify`: whether a release is what it says."""

from typing import Annotated

import typer

from kopub_cli.display.as_json import print_json


def verify(
    release: Annotated[
        str,
        typer.Argument(metavar="RELEASE", help="Folder or URL of a release, or a repository, `owner/name`."),
    ],
    revision: Annotated[str, typer.Option(help="Tag, branch or commit of a repository.")] = "main",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Check files, hashes, counts, columns and joins of RELEASE, and that every row loads; a line a problem."""
    from resources.release.loading import count_apart
    from resources.release.verify import fetched
    from resources.release.verify import verify as problems_of
    from resources.urls import is_url

    found = []
    with fetched(release, revision) as folder:
        name = release if is_url(release) else str(folder)
        for problem in problems_of(folder, count=count_apart):
            found.append(problem)
            if not as_json:
                typer.echo(problem)
    if as_json:
        print_json({"release": name, "sound": not found, "problems": found})
    elif not found:
        typer.echo(f"{name} is sound")
    if found:
        raise typer.Exit(1)
