"""Names of files for documents, whatever their ids are. Pure."""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath

_SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".heic", ".heif"})
"""Of what a document was read from: its files have suffixes of their own."""
_UNSAFE = re.compile(r"[^\w.+~=@-]+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
"""Names that Windows keeps to itself."""
_LONGEST = 120
"""Bytes of a name; suffixes and the names of pictures come to it."""
_HASH = 8
"""Hex digits that tell apart documents whose names would be one."""


def file_names(documents: Sequence[str]) -> list[str]:
    """A name for each document, in their order, from what tells the documents apart; no two are the same anywhere.

    Letters, digits and `. _ + ~ = @ -` stay. Documents whose names would differ only by case, or as letters are
    composed, all have a hash of what tells them apart, so that none depends on the order of the others.
    """
    names = [_safe(document) for document in documents]
    groups: dict[str, list[int]] = defaultdict(list)
    for at, name in enumerate(names):
        groups[_folded(name)].append(at)
    digits = _HASH
    while any(len(group) > 1 for group in groups.values()):
        for group in list(groups.values()):
            if len(group) > 1:
                for at in group:
                    names[at] = f"{_safe(documents[at])}-{_hash(documents[at])[:digits]}"
        groups = defaultdict(list)
        for at, name in enumerate(names):
            groups[_folded(name)].append(at)
        digits += _HASH
    return names


def _safe(document: str) -> str:
    text = unicodedata.normalize("NFC", document)
    if PurePosixPath(text).suffix.lower() in _SUFFIXES:
        text = text[: text.rindex(".")]
    text = _UNSAFE.sub("_", text).lstrip(".").rstrip("._ ")
    text = text.encode("utf-8", "ignore")[:_LONGEST].decode("utf-8", "ignore").rstrip("._ ")
    if not text:
        return "document"
    return f"_{text}" if _RESERVED.fullmatch(text) else text


def _folded(name: str) -> str:
    """Equal for names that some file system takes for one."""
    return unicodedata.normalize("NFKC", name).casefold()


def _hash(document: str) -> str:
    return hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()
