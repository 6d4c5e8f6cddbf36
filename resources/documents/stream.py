"""The documents of a corpus, made of its tables one after the other, and the names of their files."""

import hashlib
import pickle
import re
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from resources.documents.document import Document, DocumentPage, DocumentPicture
from resources.errors import StoreError, without_paths
from resources.figures.figure import FigureNote
from resources.fingerprints import fingerprint
from resources.recognition.regions import crop_index, join_regions, pixel_box
from resources.release.base import OpenImages, TableReader, image_suffix
from resources.states import State
from resources.store.corpus_tables import TABLES

KeepPicture = Callable[[str, bytes], None]
"""Takes the relative path and the JPEG of a picture."""
Notes = Callable[[str, int], FigureNote | None]
"""The note on the picture or table of a region, by page id and index of the region; None for none."""

PICTURES = ".pictures"
"""Ends the name of the folder with a document's pictures."""
_PAGES, _LAYOUTS, _READINGS = TABLES.pages.name, TABLES.regions.name, TABLES.readings.name
_READ = ["page_id", "regions", "image_crops", "state", "reason"]
_PICTURE_BYTES = "crop_images"
_KNOWN = ["page_id", "doc_id", "page_no", "width", "height", "sha256"]


@dataclass(frozen=True, slots=True)
class _PagePlace:
    """The place of a page: position of its document, and its number there."""

    document: int
    number: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class _DocumentPlan:
    """A document before its pages are read: they end in the shard `last`."""

    doc_id: str
    name: str
    fingerprint: int
    pages: int
    last: str


class DocumentStream:
    """The documents of `shards`, in the order in which their last pages stand.

    A page without a document is one of its own. Pages are ordered by their numbers; where those are missing or occur
    twice, the pages of the document are numbered from 1 in the order of the shards. Only the pages of documents that
    are not complete are in memory, compressed where their document goes on in a later shard.
    """

    def __init__(
        self, reader: TableReader, shards: Sequence[str], notes: Notes | None = None, images: OpenImages | None = None
    ) -> None:
        self._reader = reader
        self._shards = shards
        self._notes = notes or (lambda page_id, index: None)
        self._images = images
        self._planned, self._places = _plan(reader, shards)

    @property
    def names(self) -> list[str]:
        """The names of the documents' files."""
        return [document.name for document in self._planned]

    def read(self, keep: KeepPicture | None = None) -> Iterator[Document]:
        """Yield every document once. Raises `StoreError` for tables that do not hold the same pages.

        Pictures are given to `keep` when they are read, those of whole pages too where there are `images`; without it
        no picture is read, which takes most of the memory, and a page still says which ones it has.
        """
        waiting: dict[int, list[DocumentPage | bytes]] = defaultdict(list)
        for shard in self._shards:
            for document, page in self._pages(shard, keep):
                planned = self._planned[document]
                pages = waiting[document]
                pages.append(page if planned.last == shard else zlib.compress(pickle.dumps(page), 1))
                if len(pages) == planned.pages:
                    yield _open_document(planned, waiting.pop(document))

    def _pages(self, shard: str, keep: KeepPicture | None) -> Iterator[tuple[int, DocumentPage]]:
        readings = self._reader.read(_READINGS, shard, [*_READ, *([_PICTURE_BYTES] if keep else [])])
        layouts = self._reader.read(_LAYOUTS, shard, ["page_id", "regions"])
        row_of = {page_id: row for row, page_id in enumerate(layouts["page_id"].to_pylist())}
        with self._images(shard) if keep and self._images else nullcontext(lambda page_id: None) as image_of:
            for read in _one_by_one(readings):
                page_id = read["page_id"]
                place = self._places.get(page_id)
                if place is None or page_id not in row_of:
                    missing = _PAGES if place is None else _LAYOUTS
                    raise StoreError(
                        f"{missing} of {shard} does not hold the pages of {_READINGS}: materialize it again"
                    )
                layout = layouts["regions"][row_of[page_id]].as_py()
                page = self._page(place, read, layout, keep)
                if keep and (data := image_of(page_id)) is not None:
                    path = f"{self._planned[place.document].name}{PICTURES}/page-{place.number}{image_suffix(data)}"
                    keep(path, bytes(data))
                    page = replace(page, image=DocumentPicture(path, place.width, place.height))
                yield place.document, page

    def _page(self, place: _PagePlace, read: Mapping[str, Any], layout: Any, keep: KeepPicture | None) -> DocumentPage:
        page_id = read["page_id"]
        regions = [
            replace(region, reason=region.reason and without_paths(region.reason))
            for region in join_regions(page_id, layout, read["regions"])
        ]
        indices = {region.index for region in regions}
        pictures = {}
        crops = read["image_crops"] or ()
        held = (read[_PICTURE_BYTES] or ()) if keep else [b""] * len(crops)
        for crop, data in zip(crops, held, strict=True):
            index = crop_index(crop["path"])
            if index not in indices:
                raise StoreError(f"{_READINGS} of {page_id} has a picture of no region: materialize it again")
            x1, y1, x2, y2 = pixel_box(tuple(crop["bbox"]), place.width, place.height)
            path = f"{self._planned[place.document].name}{PICTURES}/{place.number}-{index}.jpg"
            if keep:
                keep(path, data)
            pictures[index] = DocumentPicture(path, x2 - x1, y2 - y1)
        return DocumentPage(
            number=place.number,
            page_id=page_id,
            width=place.width,
            height=place.height,
            state=State(read["state"]),
            reason=read["reason"] and without_paths(read["reason"]),
            regions=tuple(regions),
            pictures=pictures,
            notes={index: note for index in indices if (note := self._notes(page_id, index)) is not None},
        )


