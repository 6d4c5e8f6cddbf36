"""`kopub read`: the text of some files, read immediately."""

from pathlib import Path
from typing import Annotated

import typer

from kopub.cli.options import OCR_HELP, TEXT_LAYER_HELP, local_path, text_layer_choice
from kopub.errors import ConfigError


def read(
    files: Annotated[
        list[Path],
        typer.Argument(parser=local_path, metavar="FILE...", help="PDFs, images, HWP, office and text files."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            parser=local_path,
            metavar="FOLDER",
            help="Folder for a markdown file of each FILE, with pictures.",
        ),
    ] = None,
    pages: Annotated[
        str | None, typer.Option("--pages", metavar="3-7", help="Only these pages: numbers and ranges, such as 3,5,9-.")
    ] = None,
    ocr: Annotated[bool, typer.Option("--ocr", help=OCR_HELP)] = False,
    text_layer: Annotated[bool, typer.Option("--text-layer", help=f"{TEXT_LAYER_HELP} This is the default.")] = False,
    as_json_values: Annotated[bool, typer.Option("--json", help="One JSON object, with regions and boxes.")] = False,
) -> None:
    """Print files as markdown, without an index or a home: the engines of the profile read them now.

    Paragraphs are joined across lines and pages; running heads and page numbers are left out. Standard error names
    pages that are blank, could not be read, or whose text looks wrong. After Ctrl-C, the output has the pages read so
    far. The exit status is 3 if a page or a part of it could not be read.
    """
    if out is not None and as_json_values:
        raise ConfigError("--json and -o cannot be combined: choose one")
    # It loads Arrow and the engines.
    from kopub.cli.read_display import read_files

    read_files(files, pages, text_layer_choice(ocr, text_layer), out, as_json_values)
