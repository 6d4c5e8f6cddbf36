"""Which pages the documents of a source have, and under which ids, given those of the index before."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from resources.pages.documents.conversion import converter
from resources.pages.documents.folder import Document, LeftOut, marked
from resources.pages.documents.made_page import Failed
from resources.pages.documents.packing import PageRange
from resources.pages.documents.pool import DocumentPool
from resources.parallel import ordered_map
from resources.printable import counted

_FETCHED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Taken:
    """The names of documents, and the beginnings of page ids, that other sources of the corpus have."""

    names: Collection[str] = ()
    ids: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class SourceRanges:
    """The ranges of a source's documents, and what is left out; `copies_of` are the sources that have some of it."""

    ranges: list[PageRange] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    copies_of: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of a document's file; one that cannot be opened has a `problem` and no `pages`."""

    sha256: str
    pages: int
    problem: str | None = None
    may_pass: bool = False
    attachments: int = 0
    converter: str | None = None
    missing: int = 0


def ranges_of(
    documents: Sequence[Document],
    source: str,
    before: Iterable[PageRange],
    known: Iterable[PageRange],
    elsewhere: Mapping[str, tuple[str, str]],
    taken: Taken,
    pool: DocumentPool,
    most: int,
) -> SourceRanges:
    """The ranges of all documents of a source, in order and of at most `most` pages, and what is left out.

    Left out are documents that are `elsewhere`, by SHA-256 their source and name there, and files that are attached to
    one. A document keeps the id that it had `before`, also when its file was renamed. Of a document in a `known` range
    the file is hashed and not opened.
    """
    result = SourceRanges()
    ranges, left_out = result.ranges, result.left_out
    facts = dict(zip((each.place for each in documents), _facts(documents, pool, known), strict=True))
    own: list[Document] = []
    for document in documents:
        found = facts[document.place]
        if other := elsewhere.get(found.sha256):
            source_of, name = other
            result.copies_of.add(source_of)
            left_out.append(LeftOut(document.path, document.name, f"the same file as {name} of {source_of}"))
            continue
        own.append(document)
        if found.attachments:
            reason = f"{counted(found.attachments, 'attached file')} in it: save them as files of their own"
            left_out.append(LeftOut(document.path, document.name, reason))
        if found.missing:
            reason = f"it says that it has {found.pages + found.missing:,} pages, of which {found.pages:,} can be found"
            left_out.append(LeftOut(document.path, document.name, reason))
    ids = _ids(own, source, before, {place: found.sha256 for place, found in facts.items()}, taken)
    for document in own:
        found, page_id = facts[document.place], ids[document.place]
        name = f"{source}/{document.name}" if document.name in taken.names else document.name
        for first in range(0, found.pages or 1, most):
            count = min(most, (found.pages or 1) - first)
            of_file = (
                found.pages,
                found.problem,
                found.may_pass,
                found.attachments,
                found.converter,
                found.missing,
            )
            ranges.append(PageRange(document.place, name, page_id, found.sha256, first, count, *of_file))
    return result


def _ids(
    documents: Sequence[Document],
    source: str,
    before: Iterable[PageRange],
    sha256: Mapping[str, str],
    taken: Taken,
) -> dict[str, str]:
    """What the ids of a document's pages begin with, by its place: as before, or else its own, or with a hash."""
    had = {each.place: each for each in before}
    ids = {each.place: had[each.place].id for each in documents if each.place in had}
    gone: dict[str, deque[str]] = defaultdict(deque)
    for each in had.values():
        if each.place not in ids and each.sha256:
            gone[each.sha256].append(each.id)
    for document in documents:
        if document.place not in ids and (left := gone.get(sha256[document.place])):
            ids[document.place] = left.popleft()
    used = {*ids.values(), *taken.ids}
    for document in documents:
        if document.place not in ids:
            own = document.id if document.id not in used else marked(document.id, f"{source}\0{document.place}")
            ids[document.place] = own
            used.add(own)
    return ids


def _facts(documents: Sequence[Document], pool: DocumentPool, known: Iterable[PageRange]) -> Iterator[_Facts]:
    """What is known of each document, in order."""
    # Bytes are a PDF or an image by the suffix of their file; other PDFs come of other converters.
    before = {(each.sha256, _suffix(each.place), each.converter): each for each in known if not each.may_pass}
    converters = [converter(_suffix(document.place)) for document in documents]
    # Of files on this disk one is read at a time; others are fetched.
    local = all(isinstance(document.path, Path) for document in documents)
    hashes = list(map(_sha256, documents) if local else ordered_map(_sha256, documents, _FETCHED_AT_ONCE))
    facts = [
        None if isinstance(sha256, OSError) else before.get((sha256, _suffix(document.place), made_by))
        for document, sha256, made_by in zip(documents, hashes, converters, strict=True)
    ]
    new = (
        document.path
        for document, sha256, found in zip(documents, hashes, facts, strict=True)
        if found is None and isinstance(sha256, str)
    )
    counts = pool.count(new)
    for sha256, found, made_by in zip(hashes, facts, converters, strict=True):
        if isinstance(sha256, OSError):
            yield _Facts("", 0, f"the file cannot be read: {sha256.strerror}", may_pass=True)
        elif found is not None:
            yield _Facts(sha256, found.pages, found.problem, False, found.attachments, made_by, found.missing)
        elif isinstance(count := next(counts), Failed):
            yield _Facts(sha256, 0, count.reason, count.may_pass, converter=made_by)
        else:
            yield _Facts(sha256, count.pages, None, False, count.attachments, made_by, count.missing)


def _suffix(place: str) -> str:
    return PurePosixPath(place).suffix.lower()


def _sha256(document: Document) -> str | OSError:
    try:
        return document.sha256()
    except OSError as error:
        return error