def _plan(reader: TableReader, shards: Sequence[str]) -> tuple[list[_DocumentPlan], dict[str, _PagePlace]]:
    """Return the documents, and where each page stands."""
    rows: dict[tuple[str, str], list[tuple[dict[str, Any], str]]] = defaultdict(list)
    for shard in shards:
        for row in reader.read(_PAGES, shard, _KNOWN).to_pylist():
            rows[_document_key(row)].append((row, shard))
    documents = [part for key, pages in rows.items() for part in _split_namesakes(key, pages)]
    keys = [key for key, _ in documents]
    last = {shard: at for at, shard in enumerate(shards)}
    planned, places = [], {}
    for at, ((doc_id, _), name, (_, pages)) in enumerate(zip(keys, file_names(_names(keys)), documents, strict=True)):
        numbers = page_numbers([row["page_no"] for row, _ in pages])
        final = max((shard for _, shard in pages), key=last.__getitem__)
        planned.append(_DocumentPlan(doc_id, name, _fingerprint(pages), len(pages), final))
        for (row, _), number in zip(pages, numbers, strict=True):
            places[row["page_id"]] = _PagePlace(at, number, row["width"] or 0, row["height"] or 0)
    return planned, places


def _document_key(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what tells documents apart: the document's id, or the page's where there is none."""
    return (row["page_id"], "page") if row["doc_id"] is None else (row["doc_id"], "")


def _split_namesakes(
    key: tuple[str, str], pages: list[tuple[dict[str, Any], str]]
) -> list[tuple[tuple[str, str], list]]:
    """The documents that have one name: two with the same page numbers are told apart by the ids of their pages."""
    if len({row["page_no"] for row, _ in pages}) == len(pages):
        return [(key, pages)]
    parts: dict[str, list[tuple[dict[str, Any], str]]] = defaultdict(list)
    for row, shard in pages:
        parts[row["page_id"].rpartition("_")[0]].append((row, shard))
    if any(len({row["page_no"] for row, _ in part}) < len(part) for part in parts.values()):
        return [(key, pages)]
    return [((key[0], stem), part) for stem, part in parts.items()]


def _names(keys: Sequence[tuple[str, str]]) -> list[str]:
    """Return names for the files of documents: the document's, or where two share it, their page ids' stem."""
    shared = Counter(doc_id for doc_id, _ in keys)
    return [doc_id if shared[doc_id] == 1 else f"{doc_id}/{stem}" for doc_id, stem in keys]


def page_numbers(page_nos: Sequence[int | None]) -> list[int]:
    """Return the numbers of a document's pages: their own, or from 1 where one is missing or occurs twice."""
    if None in page_nos or len(set(page_nos)) < len(page_nos):
        return list(range(1, len(page_nos) + 1))
    return [number for number in page_nos if number is not None]


def _fingerprint(pages: Sequence[tuple[dict[str, Any], str]]) -> int:
    """64 bits of the hashes of the pages' images."""
    return int(fingerprint([row["sha256"] for row, _ in pages]), 16)


def _open_document(planned: _DocumentPlan, pages: Sequence[DocumentPage | bytes]) -> Document:
    opened = [pickle.loads(zlib.decompress(page)) if isinstance(page, bytes) else page for page in pages]
    return Document(
        planned.doc_id, planned.name, planned.fingerprint, tuple(sorted(opened, key=lambda page: page.number))
    )


def _one_by_one(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows, of which only one at a time is in Python's memory: pages carry their pictures."""
    for batch in table.to_batches(max_chunksize=1):
        yield from batch.to_pylist()


_SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".heic", ".heif"})
"""Suffixes of the files that a document is read from: its outputs have suffixes of their own."""
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
