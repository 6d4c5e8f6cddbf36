"""`kopub.read`: reads files immediately.

The assets themselves read them, in a home that is removed with the result.
"""

import hashlib
import operator
import os
import re
import shutil
import tempfile
import uuid
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from kopub.api.corpus import Corpus
from kopub.api.documents import Document
from kopub.api.sources.home import HomeSource
from kopub.config.settings import read_settings
from kopub.errors import ConfigError, SourceError, counted, quoted, visible
from kopub.files import is_url
from kopub.pages.arrow import BYTES, FAILED, FILE_NAME, ID, IMAGE, PAGE_NUMBER, PARTS, PROBLEM, TEXT_LAYER
from kopub.pages.corpus import Corpus as IndexedCorpus
from kopub.pages.documents.folder import LeftOut, SourceFile, find_documents
from kopub.pages.documents.pool import RenderPool
from kopub.pages.documents.text_layer import Extent, Failure
from kopub.pages.indexing import index
from kopub.pages.page import DPI
from kopub.release.gates import Gates
from kopub.states import LOST, Reason
from kopub.store.corpus_tables import TABLES
from kopub.store.table_store import ShardStore
from kopub.tables.asset import RunContext
from kopub.tables.checks import Problems
from kopub.tables.graph import GRAPH
from kopub.tables.shard_loop import make_all
from kopub.weights.fetch import require_ready

TextLayers = Literal["never", "check", "prefer"]
"""The ways to use a PDF's text layer: the values of `pdf.text_layer`."""
Chosen = str | int | Iterable[int] | None
"""Numbers of pages from 1: as `3-7` or `3,5,9-`, a number, or one by one; None for all."""

_FIRST, _MOST, _MOST_ON_A_GPU = 4, 32, 256
"""Pages that are read together: few at first, for early results. A GPU changes models between these groups."""
_HASH = 8
"""Hex digits that tell apart files of one name."""
_RANGE = re.compile(r"(?P<first>[0-9]{1,9})(?P<dash>-(?P<last>[0-9]{1,9})?)?|-(?P<until>[0-9]{1,9})")
"""A page or a range; no file has more pages, and Python parses no number of thousands of digits."""
_SCHEMA = pa.schema(
    [
        (ID, pa.string()),
        (IMAGE, pa.struct([(BYTES, pa.binary())])),
        (FILE_NAME, pa.string()),
        (PAGE_NUMBER, pa.int32()),
        (TEXT_LAYER, pa.string()),
        (PROBLEM, pa.string()),
        (PARTS, pa.string()),
        (FAILED, pa.bool_()),
    ]
)


def read(
    path: str | os.PathLike[str],
    *,
    profile: str | None = None,
    pages: Chosen = None,
    text_layer: TextLayers | None = None,
) -> Document:
    """Read a file now; return its pages with regions, text and markdown.

    The file is a PDF, an image, an HWP, office or text file. `profile` is a name or path, by default $KOPUB_PROFILE or
    `cpu`; `text_layer` replaces its `pdf.text_layer`. `pages` are numbers from 1, such as `range(3, 8)` or `"3-7"`. The
    usual assets do the work on a corpus of this file alone; their tables are removed with the result. A page that could
    not be read has its state and reason. Raises `KopubError`, one line, for a file that is no document, and if no page
    could be read.
    """
    reading = Reading([path], profile=profile, pages=pages, text_layer=text_layer)
    try:
        (part,) = reading.parts(at_once=reading.pages)
        weakref.finalize(part, reading.close)
        (document,) = Corpus(part).documents
        lost = document.pages.where(LOST)
        if len(lost) == len(document.pages):
            raise SourceError("{page} cannot be read: {reason}", lost[0].id, lost[0].reason)
    except BaseException:
        reading.close()
        raise
    return document


@dataclass(frozen=True, slots=True)
class _Unit:
    """A page that is read on its own, or a file that cannot be opened.

    A page has its number from 1; of such a file that is None, and `problem` says why.
    """

    file: SourceFile
    number: int | None
    problem: Failure | None = None


