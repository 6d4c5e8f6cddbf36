"""Exports documents as files of a folder, which the next export replaces.

The files are written one by one; an export of another kind replaces none of them.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.log import CorrectionLog
from kopub.documents.alto import alto_files
from kopub.documents.chunks import chunk_document
from kopub.documents.docling import document_json
from kopub.documents.document import Block, Document, Review
from kopub.documents.hocr import document_hocr
from kopub.documents.label_studio import label_tasks
from kopub.documents.markdown import MarkdownOptions, document_markdown
from kopub.documents.page_xml import page_xml_files
from kopub.documents.spreadsheets import CSV_START, sheet_names, tables_workbook
from kopub.documents.stream import PICTURES, Assembler, Notes
from kopub.documents.structure import Structure, structure_document
from kopub.documents.tables import document_tables
from kopub.errors import StoreError
from kopub.figures.figure import FigureNote
from kopub.files import cannot_write, replace_bytes, temporary_files
from kopub.pages.documents.folder import EXPORTED_DOCUMENTS
from kopub.release.base import OpenImages, TableReader
from kopub.states import State
from kopub.store.corpus_tables import FIGURE_NOTES, TABLES
from kopub.store.table_store import TableStore

_TEMPORARY = ".kopub-documents.tmp"


@dataclass(frozen=True, slots=True)
class _FileFormat:
    """A format: the suffix of a document's file, and what makes its content, if any.

    `content` also gets the options of markdown and the name of the export's folder. `files` go into a folder beside it
    whose suffix is `folder`. A format that `shows_pictures` refers to the files of the document's pictures.
    """

    suffix: str
    content: Callable[[Document, Sequence[Block], MarkdownOptions, str], str] | None
    shows_pictures: bool = False
    folder: str = ""
    files: Callable[[Document, Sequence[Block]], Iterator[tuple[str, bytes]]] = lambda document, blocks: iter(())


def _chunk_lines(document: Document, blocks: Sequence[Block], *_: object) -> str:
    lines = ""
    for chunk in chunk_document(document, blocks):
        lines += json.dumps(asdict(chunk), ensure_ascii=False) + "\n"
    return lines


def _table_lines(document: Document, blocks: Sequence[Block], *_: object) -> str:
    """Return a JSON line for each table, which names the files with its rows."""
    tables, folder = [*document_tables(document, blocks)], f"{document.name}{_TABLE_FILES}"
    lines = ""
    for table, name in zip(tables, sheet_names(tables), strict=True):
        values = asdict(table)
        del values["rows"], values["grid"]
        values["n_rows"] = len(table.rows)
        values["files"] = [f"{folder}/{table.number}{suffix}" for suffix in (".csv", ".parquet")]
        values |= {"workbook": f"{folder}/{document.name}.xlsx", "sheet": name}
        lines += json.dumps(values, ensure_ascii=False) + "\n"
    return lines


def _table_files(document: Document, blocks: Sequence[Block]) -> Iterator[tuple[str, bytes]]:
    tables = [*document_tables(document, blocks)]
    for table in tables:
        yield f"{table.number}.csv", CSV_START + table.to_csv().encode("utf-8", "backslashreplace")
        yield f"{table.number}.parquet", table.to_parquet()
    if tables:
        yield f"{document.name}.xlsx", tables_workbook(tables)


_TABLE_FILES = ".tables"
"""The suffix of the folder with the data of a document's tables."""
FORMATS = {
    "markdown": _FileFormat(
        ".md", lambda document, blocks, options, _: document_markdown(document, blocks, options), shows_pictures=True
    ),
    "docling": _FileFormat(".json", lambda document, blocks, *_: document_json(document, blocks), shows_pictures=True),
    "chunks": _FileFormat(".chunks.jsonl", _chunk_lines),
    "tables": _FileFormat(".tables.jsonl", _table_lines, folder=_TABLE_FILES, files=_table_files),
    "hocr": _FileFormat(".hocr", lambda document, blocks, *_: document_hocr(document)),
    "alto": _FileFormat("", None, folder=".alto", files=alto_files),
    "page_xml": _FileFormat("", None, folder=".page", files=page_xml_files),
    "label_studio": _FileFormat(
        ".label-studio.json", lambda document, blocks, options, folder: label_tasks(document, folder)
    ),
}
USE_REVIEWS = frozenset({"hocr", "alto", "page_xml", "label_studio"})
"""The formats that say something of the reviews of pages."""


