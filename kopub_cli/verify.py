"""`kopub verify`: whether a release is what it says."""

from typing import Annotated

import typer


def verify(
    release: Annotated[
        str, typer.Argument(metavar="RELEASE", help="Folder of a release, or a dataset repository, `owner/name`.")
    ],
    revision: Annotated[str, typer.Option(help="Tag, branch or commit of a repository.")] = "main",
) -> None:
    """Check files, hashes, counts, columns and joins of RELEASE, and that every row loads; a line a problem."""
    from resources.release.loading import count_apart
    from resources.release.verify import fetched
    from resources.release.verify import verify as problems_of

    folder = fetched(release, revision)
    found = 0
    for problem in problems_of(folder, count=count_apart):
        typer.echo(problem)
        found += 1
    if found:
        raise typer.Exit(1)
    typer.echo(f"{folder} is sound")
