"""`kopub export`: everything as plain files, or the documents in the formats that are named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kopub.cli.console import said, tell
from kopub.cli.options import first_look_lines, open_settings, require_indexed, require_named
from kopub.errors import ConfigError, counted
from kopub.files import is_url
from kopub.folders import store_url
from kopub.processes import keep_little
from kopub.states import phrase

if TYPE_CHECKING:
    from kopub.config.settings import Settings
    from kopub.documents.export import ExportTally
    from kopub.documents.markdown import MarkdownOptions
    from kopub.release.base import OpenImages


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
    settings = open_settings()
    images = _page_images(settings) if page_images else None
    wanted = {"markdown": markdown, "docling": docling, "chunks": chunks, "tables": tables}
    wanted |= {"hocr": hocr, "alto": alto, "page_xml": page_xml, "label_studio": label_studio}
    formats = [name for name in wanted if wanted[name]]
    if formats:
        from kopub.documents.markdown import MarkdownOptions
        from kopub.pages.documents.folder import EXPORTED_DOCUMENTS

        with _made(folder, EXPORTED_DOCUMENTS) as out:
            documents = _documents(settings, out, formats, images, MarkdownOptions(page_marks, notes))
        _say(_shown(folder), documents)
        _say_unfinished(settings)
        return
    from kopub.corrections.corrected import CorrectedTables
    from kopub.pages.documents.folder import EXPORTED_TABLES
    from kopub.release.base import ASSETS
    from kopub.release.export import export as export_tables
    from kopub.store.corpus_tables import FIGURE_TABLES
    from kopub.tables.graph import GRAPH

    keys = settings.corpus.manifest.keys
    wanted = [table.name for table in FIGURE_TABLES if table.name in GRAPH.on(settings.resources).names]
    figures = [name for name in wanted if all(settings.store.has(name, key) for key in keys)]
    require_indexed(settings, [*ASSETS, *figures])
    with _made(folder, EXPORTED_TABLES) as out:
        done = export_tables(CorrectedTables(settings.store), keys, out, figures, images)
    vectors = ", ".join(f"{count} {name}" for name, count in done.vectors.items())
    counts = (counted(done.pages, "page"), counted(done.crops, "picture"))
    tell(phrase("{folder}: {pages}, {pictures}; vectors: {vectors}", _shown(folder), *counts, vectors))
    _say_unfinished(settings)


def _say_unfinished(settings: "Settings") -> None:
    for line in first_look_lines(settings.corpus.manifest):
        tell(line, err=True)


@contextmanager
def _made(folder: str, marker: str) -> Iterator[Path]:
    """Yield the folder to write into: `folder`, or one to be uploaded. Raises `ConfigError`."""
    if not is_url(folder):
        yield Path(folder)
        return
    from kopub.store.objects import upload_folder

    try:
        place = store_url(folder)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if is_url(place):
        with upload_folder(place, marker) as out:
            yield out
    else:
        yield Path(place)


def _shown(folder: str) -> str:
    return folder if is_url(folder) else str(Path(folder).resolve())


def _page_images(settings: "Settings") -> "OpenImages":
    """Return the function that opens the pictures of a shard's pages."""
    from kopub.release.base import page_images
    from kopub.store.corpus_tables import TABLES

    return lambda shard: page_images(settings.corpus, shard, settings.store.read(TABLES.pages.name, shard), True)


def _documents(
    settings: "Settings", folder: Path, formats: list[str], images: "OpenImages | None", markdown: "MarkdownOptions"
) -> "ExportTally":
    from kopub.corrections.corrected import CorrectedTables
    from kopub.documents.export import USE_REVIEWS, sound_notes, write_documents
    from kopub.documents.reviews import page_reviews
    from kopub.store.corpus_tables import TABLES

    require_indexed(settings, [TABLES.pages.name, TABLES.regions.name, TABLES.readings.name])
    tables, keys = CorrectedTables(settings.store), settings.corpus.manifest.keys
    notes = sound_notes(tables, keys)
    reviews = page_reviews(settings.store, keys) if {*formats} & USE_REVIEWS else None
    return write_documents(tables, keys, folder, formats, notes, images, markdown, reviews=reviews)


def _say(folder: str, done: "ExportTally") -> None:
    """Print what was written, with the sums of pages and regions."""
    states = ", ".join(said(phrase("{count:,} {state}", count, state)) for state, count in done.pages.most_common())
    regions = done.regions
    whole = phrase(" and {count:,} of whole pages", done.page_images) if done.page_images else ""
    documents, pages = counted(done.documents, "document"), counted(done.pages.total(), "page")
    tell(
        phrase(
            "{folder}: {documents} of {pages} ({states}), {pictures}{whole}",
            *(folder, documents, pages, states, counted(done.pictures, "picture"), whole),
        )
    )
    tell(
        phrase(
            "{regions}: {placed:,} in the text, {furniture:,} running "
            "heads and page numbers left out, {empty:,} without text, {lost:,} could not be read",
            counted(regions.total(), "region"),
            *(regions[name] for name in ("placed", "furniture", "empty", "lost")),
        )
    )
    joined = counted(done.joined, "paragraph or table", "paragraphs and tables")
    tell(phrase("{joined} joined over pages, {notes} tied", joined, counted(done.tied, "note")))
