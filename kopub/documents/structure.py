"""Puts the blocks of a document in reading order, as a careful editor would.

Every letter that was read is in exactly one block; anything that layout and reader were unsure of is left as it is.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kopub.documents.document import Block, BlockKind, BlockPart, Document, DocumentPage
from kopub.documents.headings import find_furniture, is_number_alone, rank_of, with_levels
from kopub.documents.joins import ITEM, join_pages, one_line, paragraphs
from kopub.documents.outline import with_entries
from kopub.recognition.content import strip_delimiters, strip_fences
from kopub.recognition.regions import TextOrigin
from kopub.recognition.tables import is_table, tables_and_text
from kopub.states import State
from kopub.texts.markdown import HASHES, TABLE_LABELS, formula_numbers
from kopub.texts.markup import printable

_TITLES = frozenset({"doc_title", "paragraph_title"})
_LEVELLED = frozenset({TextOrigin.DOCUMENT, TextOrigin.TEXT_LAYER})
"""Origins that say the level of a title by the signs before it: a file's own structure, and the tags of a PDF."""
_FORMULAS = frozenset({"display_formula", "inline_formula"})
_MISREAD_BULLET = re.compile(r"[>»]\s+(?=\S)")
_SENTENCE = re.compile(r"(?<!\.)[.:]$")
"""The end of a sentence, which a title does not have."""
_NAMED = re.compile(
    r"[<\[(]?(?:표|그림|사진|도표|table|figure|fig\.?)\s?[0-9A-Z]+(?:[.-][0-9]+)*[.:\])>\s]", re.IGNORECASE
)
"""The beginning of a caption, which layout may take for a title."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The blocks of a document, and what became of its regions: each is counted once.

    `placed` regions are in the text; the others are `furniture`, `empty` (nothing is printed there, or it is not read)
    or `lost` (could not be read). `joined` counts blocks that span pages, `tied` the footnotes tied to the text.
    """

    blocks: tuple[Block, ...]
    regions: int
    placed: int
    furniture: int
    empty: int
    lost: int
    joined: int
    tied: int


def structure_document(document: Document) -> Structure:
    """Return the document as blocks.

    Running heads, feet and page numbers are blocks of their own kind.
    """
    out = find_furniture(document.pages)
    blocks: list[Block] = []
    whole: set[int] = set()
    for page in document.pages:
        blocks += _blocks(page, out)
        if page.state is State.OK and all(region.state is not State.FAILED for region in page.regions):
            whole.add(page.number)
    # A lone number belongs to the title below it.
    titled: list[Block] = []
    for block in blocks:
        before = titled[-1] if titled else None
        if (
            before is not None
            and before.kind is block.kind is BlockKind.TITLE
            and before.page == block.page
            and len(before.parts) == 1
            and is_number_alone(before.text)
            and rank_of(block.text) is None
        ):
            titled[-1] = replace(before, parts=(*before.parts, replace(block.parts[0], joint=" ")))
        else:
            titled.append(block)
    blocks = with_levels(with_entries(join_pages(tie_footnotes(titled), whole)))
    regions = sum(len(page.regions) for page in document.pages)
    by_kind: dict[BlockKind, set[tuple[int, int]]] = {kind: set() for kind in BlockKind}
    joined = tied = 0
    for block in blocks:
        joined += block.last_page > block.page
        tied += block.mark is not None
        for part in (*block.parts, *([block.number] if block.number else [])):
            by_kind[block.kind].add((part.page, part.region.index))
    heads, lost = by_kind[BlockKind.FURNITURE], by_kind[BlockKind.LOST]
    used = set().union(*by_kind.values())
    return Structure(
        blocks=tuple(blocks),
        regions=regions,
        placed=len(used - heads - lost),
        furniture=len(heads),
        empty=regions - len(used),
        lost=len(lost),
        joined=joined,
        tied=tied,
    )


