"""A document as the tables hold it: its pages, and their blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from resources.figures.figure import FigureNote
from resources.recognition.regions import RegionRecord
from resources.states import State


@dataclass(frozen=True, slots=True)
class DocumentPicture:
    """A picture of a page: its file beside the document, its pixels."""

    path: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page with its regions in reading order.

    Their pictures and notes are by index of the region. `number` is unique in the document; `width` and `height` are
    pixels of the upright page, 0 where it has no image. A note is what a model made up about a picture or table, never
    text of the page. `image` is the picture of the whole page, where those were asked for.
    """

    number: int
    page_id: str
    width: int
    height: int
    state: State
    reason: str | None
    regions: tuple[RegionRecord, ...] = ()
    pictures: Mapping[int, DocumentPicture] = field(default_factory=dict)
    notes: Mapping[int, FigureNote] = field(default_factory=dict)
    image: DocumentPicture | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """The pages of a document by number.

    `name` is that of its files, `doc_id` what the corpus calls it. `fingerprint` is of the images of its pages, 64
    bits.
    """

    doc_id: str
    name: str
    fingerprint: int
    pages: tuple[DocumentPage, ...]


class BlockKind(StrEnum):
    """The kind of a document's block."""

    TITLE = "title"
    TEXT = "text"
    ITEM = "item"
    """An entry of a list; its text is without the bullet."""
    CODE = "code"
    """Its text is without fences."""
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
    """The part that one region gives to a block.

    `joint` stands between the part before and this one. `refers` are the notes that the text refers to: (start and end
    of what is printed there, mark of the note). The first row of a table is `repeated` where it is that of the part
    before, printed again on the next page. `note` is what a model made up about its picture or table.
    """

    page: int
    region: RegionRecord
    text: str
    joint: str = ""
    refers: tuple[tuple[int, int, str], ...] = ()
    repeated: bool = False
    note: FigureNote | None = None


@dataclass(frozen=True, slots=True)
class DocumentBlock:
    """A title, paragraph, table, picture: of one region, or of several where it goes on.

    `level` of a title is 1 for the uppermost, `language` that of code, `number` that of a formula. `mark` of a footnote
    is unique in the document, and tells where the text refers to it; the first `printed_mark` characters of the note
    are the mark as it is printed.
    """

    kind: BlockKind
    parts: tuple[BlockPart, ...]
    level: int = 0
    language: str = ""
    number: BlockPart | None = None
    picture: DocumentPicture | None = None
    mark: str | None = None
    printed_mark: int = 0

    @property
    def page(self) -> int:
        """Number of the page that the block begins on."""
        return self.parts[0].page

    @property
    def last_page(self) -> int:
        return self.parts[-1].page

    @property
    def label(self) -> str:
        return self.parts[0].region.label

    @property
    def text(self) -> str:
        return "".join(part.joint + part.text for part in self.parts)
