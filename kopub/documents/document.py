"""Documents as the tables hold them: their pages and blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
class PageFacts:
    """The facts about a page besides its regions.

    That is the doubt about its text, 0 to 1, with the reasons, and the mark of its corrections. The doubt is None
    without a text, the mark empty without corrections.
    """

    doubt: float | None = None
    doubts: tuple[str, ...] = ()
    corrections: str = ""


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page with its regions in reading order.

    `pictures` and `notes` are keyed by the index of the region. `number` is unique in the document; `width` and
    `height` are in pixels of the upright page, 0 if it has no image. A note is what a model wrote about a picture or
    table, never text of the page. `image` is the picture of the whole page, if such pictures were requested.
    `made_by` names kopub and the engines that laid the page out and read it, each with its version. `facts` are empty
    unless they were requested.
    """

    number: int
    page_id: str
    width: int
    height: int
    state: State
    reason: str | None
    regions: tuple[Region, ...] = ()
    pictures: Mapping[int, PictureFile] = field(default_factory=dict)
    notes: Mapping[int, FigureNote] = field(default_factory=dict)
    image: PictureFile | None = None
    made_by: tuple[str, ...] = ()
    facts: PageFacts = field(default_factory=PageFacts)


@dataclass(frozen=True, slots=True)
class Document:
    """The pages of a document by number.

    `name` is the name of its files, `doc_id` its name in the corpus. `fingerprint` has 64 bits of the hashes of its
    pages' images.
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
class DocumentBlock:
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
