"""Indexing: sources of pages become a shard manifest, and their queries a table beside it."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from kopub.errors import BusyTable, SourceError, StoreError, counted
from kopub.files import cannot_write, is_url
from kopub.pages.index_writer import IndexWriter
from kopub.pages.manifest import BEGUN, NAME, CorpusSource, Manifest
from kopub.pages.places import CorpusPlace, place_of, storage_at
from kopub.pages.source_files import find_files
from kopub.states import phrase
from kopub.store.locks import ObjectLock, acquire_lock, release_lock

Progress = Callable[[str], None]


class Others(StrEnum):
    """Says what becomes of the sources of a corpus when another one is indexed."""

    REFUSE = "refuse"
    ADD = "add"
    REPLACE = "replace"


def index(
    source: str,
    where: Path | CorpusPlace,
    progress: Progress = lambda line: None,
    dpi: int | None = None,
    others: Others = Others.REFUSE,
    max_pages: int | None = None,
) -> Manifest:
    """Write the index of a source into a home, or a shared place.

    The index is shards.json, and queries.parquet if there are queries. `source` is a folder that `datasets` saved, a
    folder of .arrow or .parquet files (each file is a shard, in natural order of the names), a folder with PDFs and
    images in it or below, any of these named corpus/ with questions beside it, one such file, the URL of any of these,
    or the id of a Hub dataset. A source already in the corpus is indexed again; for a new one, `others` decides whether
    it is refused, added, or replaces the existing ones. PDF pages, drawn at `dpi` (by default as before, or at 300),
    and image files are stored once in shards in rendered/ beside the index. For a first look, `max_pages` limits the
    pages of the documents until they are indexed without it. Files that are left out are listed in left_out.txt beside
    the index. `progress` gets a line for every step. Raises `SourceError`, or `StoreError` if a file cannot be written;
    what was indexed before then stays.
    """
    place = place_of(where)
    if others is Others.REFUSE:
        _require_no_others(source, place)
    files = find_files(source, place, progress)
    if place.url and not is_url(source) and not files.documents:
        form = "{place} is shared, and its files lie on this machine: other nodes must have them at the same paths"
        progress(phrase(form, place))
    with _alone(place, progress):
        # Another process may have indexed a source while this one looked for files or waited.
        if others is Others.REFUSE:
            _require_no_others(source, place)
        before = _before(place)
        if before is None and place.has(NAME):
            form = "the index at {place} cannot be read and is replaced by that of {source}: --add adds other sources"
            progress(phrase(form, place, source))
        is_first = not place.remote and not place.has(NAME)
        if is_first:
            # A full disk or a kill would otherwise leave a home that seems to hold the samples.
            named = os.path.abspath(source) if os.path.exists(source) else source
            place.write(BEGUN, named.encode(errors="replace"))
        writer = IndexWriter(place, before, progress)
        try:
            result = writer.write(source, files, dpi, others is Others.REPLACE, max_pages)
        except SourceError:
            if is_first:
                place.remove(BEGUN)
            raise
        if is_first:
            place.remove(BEGUN)
    written = result.named(source)
    if written is not None and before is not None and result.shards != before.shards:
        # A file that another source left out as a copy of one of these may be the only one now.
        for other in result.sources:
            if written.name in other.copies_of:
                _index_again(result, other, place, progress)
    return Manifest.load(place)


def other_sources(source: str, where: Path | CorpusPlace) -> str:
    """Return the places of a corpus's sources, or nothing if `source` is one of them."""
    before = _before(place_of(where))
    return before.location if before and before.named(source) is None else ""


def _require_no_others(source: str, place: CorpusPlace) -> None:
    """Raise `SourceError` if the corpus has sources and `source` is none of them."""
    if others := other_sources(source, place):
        form = (
            "{place} holds {others}: --add adds {source} to it, --replace replaces it, --home DIR works in another home"
        )
        raise SourceError(form, place, others, source)


def remove(name: str, where: Path | CorpusPlace, progress: Progress = lambda line: None) -> Manifest:
    """Remove a source from the corpus, by its name or place, but not its files.

    Raises as `index` does.
    """
    place = place_of(where)
    with _alone(place, progress):
        before = _before(place)
        if before is None:
            raise SourceError("{place} has no corpus of its own: kopub index SOURCE makes one", place)
        source = before.source(name)
        if len(before.sources) == 1:
            raise SourceError(
                "{source} is the only source: kopub index SOURCE --replace puts another in its place", source.name
            )
        result = IndexWriter(place, before, progress).write_without(source)
    for other in result.sources:
        if source.name in other.copies_of:
            _index_again(result, other, place, progress)
    return Manifest.load(place)


def retry_failed(where: Path | CorpusPlace, progress: Progress) -> bool:
    """Index again the sources with pages that failed; return whether there were any."""
    place = place_of(where)
    before = _before(place)
    failed = [source for source in before.sources if source.failed] if before else []
    for source in failed:
        form = "{pages} of {source} could not be made the last time: trying again"
        progress(phrase(form, counted(source.failed, "page"), source.name))
        _index_again(Manifest.load(place), source, place, progress)
    return bool(failed)


def _index_again(corpus: Manifest, source: CorpusSource, place: CorpusPlace, tell: Progress) -> None:
    look = sum(shard.rows for shard in corpus.shards_of(source.name)) if source.left else None
    try:
        index(corpus.location_of(source), place, tell, others=Others.ADD, max_pages=look)
    except SourceError as error:
        tell(phrase("{source} was not indexed again: {reason}", source.name, str(error)))


def _before(place: CorpusPlace) -> Manifest | None:
    """Return the existing index, or None if there is no usable one."""
    with suppress(SourceError):
        before = Manifest.load(place)
        return before if before.index == place else None
    return None


@contextmanager
def _alone(place: CorpusPlace, tell: Progress) -> Iterator[None]:
    """Let one process at a time, on all nodes, write an index. Raises `StoreError`."""
    waits = phrase("another `kopub index` writes the index at {place}: waiting for it", place)
    if not place.remote:
        is_new = not place.folder.exists()
        try:
            place.folder.mkdir(parents=True, exist_ok=True)
            folder = os.open(place.folder, os.O_RDONLY)
        except OSError as error:
            raise StoreError(cannot_write(place.folder, error)) from error
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell(waits)
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            if is_new:
                # It is empty if the source was refused.
                with suppress(OSError):
                    place.folder.rmdir()
            os.close(folder)
        return
    objects, what = storage_at(place.url)[0], f"the index at {place}"
    try:
        acquire_lock(place.lock, ObjectLock(objects, place.lock, what), what, wait=False)
    except BusyTable:
        tell(waits)
        acquire_lock(place.lock, ObjectLock(objects, place.lock, what), what, wait=True)
    try:
        yield
    finally:
        release_lock(place.lock)
