"""`kopub export`: everything as plain files, or its documents as markdown or DoclingDocuments."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kopub_cli.indexed_corpus import open_settings, require_indexed

if TYPE_CHECKING:
    from resources.config.settings import Settings
    from resources.documents_out.folder import DocumentsOut


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder, or that of an earlier export.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="One markdown file a document, with pictures.")] = False,
    docling: Annotated[bool, typer.Option("--docling", help="One DoclingDocument a document, with pictures.")] = False,
) -> None:
    """Write everything as JSON lines, NumPy arrays and picture files; or the documents, as markdown or for docling."""
    settings = open_settings()
    formats = [name for name, wanted in (("markdown", markdown), ("docling", docling)) if wanted]
    if formats:
        _say(folder, _documents(settings, folder, formats))
        return
    from kopub_assets.graph import GRAPH
    from resources.release.base import ASSETS
    from resources.release.export import export as export_tables
    from resources.store.corpus_tables import FIGURE_TABLES

    keys = settings.corpus.manifest.keys
    wanted = [table.name for table in FIGURE_TABLES if table.name in GRAPH.on(settings.resources).names]
    figures = [name for name in wanted if all(settings.store.has(name, key) for key in keys)]
    require_indexed(settings, [*ASSETS, *figures])
    done = export_tables(settings.store, keys, folder, figures)
    vectors = ", ".join(f"{count} {name}" for name, count in done.vectors.items())
    typer.echo(f"{folder.resolve()}: {done.pages} pages, {done.crops} pictures; vectors: {vectors}")


def _documents(settings: "Settings", folder: Path, formats: list[str]) -> "DocumentsOut":
    from resources.documents_out.folder import write_documents
    from resources.figures.descriptions import descriptions
    from resources.store.corpus_tables import TABLES

    require_indexed(settings, [TABLES.pages.name, TABLES.regions.name, TABLES.readings.name])
    store, keys = settings.store, settings.corpus.manifest.keys
    return write_documents(store, keys, folder, formats, descriptions(store, keys))


def _say(folder: Path, done: "DocumentsOut") -> None:
    """What was written; pages and regions add up."""
    states = ", ".join(f"{count:,} {state}" for state, count in done.pages.most_common())
    regions = done.regions
    typer.echo(
        f"{folder.resolve()}: {done.documents:,} documents of {done.pages.total():,} pages ({states}), "
        f"{done.pictures:,} pictures"
    )
    typer.echo(
        f"{regions.total():,} regions: {regions['placed']:,} in the text, {regions['furniture']:,} running heads and "
        f"page numbers left out, {regions['empty']:,} without text, {regions['lost']:,} could not be read"
    )
    typer.echo(f"{done.joined:,} paragraphs and tables joined over pages, {done.tied:,} notes tied")
