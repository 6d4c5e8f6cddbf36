"""The documents of a folder in natural order, and page ids; this opens no file."""

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from kopub.errors import SourceError, spelt
from kopub.pages.documents import conversion, pdf, pictures, plain
from kopub.pages.documents.pdf import is_pdf
from kopub.pages.page import MAX_ID_BYTES
from kopub.pages.places import ObjectPath, SourcePath, natural

_OFFICE = frozenset([".docm", ".key", ".numbers", ".pages", ".pptm", ".xlsb", ".xlsm"])
_LOCK = "~$"
"""Begins the names of files that office programs write beside a document while it is open."""
EXPORTED_DOCUMENTS = ".kopub-documents.json"
"""Lists the files of a folder that the next export of documents may replace. No document's name begins like this."""
EXPORTED_TABLES = "export.json"
"""Marks a folder as an export of tables, which the next one may replace."""
_WRITTEN = {
    (EXPORTED_DOCUMENTS,): "written by `kopub export` or `kopub read`",
    (EXPORTED_TABLES, "parsed_texts.jsonl"): "written by `kopub export`",
    ("shards.json", "rendered"): "a home of KoPub: index the documents in it with --add",
    ("shards.json", "store"): "a home of KoPub: index the documents in it with --add",
}
"""The reason to leave a folder out, by the names in it."""
_JOINT = "__"
"""The separator of folders and file in an id, which must not contain a slash."""
_HASH = 8
"""Number of hex digits that distinguish two documents with the same id."""
_LONGEST = MAX_ID_BYTES - len("_9999999")
"""Most bytes of an id before the page number."""
_PDF, _OTHER, _TEXT = 0, 1, 2
"""Ranks of documents: each leaves alone the ids of those before it."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A PDF, an image, or a file that becomes a PDF.

    `place` is its path below the folder as the storage spells it, and `name` the same path for people. `id` is the
    prefix of its pages' ids, unless they already have another one, and is unique in the folder.
    """

    path: SourcePath
    place: str
    name: str
    id: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder that is left out, and the reason.

    `name` is its path below the folder, for people.
    """

    path: SourcePath
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The documents of a folder and the files left out, in natural order."""

    documents: list[SourceFile]
    left_out: list[LeftOut]


def find_documents(source: SourcePath) -> FolderContents:
    """Return every document in or below a folder, or `source` itself if it is one.

    Hidden files and folders are left out, and folders that KoPub wrote; links are followed. Raises `SourceError` if a
    folder cannot be read.
    """
    ranked: list[tuple[SourceFile, int]] = []
    """Each document with its rank, and with an id that others may have."""
    left_out: list[LeftOut] = []
    names: Counter[str] = Counter()
    stems: Counter[tuple[str, int]] = Counter()
    # MacOS stores Hangul syllables as single letters.
    files = [(unicodedata.normalize("NFC", place), place, path) for path, place in _files(source)]
    for composed, place, path in sorted(files, key=lambda file: (list(map(natural, file[0].split("/"))), file[1])):
        name = spelt(composed)
        if reason := _no_document(path):
            left_out.append(LeftOut(path, name, reason))
            continue
        text = composed.removesuffix(PurePosixPath(place).suffix).replace("/", _JOINT)
        # Other characters are not allowed in an id.
        stem = "".join(c if c.isprintable() and c != "\\" else "_" for c in text).strip()
        rank = _PDF if is_pdf(path) else _TEXT if path.suffix.lower() in plain.SUFFIXES else _OTHER
        ranked.append((SourceFile(path, place, name, stem), rank))
        names[name] += 1
        # Adding an image or a text with the name of a PDF does not change the ids of the PDF's pages.
        for later in range(rank, _TEXT + 1):
            stems[stem, later] += 1
    documents: list[SourceFile] = []
    for document, rank in ranked:
        is_unusable = stems[document.id, rank] > 1 or len(document.id.encode()) > _LONGEST
        page_id = marked(document.id, document.place) if is_unusable else document.id
        name = document.name if names[document.name] == 1 else spelt(document.place)
        documents.append(replace(document, name=name, id=page_id))
    return FolderContents(documents, left_out)


def _no_document(path: SourcePath) -> str | None:
    """Return why a file or folder is not a document, else None.

    A broken link counts as a document, and is reported as unreadable.
    """
    suffix = path.suffix.lower()
    if path.name.startswith((".", _LOCK)):
        return "hidden" if path.name[0] == "." else "the lock file of an office document that somebody has open"
    if path.exists() and not path.is_file():
        return _written(entry.name for entry in path.iterdir()) if path.is_dir() else "no regular file"
    if conversion.is_converted(path.name):
        return conversion.lacks(suffix)
    if suffix in _OFFICE:
        return "an office file: save it as PDF (LibreOffice: soffice --headless --convert-to pdf FILE)"
    if pictures.CONVERTED.get(suffix) == pictures.HEIF and not pictures.heif_installed():
        return "HEIC needs an extra: install kopub[heic], or save it as JPEG"
    return None if suffix == pdf.SUFFIX or suffix in pictures.SUFFIXES else conversion.NO_DOCUMENT


def _written(names: Iterable[str]) -> str | None:
    """Return why to leave out a folder with these names in it, else None."""
    there = set(names)
    for marks, reason in _WRITTEN.items():
        if there.issuperset(marks):
            return reason
    return None


def _files(source: SourcePath) -> Iterator[tuple[SourcePath, str]]:
    """Yield all files below a folder, or `source` itself, each with its place."""
    if isinstance(source, ObjectPath):
        for path in [source] if source.is_file() else _walk_listed(source):
            yield path, path.relative_to(source).as_posix()
    elif source.is_file():
        yield source, source.name
    else:
        for path in _walk(source):
            yield path, path.relative_to(source).as_posix()


def _walk_listed(folder: ObjectPath) -> Iterator[ObjectPath]:
    """Do what `_walk` does, on object storage."""
    for path in folder.iterdir():
        is_entered = path.is_dir() and path.name[0] != "." and not _written(inner.name for inner in path.iterdir())
        if path.is_file() or not is_entered:
            yield path
        if is_entered:
            yield from _walk_listed(path)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, and the folders in it that are not entered."""
    walked = set()
    for place, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        entered = sorted(name for name in folders if name[0] != ".")
        # A link may lead back to a folder that contains it.
        real = os.path.realpath(place)
        if real in walked:
            entered = []
        elif Path(place) != folder and _written([*names, *folders]):
            entered = []
            yield Path(place)
        else:
            hidden = [name for name in folders if name[0] == "."]
            yield from map(Path(place).joinpath, [*names, *hidden])
        # `os.walk` enters what is left in its list.
        folders[:] = entered
        walked.add(real)


def _refuse(error: OSError) -> None:
    raise SourceError("{path} cannot be read: {error}", error.filename, error.strerror)


def marked(stem: str, place: str) -> str:
    """Return a stem's end, as long as fits, with a hash of its place."""
    mark = f"~{hashlib.sha256(os.fsencode(place)).hexdigest()[:_HASH]}"
    end = stem.encode()[-(_LONGEST - len(mark)) :].decode(errors="ignore")
    return f"{end.lstrip()}{mark}"
