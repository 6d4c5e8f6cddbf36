"""Limits of archives, which most documents are."""

import zipfile

from kopub.errors import UndecodableImage

MOST_TEXT = 1 << 26
"""Most bytes of an HWP document's text, enough for more than 10,000 printed pages."""
_MOST_UNPACKED = 1 << 29
"""Most bytes to which a document may unpack."""
_MOST_FILES = 20_000
LOCKED = "it wants a password: save it without one"
_MANIFEST = "META-INF/manifest.xml"


def require_usable(archive: zipfile.ZipFile) -> None:
    """Raise `UndecodableImage` if an archive is locked or unpacks to too much."""
    entries = archive.infolist()
    if len(entries) > _MOST_FILES or sum(entry.file_size for entry in entries) > _MOST_UNPACKED:
        raise too_large()
    if _MANIFEST in archive.namelist() and b"encryption-data" in archive.read(_MANIFEST):
        raise UndecodableImage(LOCKED)


def too_large() -> UndecodableImage:
    """Return the error of a document that unpacks to too much."""
    form = "it unpacks to more than a document holds (text {text} MB, all {all} MB)"
    return UndecodableImage(form, text=MOST_TEXT >> 20, all=_MOST_UNPACKED >> 20)
