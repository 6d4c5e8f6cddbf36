"""The documents of a corpus one by one, from the rows of its tables; every table is read once."""

import pickle
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from resources.documents_out.document import Document, DocumentPage, Picture
from resources.documents_out.file_names import file_names
from resources.errors import StoreError
from resources.figures.notes import FigureNote
from resources.fingerprints import fingerprint
from resources.printable import without_paths
from resources.recognition.crops import crop_index, pixel_box
from resources.recognition.read_regions import read_regions
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
_READ = ["page_id", "regions", "image_crops", "crop_images", "state", "reason"]
_KNOWN = ["page_id", "doc_id", "page_no", "width", "height", "sha256"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page stands: position of its document, and its number there."""

    document: int
    number: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class _Planned:
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
    are not complete are in memory, compressed where their document goes on in a later shard; pictures are given to
    `keep` when they are read, those of whole pages too where there are `images`.
    """

    def __init__(
        self, reader: TableReader, shards: Sequence[str], notes: Notes | None = None, images: OpenImages | None = None
    ) -> None:
        self._reader = reader
        self._shards = shards
        self._notes = notes or (lambda page_id, index: None)
        self._images = images or (lambda shard: nullcontext(lambda page_id: None))
        self._planned, self._places = _plan(reader, shards)

    @property
    def names(self) -> list[str]:
        """The names of the documents' files."""
        return [document.name for document in self._planned]

    def read(self, keep: KeepPicture) -> Iterator[Document]:
        """Every document once. Raises `StoreError` for tables that do not hold the same pages."""
        waiting: dict[int, list[DocumentPage | bytes]] = defaultdict(list)
        for shard in self._shards:
            for document, page in self._pages(shard, keep):
                planned = self._planned[document]
                pages = waiting[document]
                pages.append(page if planned.last == shard else zlib.compress(pickle.dumps(page), 1))
                if len(pages) == planned.pages:
                    yield _document(planned, waiting.pop(document))

    def _pages(self, shard: str, keep: KeepPicture) -> Iterator[tuple[int, DocumentPage]]:
        readings = self._reader.read(_READINGS, shard, _READ)
        layouts = self._reader.read(_LAYOUTS, shard, ["page_id", "regions"])
        row_of = {page_id: row for row, page_id in enumerate(layouts["page_id"].to_pylist())}
        with self._images(shard) as image_of:
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
                if (data := image_of(page_id)) is not None:
                    path = f"{self._planned[place.document].name}{PICTURES}/page-{place.number}{image_suffix(data)}"
                    keep(path, bytes(data))
                    page = replace(page, image=Picture(path, place.width, place.height))
                yield place.document, page

    def _page(self, place: _Place, read: Mapping[str, Any], layout: Any, keep: KeepPicture) -> DocumentPage:
        page_id = read["page_id"]
        regions = [
            replace(region, reason=region.reason and without_paths(region.reason))
            for region in read_regions(page_id, layout, read["regions"])
        ]
        indices = {region.index for region in regions}
        pictures = {}
        for crop, data in zip(read["image_crops"] or (), read["crop_images"] or (), strict=True):
            index = crop_index(crop["path"])
            if index not in indices:
                raise StoreError(f"{_READINGS} of {page_id} has a picture of no region: materialize it again")
            x1, y1, x2, y2 = pixel_box(tuple(crop["bbox"]), place.width, place.height)
            path = f"{self._planned[place.document].name}{PICTURES}/{place.number}-{index}.jpg"
            keep(path, data)
            pictures[index] = Picture(path, x2 - x1, y2 - y1)
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


def _plan(reader: TableReader, shards: Sequence[str]) -> tuple[list[_Planned], dict[str, _Place]]:
    """The documents, and where each page stands."""
    rows: dict[tuple[str, str], list[tuple[dict[str, Any], str]]] = defaultdict(list)
    for shard in shards:
        for row in reader.read(_PAGES, shard, _KNOWN).to_pylist():
            rows[_document_key(row)].append((row, shard))
    documents = [part for key, pages in rows.items() for part in _told_apart(key, pages)]
    keys = [key for key, _ in documents]
    last = {shard: at for at, shard in enumerate(shards)}
    planned, places = [], {}
    for at, ((doc_id, _), name, (_, pages)) in enumerate(zip(keys, file_names(_names(keys)), documents, strict=True)):
        numbers = _numbers([row["page_no"] for row, _ in pages])
        final = max((shard for _, shard in pages), key=last.__getitem__)
        planned.append(_Planned(doc_id, name, _fingerprint(pages), len(pages), final))
        for (row, _), number in zip(pages, numbers, strict=True):
            places[row["page_id"]] = _Place(at, number, row["width"] or 0, row["height"] or 0)
    return planned, places


def _document_key(row: Mapping[str, Any]) -> tuple[str, str]:
    """What tells documents apart: the document's id, or the page's where there is none."""
    return (row["page_id"], "page") if row["doc_id"] is None else (row["doc_id"], "")


def _told_apart(key: tuple[str, str], pages: list[tuple[dict[str, Any], str]]) -> list[tuple[tuple[str, str], list]]:
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
    """What the files are named after: the document, and where two have its name, the stem of their pages' ids."""
    shared = Counter(doc_id for doc_id, _ in keys)
    return [doc_id if shared[doc_id] == 1 else f"{doc_id}/{stem}" for doc_id, stem in keys]


def _numbers(page_nos: Sequence[int | None]) -> list[int]:
    """The numbers of a document's pages: their own, or from 1 where one is missing or occurs twice."""
    if None in page_nos or len(set(page_nos)) < len(page_nos):
        return list(range(1, len(page_nos) + 1))
    return [number for number in page_nos if number is not None]


def _fingerprint(pages: Sequence[tuple[dict[str, Any], str]]) -> int:
    """64 bits of the hashes of the pages' images."""
    return int(fingerprint([row["sha256"] for row, _ in pages]), 16)


def _document(planned: _Planned, pages: Sequence[DocumentPage | bytes]) -> Document:
    opened = [pickle.loads(zlib.decompress(page)) if isinstance(page, bytes) else page for page in pages]
    return Document(
        planned.doc_id, planned.name, planned.fingerprint, tuple(sorted(opened, key=lambda page: page.number))
    )


def _one_by_one(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows, of which only one at a time is in Python's memory: pages carry their pictures."""
    for batch in table.to_batches(max_chunksize=1):
        yield from batch.to_pylist()
