"""Files that are read now, as markdown and as JSON values."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kopub import Corpus, Page
from kopub.api.reading import Reading, TextLayers
from kopub.api.sources.home import HomeSource
from kopub.cli.console import lost_line, plain_reason, print_json, said, tell
from kopub.documents.export import require_own_folder, write_documents
from kopub.documents.markdown import document_markdown
from kopub.documents.stream import Assembler
from kopub.documents.structure import structure_document
from kopub.errors import KopubError, StoppedByHand, counted, visible
from kopub.states import LOST, State, joined, phrase
from kopub.store.corpus_tables import TABLES
from kopub.tables.progress import Watcher, watched_by
from kopub.texts.layer_counts import FromLayers, from_layers
from kopub.texts.text_quality import DOUBTFUL

_LINE_SECONDS = 15.0
"""Seconds between two progress lines if there is no bar."""
_LOST_PAGES = 3
"""Exit status if pages, or regions of them, could not be read."""


def read_files(
    files: Sequence[Path], pages: str | None, text_layer: TextLayers | None, out: Path | None, as_json: bool
) -> None:
    """Read files, and print their pages, or write them into the folder `out`.

    Raises `KopubError`, `StoppedByHand` after Ctrl-C, and `typer.Exit` if a page was lost.
    """
    if out is not None:
        # This is checked first, because reading may take hours.
        require_own_folder(out)
    reading = Reading(files, pages=pages, text_layer=text_layer)
    try:
        parts, documents, ended = _read(reading)
        read_pages = list(chain.from_iterable(documents.values()))
        if as_json:
            shown = []
            for name, of_document in documents.items():
                shown.append({"document": name, "pages": [page.to_dict() for page in of_document]})
            print_json(shown[0] if len(files) == 1 else shown)
        else:
            _write_markdown(parts, out)
        for left_out in reading.left_out:
            tell(visible(said(phrase("left out: {file} ({reason})", left_out.name, left_out.reason))), err=True)
        is_lost = _tell(parts, read_pages)
    finally:
        reading.close()
    read_so_far = phrase("{count:,} of {pages} were read", len(read_pages), counted(reading.pages, "page"))
    if isinstance(ended, KopubError):
        raise KopubError("{count}; then: {reason}", read_so_far, str(ended))
    if ended is not None:
        raise StoppedByHand("stopped: {count}", read_so_far)
    if is_lost:
        raise typer.Exit(_LOST_PAGES)


def _read(
    reading: Reading,
) -> tuple[list[HomeSource], dict[str, list[Page]], KopubError | KeyboardInterrupt | None]:
    """Return what was read, its pages by document, and what ended the reading early.

    Raises `KopubError`, with the reason, if nothing was read.
    """
    parts: list[HomeSource] = []
    early_end: KopubError | KeyboardInterrupt | None = None
    with _progress(reading.pages) as watcher, watched_by(watcher):
        try:
            parts.extend(reading.parts())
        except (KopubError, KeyboardInterrupt) as ended:
            early_end = ended
    documents: dict[str, list[Page]] = {}
    for part in parts:
        for document in Corpus(part).documents:
            documents.setdefault(document.id, []).extend(document.pages)
    pages = list(chain.from_iterable(documents.values()))
    if early_end is not None and not pages:
        raise early_end if isinstance(early_end, KopubError) else StoppedByHand("stopped: no page was read yet")
    if pages and all(page.state in LOST for page in pages):
        raise KopubError("{page} cannot be read: {reason}", pages[0].id, plain_reason(pages[0].id, pages[0].reason))
    return parts, documents, early_end


@contextmanager
def _progress(pages: int) -> Iterator[Watcher]:
    """Show the progress on standard error: a bar, or periodic lines."""
    console = Console(stderr=True)
    bars = (BarColumn(), MofNCompleteColumn(), TextColumn(said("pages")), TimeRemainingColumn())
    lock = threading.Lock()

    class ReadingProgress(Watcher):
        """A counter of pages that finished recognition, which takes longest."""

        done, said = 0, time.monotonic()

        def computed(self, asset: str, shard: str, state: State = State.OK) -> None:
            if asset != TABLES.readings.name:
                return
            with lock:
                self.done += 1
                bar.advance(task)
                if not console.is_terminal and time.monotonic() - self.said >= _LINE_SECONDS:
                    self.said = time.monotonic()
                    tell(phrase("{count:,} of {pages} read", self.done, counted(pages, "page")), err=True)

    bars = (TextColumn(said("reading")), *bars)
    with Progress(*bars, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=pages)
        yield ReadingProgress()


class _Tables:
    """The tables of all parts, each of which is a shard."""

    def __init__(self, parts: Sequence[HomeSource]) -> None:
        self._parts = {str(number): part for number, part in enumerate(parts)}
        self.shards = list(self._parts)

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        part = self._parts[shard]
        return part.store.read(asset, part.shards[0], columns)

    def metadata(self, asset: str, shard: str) -> dict[str, str]:
        part = self._parts[shard]
        return part.store.metadata(asset, part.shards[0])


def _write_markdown(parts: Sequence[HomeSource], out: Path | None) -> None:
    """Write documents and pictures into a folder, or print the documents.

    In printed documents, words replace the pictures.
    """
    tables = _Tables(parts)
    if out is not None:
        done = write_documents(tables, tables.shards, out, ["markdown"], keep_others=True)
        counts = (counted(done.documents, "document"), counted(done.pages.total(), "page"))
        line = phrase("{folder}: {documents} of {pages}, {pictures}", out, *counts, counted(done.pictures, "picture"))
        tell(line, err=True)
        return
    for document in Assembler(tables, tables.shards).read():
        pages = tuple(
            replace(page, pictures={at: replace(picture, path="") for at, picture in page.pictures.items()})
            for page in document.pages
        )
        shown = replace(document, pages=pages)
        typer.echo(document_markdown(shown, structure_document(shown).blocks), nl=False)


def _tell(parts: Sequence[HomeSource], pages: Sequence[Page]) -> bool:
    """Report text layers, doubts and losses on standard error; return whether any were lost."""
    layers = sum((from_layers(part.store, part.shards) for part in parts), FromLayers())
    if layers.regions:
        tell(layers.line, err=True)
    for page in pages:
        if page.state in (*LOST, State.PARTIAL):
            tell(lost_line(page), err=True)
        elif page.state == State.BLANK and (page.doubt or 0) < DOUBTFUL:
            tell(visible(said(phrase("{page} is blank: nothing is written on it", page.id))), err=True)
    for page in pages:
        if (page.doubt or 0) >= DOUBTFUL:
            tell(visible(said(phrase("{page} looks wrong: {reason}", page.id, joined(page.doubts)))), err=True)
    return any(page.state in (*LOST, State.PARTIAL) for page in pages)
