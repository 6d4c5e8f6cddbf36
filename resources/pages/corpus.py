"""The corpus as the assets see it: the pages and queries of every shard, straight from the source files."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import Field

from resources.errors import SourceError
from resources.pages import ids
from resources.pages.arrow import Row
from resources.pages.documents.stored_layers import StoredLayers
from resources.pages.documents.text_layer import layer_id
from resources.pages.manifest import GOLD, Manifest
from resources.pages.page_reader import PageReader, open_shard
from resources.pages.places.corpus_place import CACHE_GB, CorpusPlace
from resources.pages.queries import Query, digest, from_table, read_table
from resources.printable import quoted
from resources.resource import ProfileOnly, Resource
from resources.urls import is_url

UPRIGHT = True
UPRIGHT_FIELD = (
    "Set pages upright before they are looked at: paper on a background, skews and quarter turns. Pages with a text "
    "layer, and those of a layout that is known beforehand, are left as they came."
)
_ID_PARTS = re.compile(r"(?P<doc>[^/]+)_(?P<page>[0-9]+)")
"""`{document}_{page, from 1}`, as the ids of SDS KoPub are made."""
_MAX_PAGE_NO = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row of a shard. A row with a `problem` is to be quarantined, or `failed`, and its `data` may be None.

    `damage` says what its picture lacks of the page.

    `page_id` is unique in the corpus and safe in a file name, except that of a row whose own id
    cannot be used: that is `{shard_key}/row_{row}`.
    """

    row: int
    page_id: str
    doc_id: str | None
    page_no: int | None
    license: str | None
    source: str
    data: bytes | memoryview | None
    text_layer_id: str | None
    problem: str | None
    failed: bool
    damage: str | None


class Corpus(Resource):
    """The corpus that is indexed in `home`, or at `url`; the samples when nothing was indexed on this machine."""

    home: ProfileOnly[str] = Field(
        description="Folder of this machine: the index, where it is not shared, and what was fetched."
    )
    url: ProfileOnly[str] = Field(default="", description="Folder or fsspec URL of an index that nodes share.")
    cache_gb: float = Field(default=CACHE_GB, gt=0, description="Gigabytes of fetched files that are kept.")
    upright: bool = Field(default=UPRIGHT, description=UPRIGHT_FIELD)

    @property
    def folder(self) -> Path:
        """The home, where what concerns this machine is kept besides the index."""
        return Path(self.home)

    @property
    def place(self) -> CorpusPlace:
        """Where the index lies."""
        return CorpusPlace(self.folder, self.url, self.cache_gb)

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest.load(self.place)

    @property
    def gold(self) -> Path | None:
        """The file with the known answers of the pages, where there is one beside an index on this machine."""
        place = self.manifest.place(GOLD)
        return Path(place) if not is_url(place) and Path(place).is_file() else None

    def rows(self, shard_key: str) -> Iterator[SourceRow]:
        """Every row of a shard in file order, as many as the manifest says. Raises `SourceError`."""
        shard = self.manifest.shard(shard_key)
        source = Path(shard.file).name
        duplicates = set(shard.duplicates)
        seen: set[str] = set()
        for at, row in enumerate(open_shard(self.manifest, shard_key).rows(shard.rows)):
            problem = _id_problem(row, at, row.id in duplicates or row.id in seen)
            page_id = row.id if problem is None and row.id is not None else ids.stand_in(shard_key, at)
            seen.add(page_id)
            doc_id, page_no = _document(page_id, row)
            yield SourceRow(
                row=at,
                page_id=page_id,
                doc_id=doc_id,
                page_no=page_no,
                license=row.license,
                source=source,
                data=row.image,
                text_layer_id=layer_id(row.text_layer),
                problem=problem or row.problem,
                failed=problem is None and row.failed,
                damage=row.damage,
            )

    @contextmanager
    def reader(self, shard_key: str) -> Iterator[PageReader]:
        """Random access to the page images of a shard. Raises `SourceError`."""
        yield PageReader(open_shard(self.manifest, shard_key), shard_key)

    def text_layers(self, shard_key: str) -> StoredLayers:
        """The text layers of a shard's pages, without their images. Raises `SourceError`."""
        file = open_shard(self.manifest, shard_key)
        return StoredLayers(file.place, shard_key, file.text_layers())

    def queries(self, shard_key: str) -> list[Query]:
        """The queries that belong to a shard, in their order. Raises `SourceError`."""
        self.manifest.shard(shard_key)
        if self.manifest.queries is None:
            return []
        file = self.manifest.queries.file
        with self.manifest.held(file) as path:
            table = read_table(path)
        if digest(table) != self.manifest.queries.sha256:
            raise SourceError(f"{self.manifest.place(file)} changed since it was indexed: run `kopub index` again")
        return from_table(table, shard_key)

    @cached_property
    def unknown_pages(self) -> frozenset[str]:
        """The pages of ground truth that no shard holds."""
        return frozenset(self.manifest.queries.unknown if self.manifest.queries else ())


def _id_problem(row: Row, at: int, duplicate: bool) -> str | None:
    """Why a row cannot keep its id, with its number and the id; None when it can."""
    if row.id is None:
        return f"row {at}: {row.problem}" if row.problem else f"row {at} has no id"
    if (problem := ids.problem_with(row.id)) is not None:
        return f"row {at}: the id {quoted(row.id)} {problem}"
    if duplicate:
        return f"row {at}: an earlier page has the id {quoted(row.id)} already"
    return None


def _document(page_id: str, row: Row) -> tuple[str | None, int | None]:
    """The document and the page number, from the columns of the file, or else from the id."""
    doc_id, page_no = row.file_name, row.page_number
    if parts := _ID_PARTS.fullmatch(page_id):
        doc_id = parts["doc"] if doc_id is None else doc_id
        page_no = int(parts["page"]) if page_no is None else page_no
    return doc_id, page_no if page_no is not None and 0 <= page_no <= _MAX_PAGE_NO else None