class Reading:
    """Files that are read in parts of a few pages.

    Each part has its own home below a temporary folder. `pages` is the number of pages to read, `left_out` lists what
    becomes no page. The results exist until `close`.
    """

    def __init__(
        self,
        files: Sequence[str | os.PathLike[str]],
        *,
        profile: str | None = None,
        pages: Chosen = None,
        text_layer: TextLayers | None = None,
    ) -> None:
        """Count the pages of `files`.

        Raises `KopubError` for a file that is no document, and for wrong `pages`.
        """
        documents = _documents(files)
        ranges = _ranges(pages)
        self._folder, self._owner = Path(tempfile.mkdtemp(prefix="kopub-read-")), os.getpid()
        self._processes = ExitStack()
        try:
            variables = {**os.environ, "KOPUB_HOME": str(self._folder)}
            if profile:
                variables["KOPUB_PROFILE"] = profile
            if text_layer:
                variables["KOPUB_PDF__TEXT_LAYER"] = text_layer
            settings = self._settings = read_settings(variables)
            require_ready({"layout": settings.layout, "recognition": settings.recognition}, settings.profile_name)
            self._pool = self._processes.enter_context(RenderPool())
            counts = list(self._pool.count(file.path for file in documents))
            self._pages: list[_Unit] = []
            self.left_out: list[LeftOut] = []
            for file, count in zip(documents, counts, strict=True):
                if isinstance(count, Extent):
                    numbers: set[int] = set()
                    for first, last in [(1, None)] if ranges is None else ranges:
                        # A range may end far behind the last page.
                        numbers.update(range(first, min(last or count.pages, count.pages) + 1))
                    if not numbers:
                        form = "{file} has {pages}: none of them was asked for"
                        raise ConfigError(form, quoted(file.name, 200), counted(count.pages, "page"))
                    self._pages += [_Unit(file, number) for number in sorted(numbers)]
                    self.left_out += [LeftOut(file.path, file.name, reason) for reason in count.left_out()]
                else:
                    # A file that cannot be opened is one page, which says why.
                    self._pages.append(_Unit(file, None, count))
        except BaseException:
            self.close()
            raise
        self.pages: int = len(self._pages)

    def parts(self, at_once: int = 0) -> Iterator[HomeSource]:
        """Read the pages in order, and yield each part when it is done.

        Parts have a few pages at first, or `at_once`. Raises `KopubError` if the engines cannot run at all.
        """
        gpus = self._settings.layout.gpus + self._settings.recognition.gpus
        most = at_once or (_MOST_ON_A_GPU if gpus else _MOST)
        to_read, size = iter(self._pages), at_once or min(_FIRST, most)
        with self._processes:
            while pages := list(islice(to_read, size)):
                yield self._part(pages)
                size = min(2 * size, most)

    def close(self) -> None:
        """End the processes, and remove the results."""
        # A forked child that exits has them from its parent, which may still need them.
        if os.getpid() == self._owner:
            self._processes.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _part(self, pages: Sequence[_Unit]) -> HomeSource:
        home = Path(tempfile.mkdtemp(dir=self._folder))
        source = home / "source"
        source.mkdir(parents=True)
        path = source / "pages.parquet"
        drawings = self._pool.render(
            ((page.file.path, page.number - 1) for page in pages if page.number is not None), DPI
        )
        with pq.ParquetWriter(path, _SCHEMA, compression="none") as writer:
            for page in pages:
                drawing = page.problem or next(drawings)
                failed = isinstance(drawing, Failure)
                form = "{file}: {reason}"
                reason = Reason(form, file=page.file.name, reason=drawing.reason) if failed else drawing.damage
                suffix = page.file.path.suffix.lower() if page.number is None else f"_{page.number}"
                row = {
                    ID: f"{page.file.id}{suffix}",
                    IMAGE: {BYTES: None if failed else drawing.data},
                    FILE_NAME: page.file.name,
                    PAGE_NUMBER: page.number,
                    TEXT_LAYER: None if failed else drawing.text_layer,
                    PROBLEM: reason,
                    PARTS: reason.packed() if isinstance(reason, Reason) else None,
                    FAILED: failed and drawing.may_pass,
                }
                writer.write_table(pa.Table.from_pylist([row], _SCHEMA))
        index(str(source), home)
        store = ShardStore(url=str(home / "store"), keep_versions=0)
        corpus = IndexedCorpus(home=str(home))
        # Nothing is published that a gate would keep: a page without regions has its state and reason.
        settings = replace(self._settings, corpus=corpus, store=store, gates=Gates(max_empty_jump=1))
        names = {TABLES.texts.name}
        # Each asset is listed after its parents.
        for name in reversed(GRAPH.names):
            if name in names:
                names.update(GRAPH.parents(name))
        assets = [asset(settings.resources) for name, asset in GRAPH.by_name.items() if name in names]
        for asset in assets:
            try:
                shards = tuple(asset.corpus.manifest.keys)
                make_all(asset, RunContext(uuid.uuid4().hex, shards, Problems(asset.checks, {}), _unsaid, _unsaid))
            finally:
                for engine in asset.engines:
                    engine.release()
        return HomeSource(home, store)


