"""Cuts documents by structure into chunks with headings, pages and boxes."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from kopub.documents.document import Block, BlockKind, BlockPart, Document
from kopub.documents.tables import (
    RegionPlace,
    TableRow,
    caption_of,
    captions_of,
    places_of,
    table_rows,
    titles_above,
    without_rows,
)
from kopub.texts.markup import defuse, inert_latex

MAX_TOKENS = 512
"""The chunk size commonly used for embedding models and for models that answer from chunks."""
CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document.

    `headings` are the titles above the whole chunk, the uppermost first; a title at the start of the chunk is part of
    its `text`. The first `repeated` characters of the text are the caption and heading rows of a table that an earlier
    chunk contains too; all others are in this chunk only. `kinds` are the kinds of its blocks. `index` counts from 0
    in the document.
    """

    doc_id: str
    index: int
    kinds: tuple[BlockKind, ...]
    headings: tuple[str, ...]
    text: str
    repeated: int
    tokens: int
    places: tuple[RegionPlace, ...]

    @property
    def text_with_headings(self) -> str:
        """The headings, one per line, and the text, for a model that sees nothing else."""
        return "\n".join((*self.headings, self.text))


def estimate_tokens(text: str) -> int:
    """Return a quarter of the bytes of a text in UTF-8, rounded up.

    Byte-pair encodings of multilingual models make about as many tokens: one for four Latin letters, three for four
    Hangul syllables. Where a model's limit must be kept exactly, pass its own tokenizer.
    """
    return -(-len(text.encode("utf-8", "backslashreplace")) // 4)


def chunk_document(
    document: Document,
    blocks: Sequence[Block],
    max_tokens: int = MAX_TOKENS,
    count_tokens: CountTokens = estimate_tokens,
) -> Iterator[Chunk]:
    """Cut a document into chunks of at most `max_tokens`, by its structure.

    A title begins a chunk, unless the present chunk is still small. A paragraph that spans pages is treated as one. A
    paragraph that is too long is cut between sentences, or else between words; a table is cut between rows, and each
    piece repeats its caption and heading rows. Only a table row that is too long on its own makes a chunk longer.
    Running heads, page numbers and pictures are in no chunk. `blocks` come from `structure_document`.
    """
    packer = _Packer(max_tokens, count_tokens)
    pieces: list[_Piece] = []
    captions = {of: at for of, at in captions_of(blocks).items() if blocks[of].kind is BlockKind.TABLE}
    for at, (block, titles) in enumerate(zip(blocks, titles_above(blocks), strict=True)):
        # The caption of a table is in the pieces of the table.
        if block.kind in _LEFT_OUT or not block.text.strip() or at in captions.values():
            continue
        if block.kind is BlockKind.TABLE:
            pieces += _table_pieces(block, titles, packer, blocks[captions[at]] if at in captions else None)
        else:
            pieces += _text_pieces(block, titles, packer)
    for index, packed in enumerate(packer.pack(pieces)):
        text, headings = packed[0].text, packed[0].headings
        for before, piece in pairwise(packed):
            in_list = before.kind is piece.kind is BlockKind.ITEM
            text += ("\n" if in_list else "\n\n") + piece.text
            # Only titles that all pieces have above them are those of the chunk.
            same = takewhile(lambda titles: titles[0] == titles[1], zip(headings, piece.headings, strict=False))
            headings = tuple(title for title, _ in same)
        yield Chunk(
            doc_id=document.doc_id,
            index=index,
            kinds=tuple(dict.fromkeys(piece.kind for piece in packed)),
            headings=headings,
            text=text,
            repeated=packed[0].repeated,
            tokens=count_tokens(text),
            places=places_of(document, [part for piece in packed for part in piece.parts]),
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text that is not cut any further, with its titles and regions."""

    kind: BlockKind
    text: str
    headings: tuple[str, ...]
    parts: tuple[BlockPart, ...]
    repeated: int = 0
    stands_alone: bool = False
    """One of several pieces of a table: nothing is added to it."""


class _Packer:
    """A packer that combines pieces into chunks and cuts text too long for one."""

    def __init__(self, max_tokens: int, count_tokens: CountTokens) -> None:
        self.max_tokens, self.count = max_tokens, count_tokens
        self._small = max_tokens // 4
        """A chunk of fewer tokens also takes in the next section."""

    def pack(self, pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
        """Yield the pieces of each chunk."""
        packed: list[_Piece] = []
        size = 0
        for piece in pieces:
            tokens = self.count(piece.text) + 1
            last = packed[-1] if packed else piece
            is_whole = size + tokens > self.max_tokens or last.stands_alone or piece.stands_alone
            begins = piece.kind is BlockKind.TITLE and last.kind is not BlockKind.TITLE and size >= self._small
            if packed and (is_whole or begins):
                # Titles at the end of a chunk belong to the text that follows.
                at = len(packed)
                while at and packed[at - 1].kind is BlockKind.TITLE:
                    at -= 1
                titles = packed[at:] if at else []
                yield packed[:at] if at else packed
                packed, size = titles, sum(self.count(title.text) + 1 for title in titles)
                if titles and size + tokens > self.max_tokens:
                    yield packed
                    packed, size = [], 0
            packed.append(piece)
            size += tokens
        if packed:
            yield packed

    def cut(self, text: str, marked: Callable[[str, int, int], str]) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of as few pieces as possible, each small enough.

        The text is cut between sentences, or else between words. `marked` makes what a chunk has of a part of the text,
        given that part and its (start, end).
        """

        def fits(start: int, end: int) -> bool:
            return self.count(marked(text[start:end], start, end)) <= self.max_tokens

        start = end = 0
        for stop in self._ends(text, 0, len(text), _BOUNDARIES, fits):
            if end > start and not fits(start, stop):
                yield start, end
                start = end
            end = stop
        yield start, end

    def _ends(
        self,
        text: str,
        start: int,
        stop: int,
        boundaries: Sequence[re.Pattern[str]],
        fits: Callable[[int, int], bool],
    ) -> Iterator[int]:
        """Yield where `text[start:stop]` may be cut to fit, and its end."""
        if fits(start, stop):
            yield stop
        elif not boundaries:
            # A word longer than a chunk; no tokenizer makes more tokens than there are bytes, four to a character.
            yield from range(start + max(1, self.max_tokens // 4), stop, max(1, self.max_tokens // 4))
            yield stop
        else:
            for boundary in boundaries[0].finditer(text, start, stop):
                yield from self._ends(text, start, boundary.end(), boundaries[1:], fits)
                start = boundary.end()
            if start < stop:
                yield from self._ends(text, start, stop, boundaries[1:], fits)


_BOUNDARIES = (re.compile(r"\n+|(?<=[.!?。！？…])[\"'”’)\]]*\s+"), re.compile(r"\s+"))
"""Between sentences or lines, and between words."""
_LEFT_OUT = frozenset({BlockKind.FURNITURE, BlockKind.PICTURE, BlockKind.LOST})


def _text_pieces(block: Block, headings: tuple[str, ...], packer: _Packer) -> Iterator[_Piece]:
    ends: list[int] = []
    text = ""
    for part in block.parts:
        text += part.joint + part.text
        ends.append(len(text))

    def marked(passage: str, start: int, end: int) -> str:
        if block.kind is BlockKind.ITEM and start == 0:
            passage = f"{block.sign} {passage}"
        elif block.kind is BlockKind.FORMULA:
            passage = f"$$\n{inert_latex(passage)}\n$$"
            if block.number is not None and end == len(text):
                passage = f"{passage} {block.number.text}"
        return defuse(passage)

    for start, end in packer.cut(text, marked):
        parts = tuple(
            part
            for part, begin, stop in zip(block.parts, [0, *ends], ends, strict=False)
            if begin < end and stop > start
        )
        if block.number is not None and end == len(text):
            parts = (*parts, block.number)
        part_of = text[start:end]
        if whole := part_of.strip("\n").rstrip() if block.kind is BlockKind.CODE else part_of.strip():
            yield _Piece(block.kind, marked(whole, start, end), headings, parts)


def _table_pieces(block: Block, headings: tuple[str, ...], packer: _Packer, caption: Block | None) -> Iterator[_Piece]:
    """Yield a table as one piece, or cut between rows.

    No cell spans a cut; each piece has the caption and the heading rows.
    """
    rows = [(row, part) for part in block.parts for row in table_rows(without_rows(part.text, part.repeated))]
    heads = [*takewhile(lambda row: row[0].is_heading or row[0].is_spanned, rows)]
    if len(heads) in (0, len(rows)):
        # If no row or every row is marked as a heading, the first one is taken as it, with the rows that it spans.
        heads = [*rows[:1], *takewhile(lambda row: row[0].is_spanned, rows[1:])]
    named = f"{caption.text}\n" if caption else ""
    begin = f"{named}<table>{caption_of(block.parts[0].text)}{_lines(heads)}"
    # Rows that a cell spans stay together.
    groups: list[list[tuple[TableRow, BlockPart]]] = []
    for row, part in rows[len(heads) :]:
        if groups and row.is_spanned:
            groups[-1].append((row, part))
        else:
            groups.append([(row, part)])
    waiting: list[tuple[TableRow, BlockPart]] = []
    pieces: list[_Piece] = []
    for group in [*groups, []]:
        if waiting and (
            not group or packer.count(defuse(begin + _lines([*waiting, *group]) + _END)) > packer.max_tokens
        ):
            # The first piece is also of the part with the heading, which may be all that stands on its page.
            parts = {id(part): part for _, part in (waiting if pieces else [*heads, *waiting])}
            text = defuse(begin + _lines(waiting) + _END)
            places = (*(caption.parts if caption and not pieces else ()), *parts.values())
            pieces.append(_Piece(block.kind, text, headings, places, len(defuse(begin)) if pieces else 0))
            waiting = []
        waiting += group
    if not pieces:
        places = (*(caption.parts if caption else ()), *block.parts)
        pieces = [_Piece(block.kind, defuse(begin + _END), headings, places)]
    for piece in pieces:
        yield replace(piece, stands_alone=len(pieces) > 1)


_END = "\n</table>"


def _lines(rows: Sequence[tuple[TableRow, BlockPart]]) -> str:
    """Return the rows of a table, one per line, as documents have them."""
    return "".join(f"\n{row.html}" for row, _ in rows)
