"""Makes the documents of a corpus from its tables, and their file names."""

import hashlib
import json
import pickle
import re
import sys
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Any

from kopub.documents.document import Document, DocumentPage, PictureFile, Review
from kopub.errors import StoreError, without_paths
from kopub.figures.figure import FigureNote
from kopub.fingerprints import fingerprint
from kopub.recognition.regions import crop_index, pixel_box
from kopub.release.base import OpenImages, TableReader, image_suffix
from kopub.states import State, decisive
from kopub.store.corpus_tables import TABLES
from kopub.store.rows import MADE_WITH
from kopub.texts.regions import Region, join_regions

KeepPicture = Callable[[str, bytes], None]
"""Takes the relative path and the JPEG of a picture."""
Notes = Callable[[str, int], FigureNote | None]
"""Returns the note on a region's picture or table, by page id and index of the region, or None."""

PICTURES = ".pictures"
"""The suffix of the folder with a document's pictures."""
_PAGES, _LAYOUTS, _READINGS = TABLES.pages.name, TABLES.regions.name, TABLES.readings.name
_READ = ["page_id", "regions", "image_crops", "state", "reason"]
_PICTURE_BYTES = "crop_images"
_FIELDS = ["page_id", "page_no", "width", "height", "state", "reason", "sha256"]


