"""The PDFs of a folder in their order, and the ids of their pages. No PDF is opened."""

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from resources.errors import SourceError
from resources.files import file_sha256
from resources.pages import ids
from resources.pages.names import natural
from resources.printable import spelt

SUFFIX = ".pdf"
_JOINT = "__"
"""Separates folders and file in an id, which must not hold a slash."""
_HASH = 8
"""Hex digits that tell apart two documents of the same id."""
_LONGEST = ids.MAX_BYTES - len("_9999999")
"""Bytes of an id before the number of the page."""


@dataclass(frozen=True, slots=True)
class Document:
    """A PDF. `place` is its path below the folder as the file system spells it, `name` the same for people.

    `id` is what the ids of its pages begin with, and is unique in the folder.
    """

    path: Path
    place: str
    name: str
    id: str

    def sha256(self) -> str:
        """The SHA-256 of the file. Raises `OSError`."""
        return file_sha256(self.path)


def find_documents(source: Path) -> list[Document]:
    """Every PDF in or below a folder, or the one that `source` is, in natural order of folders and names.

    Hidden files and folders are left out; links are followed. Raises `SourceError` when a folder cannot be read.
    """
    paths = [source] if source.is_file() else list(_walk(source))
    root = source.parent if source.is_file() else source
    found = [(path, path.relative_to(root).as_posix()) for path in paths]
    found.sort(key=lambda each: ([natural(part) for part in _composed(each[1]).split("/")], each[1]))
    names, stems = Counter(_name(place) for _, place in found), Counter(_stem(place) for _, place in found)
    return [
        Document(
            path,
            place,
            name=_name(place) if names[_name(place)] == 1 else spelt(place),
            id=_id(_stem(place), place, stems[_stem(place)] > 1),
        )
        for path, place in found
    ]


def is_pdf(path: Path) -> bool:
    """Whether a path is that of a PDF. A broken link counts as one: it is reported as unreadable."""
    return path.suffix.lower() == SUFFIX and path.name[0] != "." and (path.is_file() or not path.exists())


def _walk(folder: Path) -> Iterator[Path]:
    seen = set()
    for place, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        # A link may lead back to a folder that it lies in.
        real = os.path.realpath(place)
        folders[:] = [] if real in seen else sorted(name for name in folders if name[0] != ".")
        if real not in seen:
            yield from filter(is_pdf, (Path(place, name) for name in names))
        seen.add(real)


def _refuse(error: OSError) -> None:
    raise SourceError(f"{error.filename} cannot be read: {error.strerror}")


def _id(stem: str, place: str, shared: bool) -> str:
    """The stem; when it is too long or `shared`, as much of its end as fits and a hash of the place."""
    if not shared and len(stem.encode()) <= _LONGEST:
        return stem
    mark = f"~{hashlib.sha256(os.fsencode(place)).hexdigest()[:_HASH]}"
    end = stem.encode()[-(_LONGEST - len(mark)) :].decode(errors="ignore")
    return f"{end.lstrip()}{mark}"


def _stem(place: str) -> str:
    """The place without its suffix, in characters that an id may hold."""
    text = _composed(place)[: -len(SUFFIX)].replace("/", _JOINT)
    return "".join(c if c.isprintable() and c != "\\" else "_" for c in text).strip()


def _name(place: str) -> str:
    return spelt(_composed(place))


def _composed(text: str) -> str:
    """`text` in NFC: macOS, and archives made there, store Hangul syllables as single letters."""
    return unicodedata.normalize("NFC", text)
