"""The blocks of a document in reading order, as a careful editor would set them. Pure.

Every letter of a region that was read is in exactly one block; what layout and reader were not sure of stays as it is.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from resources.documents_out.document import Block, Document, DocumentPage, Kind, Part
from resources.documents_out.footnotes import separate, tied
from resources.documents_out.furniture import furniture
from resources.documents_out.headings import is_number_alone, rank_of, with_levels
from resources.documents_out.joins import joined
from resources.documents_out.line_joints import ITEM, one_line, paragraphs
from resources.documents_out.table_grid import is_table, tables_and_text
from resources.recognition.code_fences import without_fences
from resources.recognition.latex import without_delimiters
from resources.states import State
from resources.texts.markdown import formula_numbers

_TITLES = frozenset({"doc_title", "paragraph_title"})
_FORMULAS = frozenset({"display_formula", "inline_formula"})
_MISREAD_BULLET = re.compile(r"[>»]\s+(?=\S)")
_SENTENCE = re.compile(r"(?<!\.)[.:]$")
"""The end of a sentence, which a title has not."""
_NAMED = re.compile(
    r"[<\[(]?(?:표|그림|사진|도표|table|figure|fig\.?)\s?[0-9A-Z]+(?:[.-][0-9]+)*[.:\])>\s]", re.IGNORECASE
)
"""The beginning of a caption, which layout may take for a title."""
_HASHES = re.compile(r"#{1,6}\s+(?=\S)")
"""How a reader marks a title in markdown."""


@dataclass(frozen=True, slots=True)
class Edited:
    """The blocks of a document, and what became of its regions: each is counted once.

    `placed` are in the text; the others are `furniture`, `empty` (nothing is printed there, or it is not read) or
    `lost` (could not be read). `joined` counts blocks that go on over a page, `tied` notes that are tied.
    """

    blocks: tuple[Block, ...]
    regions: int
    placed: int
    furniture: int
    empty: int
    lost: int
    joined: int
    tied: int


def edited(document: Document) -> Edited:
    """The document as blocks. Running heads, feet and page numbers are blocks too, of their own kind."""
    out = furniture(document.pages)
    blocks = [block for page in document.pages for block in _blocks(page, out)]
    blocks = with_levels(joined(tied(_whole_titles(blocks)), _whole(document.pages)))
    regions = [(page, region) for page in document.pages for region in page.regions]
    by_kind = {kind: _regions_of(blocks, kind) for kind in Kind}
    heads, lost = by_kind[Kind.FURNITURE], by_kind[Kind.LOST]
    used = set().union(*by_kind.values())
    return Edited(
        blocks=tuple(blocks),
        regions=len(regions),
        placed=len(used - heads - lost),
        furniture=len(heads),
        empty=len(regions) - len(used),
        lost=len(lost),
        joined=sum(block.last_page > block.page for block in blocks),
        tied=sum(block.mark is not None for block in blocks),
    )


def _regions_of(blocks: Sequence[Block], kind: Kind) -> set[tuple[int, int]]:
    return {
        (part.page, part.region.index)
        for block in blocks
        if block.kind is kind
        for part in (*block.parts, *([block.number] if block.number else []))
    }


def _whole(pages: Sequence[DocumentPage]) -> set[int]:
    """The pages of which every region was read."""
    return {
        page.number
        for page in pages
        if page.state is State.OK and all(region.state is not State.FAILED for region in page.regions)
    }


def _blocks(page: DocumentPage, out: set[tuple[int, int]]) -> Iterator[Block]:
    numbers = formula_numbers([(region.label, region.content or "") for region in page.regions])
    taken = set(numbers.values())
    for at, region in enumerate(page.regions):
        if at in taken:
            continue
        part = Part(page.number, region, (region.content or "").strip(), note=page.notes.get(region.index))
        if region.state is State.FAILED:
            yield Block(Kind.LOST, (replace(part, text=""),))
            continue
        if region.index in page.pictures:
            yield Block(Kind.PICTURE, (replace(part, text=""),), picture=page.pictures[region.index])
        if not part.text:
            continue
        if (page.number, region.index) in out:
            yield Block(Kind.FURNITURE, (replace(part, text=one_line(part.text)),))
        elif region.label in _FORMULAS:
            number = page.regions[numbers[at]] if at in numbers else None
            of = None if number is None else Part(page.number, number, (number.content or "").strip())
            yield Block(Kind.FORMULA, (replace(part, text=without_delimiters(part.text)),), number=of)
        else:
            yield from _text_blocks(part)


def _text_blocks(part: Part) -> Iterator[Block]:
    """The blocks of a region with text."""
    label, text = part.region.label, part.text
    if label in _TITLES:
        yield _title(part)
    elif label == "table" and "<table" in text.lower():
        for piece in tables_and_text(text):
            yield Block(Kind.TABLE if is_table(piece) else Kind.TEXT, (replace(part, text=piece),))
            part = replace(part, note=None) if is_table(piece) else part
    elif label == "figure_title":
        yield Block(Kind.CAPTION, (replace(part, text=one_line(text)),))
    elif label == "footnote":
        x1, y1, x2, y2 = part.region.bbox
        height = (y2 - y1) / len(text.split("\n"))
        for note in separate(text):
            for paragraph in paragraphs(note, x2 - x1, height * len(note.split("\n"))):
                # A note may begin with what a list's entry begins with.
                yield Block(Kind.FOOTNOTE, (replace(part, text=f"{paragraph.bullet} {paragraph.text}".lstrip()),))
    else:
        x1, y1, x2, y2 = part.region.bbox
        for paragraph in paragraphs(text, x2 - x1, y2 - y1):
            of = replace(part, text=paragraph.text)
            if paragraph.is_code:
                yield Block(Kind.CODE, (of,), language=paragraph.language)
            else:
                yield Block(Kind.ITEM if paragraph.bullet else Kind.TEXT, (of,))


def _title(part: Part) -> Block:
    """A title, or what layout took for one: an entry of a list, a caption, a sentence."""
    title = _HASHES.sub("", one_line(without_fences(part.text)))
    bullet = ITEM.match(title) or _MISREAD_BULLET.match(title)
    if bullet:
        return Block(Kind.ITEM, (replace(part, text=title[bullet.end() :]),))
    if _NAMED.match(title):
        return Block(Kind.CAPTION, (replace(part, text=title),))
    is_sentence = rank_of(title) is None and _SENTENCE.search(title)
    return Block(Kind.TEXT if is_sentence else Kind.TITLE, (replace(part, text=title),))


def _whole_titles(blocks: Sequence[Block]) -> list[Block]:
    """The blocks with a number that stands alone and the title below it as one title."""
    whole: list[Block] = []
    for block in blocks:
        before = whole[-1] if whole else None
        if (
            before is not None
            and before.kind is block.kind is Kind.TITLE
            and before.page == block.page
            and len(before.parts) == 1
            and is_number_alone(before.text)
            and rank_of(block.text) is None
        ):
            whole[-1] = replace(before, parts=(*before.parts, replace(block.parts[0], joint=" ")))
        else:
            whole.append(block)
    return whole