@dataclass
class ExportTally:
    """Counts of an export: pages by state, regions by outcome, each counted once."""

    documents: int = 0
    pages: Counter[str] = field(default_factory=Counter)
    pictures: int = 0
    page_images: int = 0
    regions: Counter[str] = field(default_factory=Counter)
    joined: int = 0
    tied: int = 0

    def add(self, document: Document, of: Structure, with_pictures: bool) -> None:
        self.documents += 1
        for page in document.pages:
            self.pages[page.state.value] += 1
            self.pictures += len(page.pictures) if with_pictures else 0
            self.page_images += page.image is not None
        self.regions.update(placed=of.placed, furniture=of.furniture, empty=of.empty, lost=of.lost)
        self.joined += of.joined
        self.tied += of.tied


def write_documents(
    reader: TableReader,
    shards: Sequence[str],
    out: Path,
    formats: Sequence[str],
    notes: Notes | None = None,
    images: OpenImages | None = None,
    markdown: MarkdownOptions | None = None,
    keep_others: bool = False,
    reviews: Mapping[str, Review] | None = None,
) -> ExportTally:
    """Write every document of `shards` into `out`, in each format.

    `formats` are keys of `FORMATS`. Each file is written whole or not at all, and left alone if it has not changed.
    Files of an earlier export in these formats that this one does not write are removed when it is complete, unless
    `keep_others` is set. `notes` are a model's notes on pictures and tables; with `images`, the pictures of whole
    pages are written too. `reviews` are those of pages, for archives and Label Studio. Raises `StoreError` if `out`
    holds anything other than exports of documents; nothing is written anywhere else.
    """
    stream = Assembler(reader, shards, notes, images, reviews)
    with_pictures = images is not None or any(FORMATS[name].shows_pictures for name in formats)
    try:
        return _ExportFolder(out).write(stream, formats, markdown or MarkdownOptions(), keep_others, with_pictures)
    except OSError as error:
        raise StoreError(cannot_write(out, error)) from error


def require_own_folder(out: Path) -> None:
    """Raise `StoreError` when `out` holds anything else than exports of documents."""
    if out.exists() and not out.is_dir():
        raise StoreError("{path} is a file; name a new or empty folder to export into", out)
    if out.is_dir() and set(out.iterdir()) - _left_overs(out) and not (out / EXPORTED_DOCUMENTS).is_file():
        raise StoreError("{folder} holds files that no export of documents wrote; name a new or empty folder", out)


def _left_overs(out: Path) -> set[Path]:
    """Return the files that a killed export may have left directly in `out`."""
    return {out / _TEMPORARY, *temporary_files(out / EXPORTED_DOCUMENTS)}


_NOTE_FIELDS = ("kind", "description", "data_html", "smiles", "language")


def sound_notes(tables: TableStore | CorrectedTables, shards: Sequence[str]) -> Notes:
    """Return a function from a page's id and a region to its note, or None.

    The region is one of `tables`: a note stays with its box, whose index may have changed since. It holds 40 MB for
    40,781 pages with one and a half notes each, of 200 characters. Raises `StoreError`.
    """
    by_place: dict[tuple[str, int], FigureNote] = {}
    for shard in shards:
        if not tables.has(FIGURE_NOTES.name, shard):
            continue
        rows = tables.read(FIGURE_NOTES.name, shard, ["page_id", "notes"]).to_pylist()
        noted = {row["page_id"]: row["notes"] for row in rows if row["notes"]}
        boxes: dict[str, dict[int, Sequence[int]]] = {}
        if noted and tables.has(TABLES.readings.name, shard):
            readings = tables.read(TABLES.readings.name, shard, ["page_id", "regions"])
            for row in readings.filter(pc.field("page_id").isin(list(noted))).to_pylist():
                boxes[row["page_id"]] = {region["index"]: region["bbox_2d"] for region in row["regions"] or ()}
        for page_id, notes in noted.items():
            boxes_now = boxes.get(page_id, {})
            for note in notes:
                # Regions of one box are told apart by the index that the note was written for.
                index = note["index"]
                if boxes_now.get(index) != note["bbox_2d"]:
                    index = next((at for at, box in boxes_now.items() if box == note["bbox_2d"]), None)
                if note["state"] == State.OK and index is not None:
                    fields = {name: note[name] for name in _NOTE_FIELDS if note[name] is not None}
                    keywords = tuple(note["keywords"] or ())
                    by_place[page_id, index] = FigureNote(f"{page_id}/{index}", State.OK, keywords=keywords, **fields)
    return lambda page_id, index: by_place.get((page_id, index))


