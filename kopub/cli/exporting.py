"""Export everything, or the documents in the formats that `kopub export` names."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kopub.cli.console import said, tell
from kopub.cli.options import first_look_lines, open_settings, require_indexed
from kopub.config.settings import Settings
from kopub.corrections.corrected import CorrectedTables
from kopub.documents.export import USE_REVIEWS, page_reviews, sound_notes, write_documents
from kopub.documents.markdown import MarkdownOptions
from kopub.errors import ConfigError, counted
from kopub.files import is_url
from kopub.folders import store_url
from kopub.pages.documents.folder import EXPORTED_DOCUMENTS, EXPORTED_TABLES
from kopub.release.base import ASSETS, OpenImages, page_images
from kopub.release.export import export
from kopub.states import phrase
from kopub.store.corpus_tables import FIGURE_TABLES, TABLES
from kopub.store.objects import upload_folder
from kopub.tables.graph import GRAPH


def export_documents(
    folder: str, formats: Sequence[str], whole_pages: bool, page_marks: bool, with_notes: bool
) -> None:
    """Write the documents in `formats` to a folder or URL, and report it.

    `whole_pages` adds the pictures of pages; `page_marks` and `with_notes` are for markdown.
    """
    settings = open_settings()
    images = _page_images(settings) if whole_pages else None
    with _target(folder, EXPORTED_DOCUMENTS) as out:
        require_indexed(settings, [TABLES.pages.name, TABLES.regions.name, TABLES.readings.name])
        tables, keys = CorrectedTables(settings.store), settings.corpus.manifest.keys
        notes = sound_notes(tables, keys)
        reviews = page_reviews(settings.store, keys) if {*formats} & USE_REVIEWS else None
        markdown = MarkdownOptions(page_marks, with_notes)
        tally = write_documents(tables, keys, out, formats, notes, images, markdown, reviews=reviews)
    states = ", ".join(said(phrase("{count:,} {state}", count, state)) for state, count in tally.pages.most_common())
    whole = phrase(" and {count:,} of whole pages", tally.page_images) if tally.page_images else ""
    documents, pages = counted(tally.documents, "document"), counted(tally.pages.total(), "page")
    form = "{folder}: {documents} of {pages} ({states}), {pictures}{whole}"
    tell(phrase(form, _address(folder), documents, pages, states, counted(tally.pictures, "picture"), whole))
    form = (
        "{regions}: {placed:,} in the text, {furniture:,} running "
        "heads and page numbers left out, {empty:,} without text, {lost:,} could not be read"
    )
    counts = (tally.regions[name] for name in ("placed", "furniture", "empty", "lost"))
    tell(phrase(form, counted(tally.regions.total(), "region"), *counts))
    joined = counted(tally.joined, "paragraph or table", "paragraphs and tables")
    tell(phrase("{joined} joined over pages, {notes} tied", joined, counted(tally.tied, "note")))
    for line in first_look_lines(settings.corpus.manifest):
        tell(line, err=True)


def export_everything(folder: str, whole_pages: bool) -> None:
    """Write every table as plain files to a folder or URL, and report it."""
    settings = open_settings()
    images = _page_images(settings) if whole_pages else None
    keys = settings.corpus.manifest.keys
    on = GRAPH.on(settings.resources).names
    figures: list[str] = []
    for table in FIGURE_TABLES:
        if table.name in on and all(settings.store.has(table.name, key) for key in keys):
            figures.append(table.name)
    require_indexed(settings, [*ASSETS, *figures])
    with _target(folder, EXPORTED_TABLES) as out:
        written = export(CorrectedTables(settings.store), keys, out, figures, images)
    vectors = ", ".join(f"{count} {name}" for name, count in written.vectors.items())
    counts = (counted(written.pages, "page"), counted(written.crops, "picture"))
    tell(phrase("{folder}: {pages}, {pictures}; vectors: {vectors}", _address(folder), *counts, vectors))
    for line in first_look_lines(settings.corpus.manifest):
        tell(line, err=True)


@contextmanager
def _target(folder: str, marker: str) -> Iterator[Path]:
    """Yield the folder to write into: `folder`, or one to be uploaded. Raises `ConfigError`."""
    if not is_url(folder):
        yield Path(folder)
        return
    try:
        place = store_url(folder)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if is_url(place):
        with upload_folder(place, marker) as out:
            yield out
    else:
        yield Path(place)


def _address(folder: str) -> str:
    return folder if is_url(folder) else str(Path(folder).resolve())


def _page_images(settings: Settings) -> OpenImages:
    """Return the function that opens the pictures of a shard's pages."""
    return lambda shard: page_images(settings.corpus, shard, settings.store.read(TABLES.pages.name, shard), True)