class Assembler:
    """Puts together the documents of `shards`, in the order of their last pages.

    A page without a document is a document itself. Pages are ordered by number; if numbers are missing or occur twice,
    the pages of the document are numbered from 1 in the order of the shards. Only the pages of incomplete documents are
    in memory, compressed if the document continues in a later shard.
    """

    def __init__(
        self,
        reader: TableReader,
        shards: Sequence[str],
        notes: Notes | None = None,
        images: OpenImages | None = None,
        reviews: Mapping[str, Review] | None = None,
    ) -> None:
        self._reader = reader
        self._shards = shards
        self._notes = notes or (lambda page_id, index: None)
        self._images = images
        self._reviews = reviews or {}
        self.documents = _plan(reader, shards)
        """The documents as planned: their pages without regions, in the order of the corpus."""
        self._of_shard: dict[str, list[int]] = defaultdict(list)
        """The positions of the documents that have a page in a shard."""
        for at, document in enumerate(self.documents):
            for shard in document.shards:
                self._of_shard[shard].append(at)

    def of_shard(self, shard: str) -> list[Document]:
        """Return the documents with a page in a shard, as planned."""
        return [self.documents[at] for at in self._of_shard[shard]]

    def read(self, keep: KeepPicture | None = None, chosen: Sequence[Document] | None = None) -> Iterator[Document]:
        """Yield every document once, or only those `chosen` among `documents`.

        Pictures are passed to `keep` as they are read; with `images`, those of whole pages too. Without `keep` no
        picture is read, which saves most of the memory, and each page still lists its pictures. Raises `StoreError`
        for tables that do not hold the same pages.
        """
        wanted, shards = set(range(len(self.documents))), self._shards
        if chosen is not None:
            identities = {id(document) for document in chosen}
            wanted = {at for at, document in enumerate(self.documents) if id(document) in identities}
            needed = {page.shard for document in chosen for page in document.pages}
            shards = [shard for shard in shards if shard in needed]
        waiting: dict[int, list[DocumentPage | bytes]] = defaultdict(list)
        for shard in shards:
            for at, page in self._pages(shard, wanted, keep):
                planned, pages = self.documents[at], waiting[at]
                is_last_shard = planned.pages[-1].shard == shard
                pages.append(page if is_last_shard else zlib.compress(pickle.dumps(page), 1))
                if len(pages) < len(planned.pages):
                    continue
                opened: list[DocumentPage] = []
                for part in waiting.pop(at):
                    opened.append(pickle.loads(zlib.decompress(part)) if isinstance(part, bytes) else part)
                yield replace(planned, pages=tuple(sorted(opened, key=lambda page: page.number)))

    def _pages(
        self, shard: str, wanted: Collection[int], keep: KeepPicture | None
    ) -> Iterator[tuple[int, DocumentPage]]:
        """Yield the pages of a shard as read, each with the position of its document."""
        readings = self._reader.read(_READINGS, shard, [*_READ, *([_PICTURE_BYTES] if keep else [])])
        layouts = self._reader.read(_LAYOUTS, shard, ["page_id", "regions"])
        places: dict[str, tuple[int, DocumentPage]] = {}
        for at in self._of_shard[shard]:
            for page in self.documents[at].pages:
                if page.shard == shard:
                    places[page.page_id] = (at, page)
        row_of = {page_id: row for row, page_id in enumerate(layouts["page_id"].to_pylist())}
        page_ids = readings["page_id"].to_pylist()
        makers = [f"kopub {version('kopub')}"]
        for asset in (_LAYOUTS, _READINGS):
            for engine in json.loads(self._reader.metadata(asset, shard).get(MADE_WITH, "{}")).get("engines", ()):
                model = engine.get("parameters", {}).get("model")
                makers.append(
                    f"{engine['engine']}{f' ({model})' if model else ''} for {asset} {engine.get('version', '?')}"
                )
        made_by = tuple(makers)
        if places.keys() - set(page_ids):
            # A document that waits for a page without a row would never be yielded.
            form = "{asset} of {shard} does not hold the pages of {other}: materialize it again"
            raise StoreError(form, _READINGS, shard, _PAGES)
        with self._images(shard) if keep and self._images else nullcontext(lambda page_id: None) as image_of:
            for row, page_id in enumerate(page_ids):
                if page_id not in places or page_id not in row_of:
                    missing = _LAYOUTS if page_id in places else _PAGES
                    form = "{asset} of {shard} does not hold the pages of {other}: materialize it again"
                    raise StoreError(form, missing, shard, _READINGS)
                at, place = places[page_id]
                if at not in wanted:
                    continue
                # Only one row at a time becomes Python objects, since pages carry their pictures.
                (read,) = readings.slice(row, 1).to_pylist()
                page = self._page(at, place, read, layouts["regions"][row_of[page_id]].as_py(), keep)
                page = replace(page, made_by=made_by, review=self._reviews.get(page_id, Review()))
                if keep and (data := image_of(page_id)) is not None:
                    path = f"{self.documents[at].name}{PICTURES}/page-{place.number}{image_suffix(data)}"
                    keep(path, bytes(data))
                    page = replace(page, image=PictureFile(path, place.width, place.height))
                yield at, page

    def _page(
        self, at: int, place: DocumentPage, read: Mapping[str, Any], layout: Any, keep: KeepPicture | None
    ) -> DocumentPage:
        """Return a planned page with what was read on it."""
        page_id = read["page_id"]
        regions: dict[int, Region] = {}
        notes: dict[int, FigureNote] = {}
        for region in join_regions(page_id, layout, read["regions"]):
            regions[region.index] = replace(region, reason=region.reason and without_paths(region.reason))
            if (note := self._notes(page_id, region.index)) is not None:
                notes[region.index] = note
        pictures = {}
        crops = read["image_crops"] or ()
        pictures_of_page = (read[_PICTURE_BYTES] or ()) if keep else [b""] * len(crops)
        for crop, data in zip(crops, pictures_of_page, strict=True):
            index = crop_index(crop["path"])
            if index not in regions:
                form = "{asset} of {page} has a picture of no region: materialize it again"
                raise StoreError(form, _READINGS, page_id)
            box = pixel_box(tuple(crop["bbox"]), place.width, place.height)
            path = f"{self.documents[at].name}{PICTURES}/{place.number}-{index}.jpg"
            if keep:
                keep(path, data)
            pictures[index] = PictureFile(path, box.width, box.height)
        state, reason = read["state"], read["reason"]
        # Of a page that lost its picture nothing may be left to read.
        if decisive({_READINGS: state, _PAGES: place.state}) == _PAGES:
            state, reason = place.state, place.reason
        return replace(
            place,
            state=State(state),
            reason=reason and without_paths(reason),
            regions=tuple(regions.values()),
            pictures=pictures,
            notes=notes,
        )


_Key = tuple[str, str]
"""The key of a document: its id, and a second part that tells documents of one id apart."""
_NumberedPage = tuple[DocumentPage, int | None, str | None]
"""A planned page, the number that it has itself, if any, and the SHA-256 of its image."""


