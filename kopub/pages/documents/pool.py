"""A pool of processes that make the pages of documents, in ranges.

A file that crashes its process costs one page. The pools of `concurrent.futures` cannot do this: a crash breaks the
whole pool, and tasks have no time limit. Here every process has its own pipe, and one thread waits for one answer.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import BoundedSemaphore
from typing import Any, Self

from kopub.pages.documents import page_maker
from kopub.pages.documents.conversion import Conversions, converter, is_converted, pieces_of_page
from kopub.pages.documents.folder import LeftOut, SourceFile, marked
from kopub.pages.documents.text_layer import Extent, Failure, RenderedImage
from kopub.pages.places import SourcePath, on_disk, sha256_of
from kopub.parallel import ordered_map, usable_cores
from kopub.processes import ChildPool, LostAnswer
from kopub.states import Reason

PAGE_SECONDS = 600.0
"""Most seconds for one page. Dense maps take seconds; a file that loops would hold up all others."""
_MOST = 16
"""Most processes; more are no faster, because one process writes everything that they make."""
_MOST_GIVEN_UP = 5
"""Pages of a document that may take more than their time or memory before no more of it are tried."""
_AHEAD = 4
"""Tasks in flight per process, of which some wait for LibreOffice or a slow page while others go on."""
_MOST_WAITING = 1 << 28
"""Bytes of pages that may pile up behind a slow one, because results are taken in order."""


class RenderPool:
    """A context manager of processes that make pages, each started with its first task.

    With 0 `processes`, there is one for each core, at most 16.
    """

    def __init__(self, processes: int = 0, seconds: float = PAGE_SECONDS) -> None:
        self._count = processes or min(usable_cores(), _MOST)
        self._threads = ThreadPoolExecutor(_AHEAD * self._count)
        self._free = BoundedSemaphore(self._count)
        self._processes = ChildPool(f"{page_maker.__name__}:work", self._count, seconds, confined={})
        self._given_up: Counter[Path] = Counter()
        self._conversions = Conversions(self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Threads wait for answers, so what answers them ends before they are waited for.
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._conversions.cancel()
        self._processes.cancel()
        self._threads.shutdown()
        self._processes.end()
        self._conversions.end()

    def count(self, paths: Iterable[SourcePath]) -> Iterator[Extent | Failure]:
        """Count each document's pages, in order. Raises what fetching a document raises."""
        return self._answers(("count", path) for path in paths)

    def render(self, pages: Iterable[tuple[SourcePath, int]], dpi: int) -> Iterator[RenderedImage | Failure]:
        """Yield pages, counted from 0, in order; PDFs at `dpi`. Raises as `count` does."""
        return self._answers(("make", path, page, dpi) for path, page in pages)

    @contextmanager
    def _places(self, count: int) -> Iterator[None]:
        """Keep `count` processes idle and small for a conversion, which may take their memory."""
        with ExitStack() as places:
            for _ in range(min(count, self._count)):
                places.enter_context(self._free)
                places.enter_context(self._processes.place())
            yield

    def _answers(self, requests: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        answers: deque[Future[Any]] = deque()
        try:
            while True:
                # Also what ends from here on ends the wait below, which would else be for a slow file alone.
                running: set[Future[Any]] = set()
                waiting = 0
                for answer in answers:
                    if not answer.done():
                        running.add(answer)
                    elif not answer.cancelled() and not answer.exception():
                        page = answer.result()
                        waiting += len(page.data) if isinstance(page, RenderedImage) else 0
                ahead = islice(requests, _AHEAD * self._count - len(running) if waiting < _MOST_WAITING else 0)
                for request in ahead:
                    answers.append(self._threads.submit(self._ask, request))
                    running.add(answers[-1])
                if not answers:
                    return
                if answers[0].done():
                    yield answers.popleft().result()
                else:
                    wait(running, return_when=FIRST_COMPLETED)
        finally:
            for answer in answers:
                answer.cancel()

    def _ask(self, request: tuple[Any, ...]) -> Any:
        method, path, *arguments = request
        lost: str | None = None
        with on_disk(path) as source:
            file = source
            with suppress(OSError):  # whoever reads it says why
                if file.is_file() and not file.stat().st_size:
                    return Failure("the file is empty")
            if is_converted(file):
                converted = self._conversions.pdf(str(path), file)
                if isinstance(converted, Failure):
                    return converted
                file = converted.pdf
                if arguments:
                    lost = converted.lost.get(arguments[0])
                    arguments.append(pieces_of_page(converted, arguments[0]))
            answer = self._answer(file, (method, file, *arguments))
        return replace(answer, damage=lost) if lost and isinstance(answer, RenderedImage) else answer

    def _answer(self, path: Path, request: tuple[Any, ...]) -> Any:
        """Have a page made or counted, unless its document cost too much already."""
        with self._free:
            given_up = self._given_up[path]
            if given_up >= _MOST_GIVEN_UP:
                form = "{count} of its pages took more than their time or memory, so no more are tried"
                return Failure(Reason(form, count=given_up))
            try:
                with path.open("rb") as file:
                    return self._processes.ask(request, file)
            except OSError as error:
                return Failure.unreadable(error)
            except LostAnswer as error:
                # Only what would happen again counts against the document.
                self._given_up[path] += error.is_certain
                form, size = "{reason} (it may compute for {seconds} seconds, in {size:,} MB)", page_maker.MEMORY >> 20
                limited = Reason(form, reason=str(error), seconds=page_maker.SECONDS, size=size)
                return Failure(limited if error.is_certain else str(error), may_pass=not error.is_certain)


@dataclass(frozen=True, slots=True)
class RowRange:
    """Consecutive pages of a document: `count` of its `pages`, from `first`, counted from 0.

    A document that cannot be opened has 0 `pages`, and one range of one row with the `problem`, which `may_pass` if it
    is not in its bytes. `place` and `name` are those of its `SourceFile`; its pages' ids begin with `id`. `converter`
    is the program that first made a PDF of it. `missing` pages are claimed by the file but not found.
    """

    place: str
    name: str
    id: str
    sha256: str
    first: int
    count: int
    pages: int
    problem: str | None = None
    may_pass: bool = False
    attachments: int = 0
    converter: str | None = None
    missing: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """The key of the range, which stays the same if the document changes or moves."""
        return self.id, self.first

    def as_json(self) -> dict[str, Any]:
        """Return the range as it is stored, with newer fields only if not default."""
        stored = asdict(self)
        for newer in fields(self):
            is_newer = newer.name in ("may_pass", "attachments", "converter", "missing")
            if is_newer and stored[newer.name] == newer.default:
                del stored[newer.name]
        return stored


def first_pages(ranges: Iterable[RowRange], most: int) -> Iterator[RowRange]:
    """Yield the ranges up to `most` pages; the last one may be shortened."""
    for pages in ranges:
        if most <= 0:
            return
        yield replace(pages, count=min(pages.count, most))
        most -= pages.count


def pack(ranges: Iterable[RowRange], before: Sequence[Sequence[RowRange]], most: int) -> list[list[RowRange]]:
    """Return the ranges of every shard, given those `before`.

    No range has more than `most` pages. A range stays in its shard, even if its document changed, unless the shard
    would grow beyond twice `most` pages. All others fill new shards of at most `most` pages, in order. A new shard
    replaces one that lost all its ranges, or else comes last; a shard that lost all and is not replaced stays empty.
    """
    wanted = {pages.key: pages for pages in ranges}
    shards: list[list[RowRange]] = []
    for shard in before:
        room = 2 * most - sum(pages.count for pages in shard if wanted.get(pages.key) == pages)
        shards.append([])
        for pages in shard:
            now = wanted.get(pages.key)
            if now is None or (now != pages and now.count > room):
                continue
            room -= 0 if now == pages else now.count
            shards[-1].append(wanted.pop(pages.key))
    fresh: deque[list[RowRange]] = deque()
    room = 0
    for pages in wanted.values():
        if pages.count > room:
            fresh.append([])
            room = most
        fresh[-1].append(pages)
        room -= pages.count
    for at, shard in enumerate(shards):
        if fresh and not shard:
            shards[at] = fresh.popleft()
    return [*shards, *fresh]


_FETCHED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class TakenNames:
    """The document names and id prefixes that other sources use."""

    names: Collection[str] = ()
    ids: Collection[str] = ()


def ranges_of(
    documents: Sequence[SourceFile],
    source: str,
    before: Iterable[RowRange],
    stored: Iterable[RowRange],
    elsewhere: Mapping[str, tuple[str, str]],
    taken: TakenNames,
    pool: RenderPool,
    most: int,
) -> tuple[list[RowRange], list[LeftOut], set[str]]:
    """Return the ranges of a source's documents, the left-out files, and sources of copies.

    The ranges are in order, and have at most `most` pages. Documents found `elsewhere`, which maps SHA-256 to source
    and name there, are left out, as are files attached to documents; the names of those sources come last. A document
    keeps the id that it had `before`, even if its file was renamed. The file of a document in a `stored` range is
    hashed but not opened.
    """
    own: list[RowRange] = []
    left_out: list[LeftOut] = []
    copies_of: set[str] = set()
    for document, whole in zip(documents, _whole_documents(documents, pool, stored), strict=True):
        if other := elsewhere.get(whole.sha256):
            source_of, name = other
            copies_of.add(source_of)
            left_out.append(LeftOut(document.path, document.name, f"the same file as {name} of {source_of}"))
            continue
        own.append(whole)
        for reason in Extent(whole.pages, whole.attachments, whole.missing).left_out():
            left_out.append(LeftOut(document.path, document.name, reason))
    ids = _ids(own, source, before, taken)
    ranges: list[RowRange] = []
    for whole in own:
        name = f"{source}/{whole.name}" if whole.name in taken.names else whole.name
        for first in range(0, whole.count, most):
            count = min(most, whole.count - first)
            ranges.append(replace(whole, name=name, id=ids[whole.place], first=first, count=count))
    return ranges, left_out, copies_of


def _ids(documents: Sequence[RowRange], source: str, before: Iterable[RowRange], taken: TakenNames) -> dict[str, str]:
    """Return each document's id prefix: its former one, or its own, marked if taken."""
    had = {pages.place: pages for pages in before}
    ids: dict[str, str] = {}
    for document in documents:
        if pages := had.pop(document.place, None):
            ids[document.place] = pages.id
    # A file that was renamed is known by its bytes.
    gone: dict[str, deque[str]] = defaultdict(deque)
    for pages in had.values():
        if pages.sha256:
            gone[pages.sha256].append(pages.id)
    for document in documents:
        if document.place not in ids and (former := gone.get(document.sha256)):
            ids[document.place] = former.popleft()
    used = {*ids.values(), *taken.ids}
    for document in documents:
        if document.place not in ids:
            own = document.id if document.id not in used else marked(document.id, f"{source}\0{document.place}")
            ids[document.place] = own
            used.add(own)
    return ids


def _whole_documents(
    documents: Sequence[SourceFile], pool: RenderPool, stored: Iterable[RowRange]
) -> Iterator[RowRange]:
    """Yield each document as one range of all its pages."""
    # The same bytes are a PDF or an image depending on the suffix, and another converter makes another PDF.
    before: dict[tuple[str, str, str | None], RowRange] = {}
    for pages in stored:
        if not pages.may_pass:
            before[pages.sha256, PurePosixPath(pages.place).suffix.lower(), pages.converter] = pages
    # Files on this disk are read one at a time; remote ones are fetched concurrently.
    local = all(isinstance(document.path, Path) for document in documents)
    hashes = list(map(_sha256, documents) if local else ordered_map(_sha256, documents, _FETCHED_AT_ONCE))
    wholes: list[tuple[RowRange, RowRange | None]] = []
    """Each document, with a stored range of the same bytes."""
    new: list[SourcePath] = []
    for document, sha256 in zip(documents, hashes, strict=True):
        whole = RowRange(document.place, document.name, document.id, "", first=0, count=1, pages=0)
        if isinstance(sha256, OSError):
            wholes.append((replace(whole, problem=Failure.unreadable(sha256).reason, may_pass=True), None))
            continue
        suffix = PurePosixPath(document.place).suffix.lower()
        whole = replace(whole, sha256=sha256, converter=converter(suffix))
        same = before.get((sha256, suffix, whole.converter))
        wholes.append((whole, same))
        if same is None:
            new.append(document.path)
    counts = pool.count(new)
    for whole, same in wholes:
        # Ranges and extents name what they count alike.
        extent = same or (next(counts) if whole.problem is None else None)
        if isinstance(extent, Failure):
            yield replace(whole, problem=extent.reason, may_pass=extent.may_pass)
        elif extent is None:
            yield whole
        else:
            yield replace(
                whole,
                count=extent.pages or 1,
                pages=extent.pages,
                problem=same and same.problem,
                attachments=extent.attachments,
                missing=extent.missing,
            )


def _sha256(document: SourceFile) -> str | OSError:
    try:
        return sha256_of(document.path)
    except OSError as error:
        return error