def _blocks(page: DocumentPage, out: set[tuple[int, int]]) -> Iterator[Block]:
    numbers = formula_numbers([(region.label, region.content or "") for region in page.regions])
    used = set(numbers.values())
    for at, region in enumerate(page.regions):
        if at in used:
            continue
        part = BlockPart(
            page.number, region, printable(region.content or "").strip(), note=page.notes.get(region.index)
        )
        if region.state is State.FAILED:
            yield Block(BlockKind.LOST, (replace(part, text=""),))
            continue
        if region.index in page.pictures:
            yield Block(BlockKind.PICTURE, (replace(part, text=""),), picture=page.pictures[region.index])
            # The note is on the picture; what a reader made of a chart has none of its own.
            part = replace(part, note=None)
        if not part.text:
            continue
        if (page.number, region.index) in out:
            yield Block(BlockKind.FURNITURE, (replace(part, text=one_line(part.text)),))
        elif region.label in _FORMULAS:
            number = page.regions[numbers[at]] if at in numbers else None
            of = None if number is None else BlockPart(page.number, number, printable(number.content or "").strip())
            yield Block(BlockKind.FORMULA, (replace(part, text=strip_delimiters(part.text)),), number=of)
        else:
            yield from _text_blocks(part)


def _text_blocks(part: BlockPart) -> Iterator[Block]:
    """Yield the blocks of a region with text."""
    label, text = part.region.label, part.text
    if label in _TITLES:
        yield _title(part)
    elif label in TABLE_LABELS and "<table" in text.lower():
        for piece in tables_and_text(text):
            yield Block(BlockKind.TABLE if is_table(piece) else BlockKind.TEXT, (replace(part, text=piece),))
            part = replace(part, note=None) if is_table(piece) else part
    elif label == "figure_title":
        yield Block(BlockKind.CAPTION, (replace(part, text=one_line(text)),))
    elif label == "footnote":
        box = part.region.box
        height = box.height / len(text.split("\n"))
        for note in split_footnotes(text):
            for paragraph in paragraphs(note, box.width, height * len(note.split("\n"))):
                # A note may begin like a list entry, with a bullet or a number.
                yield Block(BlockKind.FOOTNOTE, (replace(part, text=f"{paragraph.bullet} {paragraph.text}".lstrip()),))
    else:
        parts = paragraphs(text, part.region.box.width, part.region.box.height)
        for at, paragraph in enumerate(parts, 1):
            # A note on a table without cells stands once, below the whole of it.
            of = replace(part, text=paragraph.text, note=part.note if at == len(parts) else None)
            if paragraph.is_code:
                yield Block(BlockKind.CODE, (of,), language=paragraph.language)
            else:
                yield Block(BlockKind.ITEM if paragraph.bullet else BlockKind.TEXT, (of,), sign=paragraph.bullet)


def _title(part: BlockPart) -> Block:
    """Return a title, or the list entry, caption or sentence that layout took for one."""
    line = one_line(strip_fences(part.text))
    title = HASHES.sub("", line)
    bullet = ITEM.match(title) or _MISREAD_BULLET.match(title)
    if bullet:
        return Block(BlockKind.ITEM, (replace(part, text=title[bullet.end() :]),), sign=bullet[0].strip())
    if _NAMED.match(title):
        return Block(BlockKind.CAPTION, (replace(part, text=title),))
    is_sentence = rank_of(title) is None and _SENTENCE.search(title)
    knows_level = part.region.label == "paragraph_title" and part.region.origin in _LEVELLED
    level = len(line) - len(line.lstrip("#")) if knows_level else 0
    if knows_level and part.region.origin is TextOrigin.DOCUMENT:
        level = max(1, level)
    return Block(BlockKind.TEXT if is_sentence else BlockKind.TITLE, (replace(part, text=title),), level=level)


_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁾", "0123456789)")
_MARK = re.compile(
    r"\s*(?:<sup>\s*)?(?:\$\s*\^\s*\{?)?(?P<mark>[0-9]{1,3}|[⁰¹²³⁴-⁹]{1,3}|\*{1,3}|[†‡])(?P<bracket>[)⁾])?(?:\s*\}?\s*\$)?(?:\s*</sup>)?"
    r"(?=[\s가-힣A-Za-z“‘(\[])\s*"
)
"""The beginning of a note: `4)`, `4 `, `*`, also as a superscript."""
_SIGNS = str.maketrans({"*": "s", "†": "d", "‡": "dd"})
_REFERRING = frozenset({BlockKind.TEXT, BlockKind.ITEM, BlockKind.TITLE, BlockKind.CAPTION})
_REFERENCE = re.compile(
    r"<sup>\s*(?P<html>[^<>]{1,24}?)\s*</sup>"
    r"|\$\s*\^\s*\{?\s*(?P<latex>[^${}]{1,24}?)\s*\}?\s*\$"
    r"|(?P<raised>[⁰¹²³⁴-⁹][⁰¹²³⁴-⁹⁾,]*)"
    r"|(?<=[가-힣A-Za-z.,”’\"'])(?P<plain>[0-9]{1,3})\)"
    r"|(?<=[가-힣A-Za-z.,”’\"')])(?P<sign>\*{1,3}|[†‡])(?![*†‡])"
)
"""References to notes in a text: a superscript, or a number and a bracket after a letter."""
_BASE = re.compile(r"(?:[0-9]|(?<![A-Za-z])(?:[A-Za-z]|[cdkm]m))$")
"""Text before an exponent: a digit, a variable or a unit of length."""
_NUMBER = re.compile(r"[0-9]{1,3}|\*{1,3}|[†‡]")

