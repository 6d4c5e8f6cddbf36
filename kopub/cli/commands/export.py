"""`kopub export`: everything as plain files, or the documents in the formats that are named."""

from typing import Annotated

import typer

from kopub.cli.options import require_named
from kopub.errors import ConfigError
from kopub.files import is_url
from kopub.processes import keep_little


def export(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="New folder or URL, or that of an earlier export.")],
    markdown: Annotated[
        bool, typer.Option("--markdown", help="One markdown file per document, with pictures.")
    ] = False,
    docling: Annotated[
        bool, typer.Option("--docling", help="One DoclingDocument per document, with pictures.")
    ] = False,
    chunks: Annotated[
        bool,
        typer.Option("--chunks", help="One JSON Lines file per document: pieces that fit a model, with their boxes."),
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="The tables as CSV and Parquet, with a JSON Lines file per document.")
    ] = False,
    hocr: Annotated[bool, typer.Option("--hocr", help="One hOCR file per document.")] = False,
    alto: Annotated[bool, typer.Option("--alto", help="One ALTO 4.4 file per page, in a folder per document.")] = False,
    page_xml: Annotated[
        bool, typer.Option("--page-xml", help="One PAGE XML file per page, in a folder per document.")
    ] = False,
    label_studio: Annotated[
        bool,
        typer.Option("--label-studio", help="With --page-images: tasks of Label Studio, to correct pages there."),
    ] = False,
    page_marks: Annotated[
        bool, typer.Option("--page-marks", help="With --markdown: a visible line where a page begins.")
    ] = False,
    notes: Annotated[
        bool, typer.Option("--notes", help="With --markdown: what a model noted on figures and tables, below them.")
    ] = False,
    page_images: Annotated[bool, typer.Option("--page-images", help="Include the pictures of whole pages.")] = False,
) -> None:
    """Write everything as JSON lines, NumPy arrays and picture files; or the documents, in the formats you name."""
    require_named(folder)
    for option, given in (("--page-marks", page_marks), ("--notes", notes)):
        if given and not markdown:
            raise ConfigError("{option} needs --markdown: add it", option)
    if label_studio and not page_images:
        raise ConfigError("--label-studio needs --page-images: add it")
    if label_studio and is_url(folder):
        raise ConfigError(
            "Label Studio serves pictures from a folder, not from {folder}: name one on this machine", folder
        )
    keep_little()
    # It loads Arrow.
    from kopub.cli.exporting import export_documents, export_everything

    wanted = {"markdown": markdown, "docling": docling, "chunks": chunks, "tables": tables}
    wanted |= {"hocr": hocr, "alto": alto, "page_xml": page_xml, "label_studio": label_studio}
    formats = [name for name in wanted if wanted[name]]
    if formats:
        export_documents(folder, formats, page_images, page_marks, notes)
    else:
        export_everything(folder, page_images)
