"""The text layer of a PDF page: words and their positions.

It holds only facts. The reader of a layer judges whether it can be trusted, so a new judgement does not need the PDF.
The types do not load a PDF library.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from enum import IntFlag
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box
from kopub.errors import SourceError, counted, first_line, quoted
from kopub.fingerprints import CodeVersion, fingerprint
from kopub.pages.documents.pieces import Piece
from kopub.states import Reason


class Mark(IntFlag):
    """Properties of a word besides its text and position."""

    INVISIBLE = 1
    """Drawn without stroke or fill, as OCR programs write their text over a scan."""
    NO_INK = 2
    """Nothing is printed at its position."""
    UNMAPPED = 4
    """It has a character for which its font has no Unicode mapping."""
    HYPHEN = 8
    """Split by a hyphen at the end of a line, which is not in its text; it continues in the next word."""
    LINE = 16
    """The first word of a line."""
    DOWN = 32
    """Runs from top to bottom: vertical writing, or a line turned to the right."""
    UP = 64
    """Runs from bottom to top: a line turned to the left."""
    UNDRAWN = 128
    """Not drawn here: this machine has no font with its Hangul, and the PDF does not embed its own."""
    FIXED = 256
    """In a font whose letters are all equally wide, as code is printed."""


NO_MARK = Mark(0)


@dataclass(frozen=True, slots=True)
class Word:
    """Characters without a blank between them, as the PDF has them."""

    text: str
    box: Box[int]
    marks: Mark = NO_MARK
    tag: int = -1
    """The number of its tag among those of the layer; -1 without one."""


def characters_of(words: Iterable[Word], mark: Mark | None = None) -> int:
    """Return the number of characters in words, or in those with a mark."""
    return sum(len(word.text) for word in words if mark is None or word.marks & mark)


@dataclass(frozen=True, slots=True)
class Tag:
    """The structure that a tagged PDF gives some of its words.

    `role` is the standard name of the structure. Cells have the number of their table, and their place in it.
    """

    role: str
    table: int = -1
    row: int = 0
    column: int = 0
    row_span: int = 1
    column_span: int = 1


@dataclass(frozen=True)
class TextLayer:
    """The words of a page in the PDF's order.

    The page has `width` by `height` pixels. `words` leaves out what the page's crop box cuts off; `outside` counts the
    characters beyond the whole sheet. `bare` marks ink that no word covers: it is true for each square of `cell` pixels
    with such ink. `rules` are the straight lines that the PDF draws, and `fills` the boxes that it fills. `failure`
    says why an existing layer could not be read; it then has no words. `tags` are what a tagged PDF says of its words.
    If the PDF was made of a document that has a structure, `pieces` are its parts on this page, and `pictures` the
    boxes of the page's pictures.
    """

    width: int
    height: int
    words: tuple[Word, ...]
    outside: int
    cell: int
    bare: NDArray[np.bool_]
    failure: str = ""
    rules: tuple[Box[int], ...] = ()
    fills: tuple[Box[int], ...] = ()
    pieces: tuple[Piece, ...] = ()
    tags: tuple[Tag, ...] = ()
    pictures: tuple[Box[int], ...] = ()

    @classmethod
    def empty(cls, width: int, height: int) -> Self:
        """Return the layer of a page without a word."""
        return cls(width, height, (), 0, max(width, height), np.zeros((1, 1), bool))

    @classmethod
    def failed(cls, why: str) -> Self:
        """Return a layer that cannot be read."""
        return cls(0, 0, (), 0, 1, np.zeros((0, 0), bool), why)

    @cached_property
    def characters(self) -> int:
        """Number of characters in all words."""
        return characters_of(self.words)

    def marked(self, mark: Mark) -> int:
        """Return the number of characters in words with a mark."""
        return characters_of(self.words, mark)

    @cached_property
    def middles(self) -> NDArray[np.float64]:
        """The middle of each word, of shape (words, 2)."""
        boxes = np.array([word.box for word in self.words], np.float64).reshape(-1, 4)
        return (boxes[:, :2] + boxes[:, 2:]) / 2

    @cached_property
    def covered(self) -> NDArray[np.bool_]:
        """The squares that words cover, like `bare`."""
        covered = np.zeros_like(self.bare)
        boxes = np.array([word.box for word in self.words], np.int64).reshape(-1, 4)
        for x1, y1, x2, y2 in (np.maximum(boxes, 0) // self.cell).tolist():
            covered[y1 : y2 + 1, x1 : x2 + 1] = True
        return covered

    @cached_property
    def fill_sides(self) -> tuple[Box[int], ...]:
        """The sides of the filled boxes, one pixel wide: above, below, left and right."""
        sides: list[Box[int]] = []
        for x1, y1, x2, y2 in self.fills:
            sides += Box(x1, y1, x2, y1 + 1), Box(x1, y2 - 1, x2, y2), Box(x1, y1, x1 + 1, y2), Box(x2 - 1, y1, x2, y2)
        return tuple(sides)

    @property
    def is_of_scan(self) -> bool:
        """True if most of it is invisible, like text that OCR lays over a scan."""
        return self.marked(Mark.INVISIBLE) >= max(_FEWEST_INVISIBLE, _MOST_INVISIBLE * self.characters)

    def to_json(self) -> str:
        """Return the layer as it is stored."""
        if self.failure:
            return json.dumps({"failure": self.failure}, ensure_ascii=False)
        packed = zlib.compress(np.packbits(self.bare).tobytes())
        fields: dict[str, Any] = {
            "size": [self.width, self.height],
            "words": [word.text for word in self.words],
            "boxes": list(chain.from_iterable(word.box for word in self.words)),
            "marks": [int(word.marks) for word in self.words],
            "outside": self.outside,
            "cell": self.cell,
            "squares": list(self.bare.shape),
            "bare": base64.b64encode(packed).decode(),
        }
        # What a page lacks is left out, as it is from layers of older releases.
        if self.rules:
            fields["rules"] = list(chain.from_iterable(self.rules))
        if self.fills:
            fields["fills"] = list(chain.from_iterable(self.fills))
        if self.pieces:
            fields["pieces"] = [piece.to_json() for piece in self.pieces]
        if self.tags:
            fields["tags"] = list(map(astuple, self.tags))
            fields["tagged"] = [word.tag for word in self.words]
        if self.pictures:
            fields["pictures"] = list(chain.from_iterable(self.pictures))
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, stored: str) -> Self:
        """Return the layer stored by `to_json`; other text gives a failed layer."""
        try:
            fields = json.loads(stored)
            if "failure" in fields:
                return cls.failed(str(fields["failure"]))
            width, height = map(int, fields["size"])
            rows, columns = fields["squares"]
            if min(width, height, fields["cell"], rows, columns) < 1:
                raise ValueError("a page without size")
            tagged = fields.get("tagged") or [-1] * len(fields["words"])
            bits = np.frombuffer(zlib.decompress(base64.b64decode(fields["bare"])), np.uint8)
            return cls(
                width,
                height,
                tuple(
                    Word(str(text), box, Mark(marks), int(tag))
                    for text, box, marks, tag in zip(
                        fields["words"], _boxes(fields["boxes"]), fields["marks"], tagged, strict=True
                    )
                ),
                int(fields["outside"]),
                int(fields["cell"]),
                np.unpackbits(bits, count=rows * columns).astype(bool).reshape(rows, columns),
                rules=tuple(_boxes(fields.get("rules", ()))),
                fills=tuple(_boxes(fields.get("fills", ()))),
                pieces=tuple(map(Piece.from_json, fields.get("pieces", ()))),
                tags=tuple(Tag(str(role), *map(int, places)) for role, *places in fields.get("tags", ())),
                pictures=tuple(_boxes(fields.get("pictures", ()))),
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, zlib.error) as error:
            return cls.failed(f"it is damaged: {first_line(error)}")


def _boxes(edges: Iterable[int]) -> Iterator[Box[int]]:
    return map(Box._make, zip(*[iter(map(int, edges))] * 4, strict=True))


def layer_id(stored: str | None) -> str | None:
    """Return the hash of a stored layer, or None without a layer."""
    return None if stored is None else fingerprint([stored])


@dataclass(frozen=True, slots=True)
class StoredLayers:
    """The text layers of one shard, by row; `stored` is how its file holds them."""

    place: str
    shard_key: str
    stored: Sequence[str | None]

    def layer(self, page_id: str, row: int, text_layer_id: str | None) -> TextLayer | None:
        """Return the layer at `row`, from 0; None without an id in `raw_pages`.

        Raises `SourceError` if the row holds another layer.
        """
        if text_layer_id is None:
            return None
        stored = self.stored[row] if row < len(self.stored) else None
        if stored is None or layer_id(stored) != text_layer_id:
            form = (
                "{place}: row {row} does not hold the text layer that raw_pages saw of {page}: materialize raw_pages "
                "of {shard} again"
            )
            raise SourceError(form, self.place, row, quoted(page_id), self.shard_key)
        return TextLayer.from_json(stored)


@dataclass(frozen=True, slots=True)
class RenderedImage:
    """The encoded image of a page, and its text layer as it is stored.

    The layer is None if there is none, as for an image. `damage` says which part of the page could not be drawn.
    """

    data: bytes
    text_layer: str | None = None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """A document's numbers of pages, attached files, and claimed but missing pages."""

    pages: int
    attachments: int = 0
    missing: int = 0

    def left_out(self) -> Iterator[str]:
        """Yield the reasons why parts of the document become no page."""
        if self.attachments:
            yield f"{counted(self.attachments, 'attached file')} in it: save them as files of their own"
        if self.missing:
            yield f"it says that it has {self.pages + self.missing:,} pages, of which {self.pages:,} can be found"


