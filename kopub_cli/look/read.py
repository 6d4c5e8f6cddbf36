"""`kopub read`: what is written in one file, at once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kopub_cli.local_path import local_path
from resources.printable import visible
from resources.states import LOST, State

if TYPE_CHECKING:
    from kopub import Document, Page


def read(
    file: Annotated[Path, typer.Argument(parser=local_path, metavar="FILE", help="An image or a PDF.")],
    profile: Annotated[str, typer.Option(help="Name or path of a profile; $KOPUB_PROFILE when left out.")] = "",
    as_json_values: Annotated[bool, typer.Option("--json", help="One JSON object, with regions and boxes.")] = False,
) -> None:
    """Print FILE as markdown, without an index or a home: the engines of the profile read it now.

    Standard error names pages that are blank, could not be read, or whose text looks wrong.
    """
    import kopub

    document = kopub.read(file, profile=profile or None)
    if as_json_values:
        typer.echo(json.dumps(as_json(document), ensure_ascii=False, indent=1))
    else:
        typer.echo(document.markdown)
    for page in document.pages:
        if page.state in (*LOST, State.PARTIAL):
            typer.echo(visible(f"{page.id} is {page.state}: {page.reason}"), err=True)
        elif page.state == State.BLANK:
            typer.echo(visible(f"{page.id} is blank: nothing is written on it"), err=True)
    for page in document.pages.doubtful:
        typer.echo(visible(f"{page.id} looks wrong: {'; '.join(page.doubts)}"), err=True)


def as_json(document: "Document") -> dict[str, Any]:
    """A document as JSON values: what `kopub read --json` prints."""
    return {"document": document.id, "pages": [*map(_page, document.pages)]}


def _page(page: "Page") -> dict[str, Any]:
    return {
        "page_id": page.id,
        "page_no": page.number,
        "width": page.width,
        "height": page.height,
        "state": page.state,
        "reason": page.reason,
        "doubt": page.doubt,
        "doubts": list(page.doubts),
        "regions": [
            {
                "index": region.index,
                "label": region.label,
                "task": region.task,
                "score": region.score,
                "bbox": list(region.box),
                "bbox_2d": list(region.box_2d),
                "content": region.content,
                "state": region.state,
                "reason": region.reason,
            }
            for region in page.regions
        ],
        "markdown": page.markdown,
    }