def _plan(reader: TableReader, shards: Sequence[str]) -> list[Document]:
    """Return the documents in the order of their first pages.

    State and reason of a page are those of `raw_pages`.
    """
    by_key: dict[_Key, list[_NumberedPage]] = defaultdict(list)
    for shard in shards:
        table = reader.read(_PAGES, shard, ["doc_id", *_FIELDS])
        columns = [table[name].to_pylist() for name in ("doc_id", *_FIELDS)]
        for doc_id, page_id, number, width, height, state, reason, sha256 in zip(*columns, strict=True):
            # The id of a document recurs on every page: all of them share one string.
            key = (page_id, "page") if doc_id is None else (sys.intern(doc_id), "")
            page = DocumentPage(number or 0, page_id, width or 0, height or 0, State(state), reason, shard=shard)
            by_key[key].append((page, number, sha256))

    documents: list[tuple[_Key, list[_NumberedPage]]] = []
    for (doc_id, kind), pages in by_key.items():
        parts = split_namesakes([(page.page_id, number) for page, number, _ in pages])
        for stem, places in parts.items():
            documents.append(((doc_id, kind if len(parts) == 1 else stem), [pages[place] for place in places]))

    shared = Counter(doc_id for (doc_id, _), _ in documents)
    # No id has half of a surrogate pair, so no name with one is the id of another document.
    names = [doc_id if shared[doc_id] == 1 else f"{doc_id}\udc00{stem}" for (doc_id, stem), _ in documents]
    planned: list[Document] = []
    for name, ((doc_id, _), pages) in zip(file_names(names), documents, strict=True):
        numbers = page_numbers([number for _, number, _ in pages])
        numbered: list[DocumentPage] = []
        for (page, _, _), number in zip(pages, numbers, strict=True):
            # Most pages have their own number already.
            numbered.append(page if page.number == number else replace(page, number=number))
        # 64 bits of the hash over the pages' image hashes.
        images = int(fingerprint([sha256 for _, _, sha256 in pages]), 16)
        planned.append(Document(doc_id, name, images, tuple(numbered)))
    return planned


def split_namesakes(pages: Sequence[tuple[str, int | None]]) -> dict[str, list[int]]:
    """Return the positions of each document's pages among the pages of one name.

    Pages are given by id and number. Documents with the same page numbers are told apart by the ids of their pages, up
    to the last underscore.
    """
    every = {"": [*range(len(pages))]}
    if len({number for _, number in pages}) == len(pages):
        return every
    parts: dict[str, list[int]] = defaultdict(list)
    for at, (page_id, _) in enumerate(pages):
        parts[page_id.rpartition("_")[0]].append(at)
    if any(len({pages[at][1] for at in part}) < len(part) for part in parts.values()):
        return every
    return parts


def page_numbers(page_nos: Sequence[int | None]) -> list[int]:
    """Return the numbers of a document's pages, all different.

    They are its own numbers, or count from 1 if one is missing or occurs twice.
    """
    if None in page_nos or len(set(page_nos)) < len(page_nos):
        return list(range(1, len(page_nos) + 1))
    return [number for number in page_nos if number is not None]


_SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".heic", ".heif"})
"""Suffixes of the files that documents are read from; their outputs have suffixes of their own."""
_UNSAFE = re.compile(r"[^\w.+~=@-]+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
"""Names that Windows reserves."""
_BYTE = re.compile(r"\\udc([89a-f][0-9a-f])")
"""A byte of a file name that is not UTF-8, as ids spell it."""
_LONGEST = 120
"""Most bytes of a name, to which suffixes and the names of pictures are added."""
_HASH = 8
"""Hex digits that tell apart documents whose names would be the same."""


def file_names(documents: Sequence[str]) -> list[str]:
    """Return a file name for each document, in their order.

    No two are the same on any file system. Letters, digits and `. _ + ~ = @ -` are kept. Documents whose names would
    differ only in case or Unicode composition all get a hash of their full names, so that no name depends on the order.
    """
    names = [_safe(document) for document in documents]
    digits = 0
    while True:
        namesakes: dict[str, list[int]] = defaultdict(list)
        for at, name in enumerate(names):
            # Names of one form are one name to some file system.
            namesakes[unicodedata.normalize("NFKC", name).casefold()].append(at)
        if len(namesakes) == len(names):
            return names
        # Names with too few digits of a hash may still be the same.
        digits += _HASH
        for group in namesakes.values():
            for at in group if len(group) > 1 else ():
                digest = hashlib.sha256(documents[at].encode("utf-8", "surrogatepass")).hexdigest()
                names[at] = f"{_safe(documents[at])}-{digest[:digits]}"


def _safe(document: str) -> str:
    """Return a document's name without what some file system refuses."""
    # The bytes that a name spells are read as CP949 if they are that: old Korean archives have such names.
    raw = _BYTE.sub(lambda byte: chr(int(byte[1], 16)), document)
    with suppress(UnicodeError):
        document = document if raw == document else raw.encode("latin-1").decode("cp949")
    text = unicodedata.normalize("NFC", document)
    if PurePosixPath(text).suffix.lower() in _SUFFIXES:
        text = text[: text.rindex(".")]
    text = _UNSAFE.sub("_", text).lstrip(".").rstrip("._ ")
    text = text.encode("utf-8", "ignore")[:_LONGEST].decode("utf-8", "ignore").rstrip("._ ")
    if not text:
        return "document"
    return f"_{text}" if _RESERVED.fullmatch(text) else text