def page_reviews(store: TableStore, shards: Sequence[str]) -> dict[str, Review]:
    """Return by id the doubts about pages, and the marks of their corrections. Raises `StoreError`."""
    reviews: dict[str, Review] = {}
    for shard in shards:
        if store.has(TABLES.texts.name, shard):
            for row in store.read(TABLES.texts.name, shard, ["page_id", "doubt", "doubts"]).to_pylist():
                reviews[row["page_id"]] = Review(row["doubt"], tuple(row["doubts"] or ()))
    for page_id, history in CorrectionLog(store).by_page().items():
        reviews[page_id] = replace(reviews.get(page_id, Review()), corrections=history.seen)
    return reviews


class _ExportFolder:
    def __init__(self, out: Path) -> None:
        self._out = out

    def write(
        self,
        stream: Assembler,
        formats: Sequence[str],
        markdown: MarkdownOptions,
        keep_others: bool,
        with_pictures: bool,
    ) -> ExportTally:
        earlier = self._claim()
        files = dict(earlier)
        """The names of the documents that the folder then has, by format."""
        either = {name: sorted({*listed}) for name, listed in earlier.items()}
        for name in formats:
            listed = [document.name for document in stream.documents]
            either[name] = sorted({*listed, *earlier.get(name, ())})
            files[name] = either[name] if keep_others else listed
        # An export that is killed has left files of both.
        self._mark({"complete": False, "documents": either})
        tally = ExportTally()
        pictured = {name for form, listed in files.items() if FORMATS[form].shows_pictures for name in listed}
        for document in stream.read(self._replace if with_pictures else None):
            of = structure_document(document)
            for name in formats:
                form = FORMATS[name]
                if form.folder:
                    paths = set()
                    for file, data in form.files(document, of.blocks):
                        paths.add(path := f"{document.name}{form.folder}/{file}")
                        self._replace(path, data)
                    self._keep_files(document.name + form.folder, paths)
                if form.content is not None:
                    content = form.content(document, of.blocks, markdown, self._out.resolve().name)
                    self._replace(document.name + form.suffix, content.encode("utf-8", "backslashreplace"))
            if with_pictures:
                whole = {page.image.path for page in document.pages if page.image is not None}
                parts = {picture.path for page in document.pages for picture in page.pictures.values()}
                self._keep_files(document.name + PICTURES, whole | parts)
            elif document.name not in pictured:
                self._keep_files(document.name + PICTURES, set())
            tally.add(document, of, with_pictures)
        for name in formats:
            for gone in set(earlier.get(name, ())) - set(files[name]):
                self._remove(FORMATS[name], gone)
        for gone in set(chain(*earlier.values())) - set(chain(*files.values())):
            self._keep_files(gone + PICTURES, set())
        self._mark({"complete": True, "documents": files})
        return tally

    def _remove(self, form: _FileFormat, name: str) -> None:
        if form.content is not None:
            (self._out / f"{name}{form.suffix}").unlink(missing_ok=True)
        if form.folder:
            self._keep_files(name + form.folder, set())

    def _claim(self) -> dict[str, list[str]]:
        """Return the document names that an earlier export wrote, by format.

        Creates the folder if it is missing.
        """
        out, marker = self._out, self._out / EXPORTED_DOCUMENTS
        require_own_folder(out)
        out.mkdir(parents=True, exist_ok=True)
        for left_over in _left_overs(out):
            left_over.unlink(missing_ok=True)
        if not marker.is_file():
            return {}
        try:
            listed = json.loads(marker.read_text("utf-8"))["documents"]
            names: dict[str, list[str]] = {}
            for name in FORMATS:
                if name in listed:
                    names[name] = [file for file in listed[name] if Path(file).name == file]
        except (ValueError, KeyError, TypeError):
            raise StoreError("{path} cannot be read: delete the folder and export again", marker) from None
        return names

    def _mark(self, says: dict[str, Any]) -> None:
        replace_bytes(self._out / EXPORTED_DOCUMENTS, (json.dumps(says, ensure_ascii=False, indent=1) + "\n").encode())

    def _replace(self, name: str, content: bytes) -> None:
        """Write a file, unless it already has this content."""
        path = self._out / name
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return
        path.parent.mkdir(exist_ok=True)
        temporary = path.parent / _TEMPORARY
        temporary.write_bytes(content)
        os.replace(temporary, path)

    def _keep_files(self, name: str, paths: set[str]) -> None:
        """Remove the files of a document's folder that are not among `paths`.

        A folder that becomes empty is removed too.
        """
        folder = self._out / name
        if not folder.is_dir():
            return
        for file in folder.iterdir():
            if f"{name}/{file.name}" not in paths:
                file.unlink()
        if not paths:
            folder.rmdir()
