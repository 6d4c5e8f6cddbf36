"""Documents as markdown files, without reading or writing."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kopub.documents.document import BlockKind, BlockPart, Document, DocumentBlock, DocumentPage
from kopub.documents.tables import caption_of, is_table, rows_of, tables_and_text, without_first_row
from kopub.errors import visible
from kopub.figures.figure import FigureNote
from kopub.recognition.content import fence_code
from kopub.states import LOST, State
from kopub.texts.markdown import NOT_PRINTED, defuse, formula_markdown, inline_markdown, line_markdown, link_target


@dataclass(frozen=True, slots=True)
class MarkdownOptions:
    """The options of a markdown file.

    `page_marks` adds the line `----- Page 3 -----` from the second page on, before the first block that begins on that
    page or later. `notes` adds a model's notes below their pictures and tables.
    """

    page_marks: bool = False
    notes: bool = False


def document_markdown(
    document: Document, blocks: Sequence[DocumentBlock], options: MarkdownOptions | None = None
) -> str:
    """Return the blocks as markdown, without running heads, feet and page numbers.

    `<!-- page 3 -->` stands before the beginning of page 3, even in the middle of a paragraph or table that continues
    there. A page or region that could not be read is a quotation that says so. Footnotes are `[^1]`, or `[^3-1]` if the
    document has several of that number; tables are HTML with one row per line; pictures are links, or words if they
    have no path. What is not printed is marked so. A link leads to the web, or it is text. `blocks` are those of the
    document, in its order.
    """
    options = options or MarkdownOptions()
    pages = len(document.pages)
    done = [f"<!-- {_comment(document.doc_id)}: {pages} page{'s' if pages > 1 else ''} -->"]
    marks = _PageMarks(document.pages, options.page_marks)
    before: BlockKind | None = None
    for block in _by_page([block for block in blocks if block.kind is not BlockKind.FURNITURE]):
        marked = marks.before(block.page)
        in_list = before is block.kind is BlockKind.ITEM and not marked
        said = [_noted(part.note) for part in block.parts if part.note is not None] if options.notes else ()
        unprinted = [] if block.is_printed else [NOT_PRINTED]
        done.append(("\n" if in_list else "\n\n") + "\n\n".join([*marked, *unprinted, _markdown(block, marks), *said]))
        before = block.kind
    rest = marks.before(None)
    return defuse("".join(done) + "".join(f"\n\n{mark}" for mark in rest) + "\n")


def _by_page(blocks: Sequence[DocumentBlock]) -> Iterator[DocumentBlock]:
    """Yield the blocks, those that continue on the next page last of their page.

    Everything after the mark of a page has to be on that page.
    """
    left = list(blocks)
    while left:
        block = left.pop(0)
        if block.last_page > block.page:
            near = next((at for at, other in enumerate(left) if other.page > block.last_page), len(left))
            early = [at for at in range(near) if left[at].last_page < block.last_page]
            yield from (left[at] for at in early)
            left = [other for at, other in enumerate(left) if at not in early]
        yield block


class _PageMarks:
    """The marks of pages not marked yet; `visible` ones stand only between blocks."""

    def __init__(self, pages: Sequence[DocumentPage], visible: bool) -> None:
        self._left = list(pages)
        self._first = pages[0].number if pages else None
        self._visible = visible
        self._pending: list[str] = []

    def before(self, number: int | None) -> list[str]:
        """Return the marks before a block on page `number`; None means all that remain."""
        waiting, self._pending = self._pending, []
        marks = [mark for page in self._up_to(number) for mark in (_comment_of(page), *self._shown(page), *_lost(page))]
        return [*waiting, *marks]

    def within(self, number: int) -> list[str]:
        """Return the marks within a block that continues on page `number`.

        The visible ones come after the block.
        """
        marks: list[str] = []
        for page in self._up_to(number):
            marks += (_comment_of(page), *_lost(page))
            self._pending += self._shown(page)
        return marks

    def _up_to(self, number: int | None) -> Iterator[DocumentPage]:
        while self._left and (number is None or self._left[0].number <= number):
            yield self._left.pop(0)

    def _shown(self, page: DocumentPage) -> list[str]:
        return [f"----- Page {page.number} -----"] if self._visible and page.number != self._first else []


def _comment_of(page: DocumentPage) -> str:
    state = "" if page.state is State.OK else f": {page.state}{_comment(_why(page.reason))}"
    return f"<!-- page {page.number}{state} -->"


def _lost(page: DocumentPage) -> Iterator[str]:
    if page.state in LOST:
        yield f"> Page {page.number} could not be read ({page.state}){inline_markdown(_why(page.reason))}"


def _why(reason: str | None) -> str:
    return f": {visible(reason)}" if reason else ""


def _comment(text: str) -> str:
    """Return the text so that it cannot end an HTML comment."""
    return visible(text).replace("--", "- -").replace(">", "&gt;")


def _markdown(block: DocumentBlock, marks: _PageMarks) -> str:
    match block.kind:
        case BlockKind.CODE:
            return fence_code(block.text, block.language)
        case BlockKind.TABLE:
            return _table(block, marks)
        case BlockKind.FORMULA:
            return formula_markdown(block.text, block.number.text if block.number else None)
        case BlockKind.PICTURE:
            return _picture(block)
        case BlockKind.LOST:
            region = block.parts[0].region
            where = f"Region {region.index} ({region.label}) of page {block.page}"
            return f"> {where} could not be read{inline_markdown(_why(region.reason))}"
        case _:
            return _before(block) + _running(block, marks)


def _before(block: DocumentBlock) -> str:
    """Return the markdown prefix of a title, list entry or tied note."""
    if block.mark is not None:
        return f"[^{block.mark}]: "
    return {BlockKind.TITLE: "#" * block.level + " ", BlockKind.ITEM: "- "}.get(block.kind, "")


def _picture(block: DocumentBlock) -> str:
    if block.picture is None:
        return ""
    note = block.parts[0].note
    says = " ".join((note.description if note and note.description else block.label).split())
    if not block.picture.path:
        return f"*({inline_markdown(says)})*"
    return f"![{says.translate(_IN_BRACKETS)}]({link_target(block.picture.path)})"


def _noted(note: FigureNote) -> str:
    """Return a model's note on a picture or table, marked as such."""
    kind = f" ({note.kind.replace('_', ' ')})" if note.kind else ""
    lines = [f"**By a model{kind}:** {inline_markdown(note.description)}"]
    if note.keywords:
        lines.append(f"Keywords: {inline_markdown(', '.join(note.keywords))}")
    if note.smiles:
        lines.append(f"SMILES: `{note.smiles}`")
    if note.data_html:
        lines += [piece if is_table(piece) else inline_markdown(piece) for piece in tables_and_text(note.data_html)]
    return "\n>\n".join(f"> {' '.join(line.split())}" for line in lines)