Place = tuple[int, str]
"""Number of a page and the mark of a note as printed there."""


@dataclass(frozen=True, slots=True)
class _Reference:
    """A place in a block's text that refers to one or more notes."""

    block: int
    start: int
    end: int
    notes: tuple[Place, ...]


def split_footnotes(text: str) -> list[str]:
    """Return the footnotes of a region.

    A new one begins at a line whose mark follows the previous mark.
    """
    notes: list[str] = []
    before: re.Match[str] | None = None
    for line in text.split("\n"):
        mark = _MARK.match(line)
        begins = mark is not None and before is None
        if mark is not None and before is not None:
            old, new = (match["mark"].translate(_SUPERSCRIPTS) for match in (before, mark))
            if old.isdigit() and new.isdigit():
                begins = int(new) == int(old) + 1 and bool(before["bracket"]) == bool(mark["bracket"])
            else:
                begins = new != old and old.isdigit() == new.isdigit()
        if begins or not notes:
            notes.append(line)
        else:
            notes[-1] += f"\n{line}"
        before = mark if begins else before
    return notes


def tie_footnotes(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks with each footnote tied to the place that refers to it.

    A note is tied if exactly one place on its page has its mark. The mark is the printed one, preceded by the page
    number if another note of the document has the same. A superscript that names several notes is tied only if all of
    them are. A note without exactly one reference stays as printed: a superscript may be an exponent. Blocks have one
    part each.
    """
    done = list(blocks)
    notes: dict[Place, list[int]] = defaultdict(list)
    for at, block in enumerate(done):
        if block.kind is BlockKind.FOOTNOTE and (mark := _MARK.match(block.text)):
            notes[block.page, mark["mark"].translate(_SUPERSCRIPTS)].append(at)
    references: list[_Reference] = []
    places: Counter[Place] = Counter()
    for at, block in enumerate(done):
        if block.kind in _REFERRING:
            text = block.parts[0].text
            for match in _REFERENCE.finditer(text):
                named = next(group for group in match.groups() if group is not None).translate(_SUPERSCRIPTS)
                numbers = re.split(r"[\s,;)]+", named.strip(" )"))
                if numbers in (["2"], ["3"]) and _BASE.search(text, 0, match.start()):
                    continue
                if all(map(_NUMBER.fullmatch, numbers)) and len(set(numbers)) == len(numbers):
                    named_notes = tuple((block.page, number) for number in numbers)
                    references.append(_Reference(at, *match.span(), named_notes))
                    places.update(named_notes)
    chosen: list[_Reference] = []
    printed: Counter[str] = Counter()
    for reference in references:
        if all(len(notes.get(note, ())) == places[note] == 1 for note in reference.notes):
            chosen.append(reference)
            printed.update(number for _, number in reference.notes)
    for reference in chosen:
        refers = done[reference.block].parts[0].refers
        begin = reference.start
        for place in reference.notes:
            page, number = place
            mark = number.translate(_SIGNS) if printed[number] == 1 else f"{page}-{number.translate(_SIGNS)}"
            at = notes[place][0]
            printed_mark = _MARK.match(done[at].text)
            done[at] = replace(done[at], mark=mark, printed_mark=printed_mark.end() if printed_mark else 0)
            # The first mark replaces the printed reference; the others follow it and replace nothing.
            refers = (*refers, (begin, reference.end, mark))
            begin = reference.end
        block = done[reference.block]
        done[reference.block] = replace(block, parts=(replace(block.parts[0], refers=refers), *block.parts[1:]))
    return done