def _documents(files: Sequence[str | os.PathLike[str]]) -> list[SourceFile]:
    """Return the files as documents; paths tell apart those of one name."""
    documents: dict[Path, SourceFile] = {}
    for file in files:
        if is_url(os.fspath(file)):
            raise SourceError("{file} is a URL: name a file of this machine", quoted(os.fspath(file), 200))
        source = Path(os.path.expanduser(file)).absolute()
        # Unlike pathlib's, this function calls a name that no file can have one that is not there.
        if not os.path.isfile(source):
            form = "{source} is no file: name a PDF, an image, an HWP, office or text file"
            raise SourceError(form, quoted(str(source), 200))
        contents = find_documents(source)
        for left_out in contents.left_out:
            raise SourceError("{file} cannot be read: {reason}", quoted(left_out.name, 200), left_out.reason)
        (documents[source],) = contents.documents
    names = Counter(file.name for file in documents.values())
    ids = Counter(file.id for file in documents.values())
    named: list[SourceFile] = []
    for source, file in documents.items():
        name, id = file.name, file.id
        if names[name] > 1:
            name = visible(str(source))
        if ids[id] > 1:
            id = f"{id}~{hashlib.sha256(os.fsencode(source)).hexdigest()[:_HASH]}"
        named.append(replace(file, name=name, id=id))
    return named


def _ranges(pages: Chosen) -> list[tuple[int, int | None]] | None:
    """Return the first and the last page of each range.

    None stands for the last page of the document. Raises `ConfigError`.
    """
    if pages is None:
        return None
    ranges: list[tuple[int, int | None]]
    if isinstance(pages, range) and pages.step == 1:
        # It may end far behind the last page, so its numbers are not listed.
        ranges = [(pages.start, pages.stop - 1)]
    elif not isinstance(pages, str):
        try:
            numbers = sorted({operator.index(number) for number in ([pages] if isinstance(pages, int) else pages)})
        except TypeError:
            # One of them is no whole number.
            numbers = []
        ranges = [(number, number) for number in numbers]
    else:
        ranges = []
        for part in pages.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                ranges = []
                break
            last = match["until"] or match["last"] or (None if match["dash"] else match["first"])
            ranges.append((int(match["first"] or 1), None if last is None else int(last)))
    if not ranges or any(first < 1 or (last is not None and last < first) for first, last in ranges):
        raise ConfigError("pages {pages}: write numbers from 1 and ranges, such as 3-7 or 3,5,9-", quoted(str(pages)))
    return ranges


def _unsaid(line: str) -> None:
    """Say nothing, since the result has the state of each page."""