@dataclass(frozen=True, slots=True)
class Failure:
    """A task without a result; if it `may_pass`, the bytes are not to blame."""

    reason: str
    may_pass: bool = False

    @classmethod
    def unreadable(cls, error: OSError) -> "Failure":
        """Return the failure to read a file, which may pass."""
        return cls(Reason("the file cannot be read: {error}", error=error.strerror or first_line(error)), may_pass=True)


TEXT_CODE = CodeVersion(
    "pages.pdf_text",
    {
        1: "the first release",
        2: "text below a picture and text without colour are invisible; a layer that cannot be read says why",
        3: "the rules and filled boxes of a page are kept; a word ends at an upright rule, not where letters touch",
        4: "the fields of forms are words, with what was typed and whether a box is ticked; a word ends with its line; "
        "characters that a font does not name are told from others; a page drawn sideways is set upright, and columns "
        "of vertical writing keep their blanks",
        5: "words in fonts of even width, and the tags of tagged PDFs, are known",
        6: "a raised number of a note, and a sign drawn later to stand before a word, are words; clips cut rules off",
    },
)
"""A new version reads every layer again; the pages are drawn for it, and come out the same."""

_MOST_INVISIBLE, _FEWEST_INVISIBLE = 0.5, 3
"""Share of a layer's characters, and the least number, whose invisibility makes it that of a scan."""
