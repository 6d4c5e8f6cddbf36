"""`kopub verify`: whether a release is what it says."""

from typing import Annotated

import typer

from kopub_cli.display.console import print_json, say, table_console


def verify(
    release: Annotated[
        str,
        typer.Argument(metavar="RELEASE", help="Folder or URL of a release, or a repository, `owner/name`."),
    ],
    revision: Annotated[str, typer.Option(help="Tag, branch or commit of a repository.")] = "main",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Check every file, hash, count, column and join of RELEASE, and that every row loads; a line a problem."""
    from resources.release.loading import count_apart
    from resources.release.verify import fetched, unproved
    from resources.release.verify import verify as problems_of
    from resources.urls import is_url

    out = table_console()
    found = []
    with fetched(release, revision) as folder:
        name = release if is_url(release) else str(folder)
        for problem in problems_of(folder, count=count_apart):
            found.append(problem)
            if not as_json:
                say(out, problem, "red")
        notes = unproved(folder)
    if as_json:
        print_json({"release": name, "sound": not found, "problems": found, "notes": notes})
    else:
        for note in notes:
            say(out, note, "yellow")
        if not found:
            say(out, f"{name} is sound", "green")
    if found:
        raise typer.Exit(1)
