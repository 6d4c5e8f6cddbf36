"""Documents as the tables hold them: their pages and blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kopub.figures.figure import FigureNote
from kopub.recognition.regions import TextOrigin
from kopub.states import State
from kopub.texts.regions import Region


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A picture on a page: its file beside the document and its size in pixels."""

    path: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Review:
    """The doubt about a page's text, with the reasons, and the mark of its corrections.

    The doubt is 0 to 1, and None without a text; the mark is empty without corrections.
    """

    doubt: float | None = None
    doubts: tuple[str, ...] = ()
    corrections: str = ""


_NOTHING: Mapping[int, Any] = {}
"""What pages have without pictures or notes. They share it, as a plan of a corpus may hold millions."""


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of a document, as it is planned or as it was read.

    A planned page has no regions yet; those of one that was read are in reading order. `pictures` and `notes` are keyed
    by the index of the region. `number` is unique in the document; `width` and `height` are in pixels of the upright
    page, 0 if it has no image. A note is what a model wrote about a picture or table, never text of the page. `image`
    is the picture of the whole page, if such pictures were requested. `made_by` names kopub and the engines that laid
    the page out and read it, each with its version. `review` is empty unless it was requested. `shard` is that of the
    tables that hold the page.
    """

    number: int
    page_id: str
    width: int
    height: int
    state: State
    reason: str | None
    regions: tuple[Region, ...] = ()
    pictures: Mapping[int, PictureFile] = field(default_factory=lambda: _NOTHING)
    notes: Mapping[int, FigureNote] = field(default_factory=lambda: _NOTHING)
    image: PictureFile | None = None
    made_by: tuple[str, ...] = ()
    review: Review = Review()
    shard: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """The pages of a document by number.

    The pages of a plan stand in the order of the corpus, whatever their numbers. `name` is the name of its files,
    `doc_id` its name in the corpus. `fingerprint` has 64 bits of the hashes of its pages' images.
    """

    doc_id: str
    name: str
    fingerprint: int
    pages: tuple[DocumentPage, ...]

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that hold a page of it, in the order of its pages."""
        return tuple(dict.fromkeys(page.shard for page in self.pages))


class BlockKind(StrEnum):
    """The kind of a document's block."""

    TITLE = "title"
    TEXT = "text"
    ITEM = "item"
    """An entry of a list; its text lacks the sign."""
    CODE = "code"
    """Code; its text lacks the fences."""
    TABLE = "table"
    FORMULA = "formula"
    CAPTION = "caption"
    PICTURE = "picture"
    FOOTNOTE = "footnote"
    FURNITURE = "furniture"
    """Running heads and feet, and page numbers."""
    LOST = "lost"
    """A region that could not be read."""


@dataclass(frozen=True, slots=True)
class BlockPart:
    """The part that one region contributes to a block.

    `joint` stands between the previous part and this one. `refers` lists the notes that the text refers to: (start
    and end of the printed reference, mark of the note). `repeated` is the number of rows with which a part of a
    table repeats the heading of the previous part on a new page. `note` is what a model wrote about its picture or
    table.
    """

    page: int
    region: Region
    text: str
    joint: str = ""
    refers: tuple[tuple[int, int, str], ...] = ()
    repeated: int = 0
    note: FigureNote | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A title, paragraph, table or picture, from one region or several.

    `level` is that of a title or list entry, 1 for the uppermost, `sign` the bullet or number of an entry as printed,
    `language` that of code, `number` that of a formula. `mark` of a footnote is unique in the document and identifies
    it where the text refers to it; the first `printed_mark` characters of the note are the mark as printed.
    """

    kind: BlockKind
    parts: tuple[BlockPart, ...]
    level: int = 0
    sign: str = ""
    language: str = ""
    number: BlockPart | None = None
    picture: PictureFile | None = None
    mark: str | None = None
    printed_mark: int = 0

    @property
    def page(self) -> int:
        """Number of the page on which the block begins."""
        return self.parts[0].page

    @property
    def is_printed(self) -> bool:
        """False for what the document holds but does not print."""
        return self.parts[0].region.origin is not TextOrigin.UNPRINTED

    @property
    def last_page(self) -> int:
        return self.parts[-1].page

    @property
    def label(self) -> str:
        return self.parts[0].region.label

    @property
    def text(self) -> str:
        return "".join(part.joint + part.text for part in self.parts)