_IN_BRACKETS = str.maketrans({"[": r"\[", "]": r"\]"})


def _running(block: DocumentBlock, marks: _PageMarks) -> str:
    """Return a paragraph whose line breaks are kept by two blanks each."""
    text = ""
    parts = block.parts
    if block.mark is not None:
        parts = (replace(parts[0], text=parts[0].text[block.printed_mark :]), *parts[1:])
    for part in parts:
        first, *others = _with_notes(part).split("\n")
        begins = block.kind is BlockKind.TEXT and not text
        lines = [line_markdown(first) if begins else inline_markdown(first), *map(line_markdown, others)]
        text += part.joint + "".join(marks.within(part.page)) + "  \n".join(lines)
    return _NOTE.sub(r"[^\1]", _RAISED.sub(r"<\1>\2</\1>", text))


_RAISED = re.compile(r"&lt;(su[bp])>([^<>&]{1,40})&lt;/\1>")
"""Tags of raised and lowered text, the only two that a text keeps."""
_NOTE = re.compile("\ufdd0(.*?)\ufdd1")
"""The mark of a note between two characters that occur in no text."""


def _with_notes(part: BlockPart) -> str:
    done, text = 0, ""
    for start, end, mark in part.refers:
        text += f"{part.text[done:start]}\ufdd0{mark}\ufdd1"
        done = end
    return text + part.text[done:]


def _table(block: DocumentBlock, marks: _PageMarks) -> str:
    """Return a table with a line for each row."""
    html = f"<table>{caption_of(block.parts[0].text)}"
    for part in block.parts:
        html += "".join(f"\n{mark}" for mark in marks.within(part.page))
        table = without_first_row(part.text) if part.repeated else part.text
        html += rows_of(table).replace("<tr>", "\n<tr>")
    return f"{html}\n</table>"
