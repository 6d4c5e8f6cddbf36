"""Documents as markdown files, without reading or writing."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kopub.documents.document import Block, BlockKind, Document, DocumentPage
from kopub.documents.tables import caption_of, rows_of, without_rows
from kopub.errors import visible
from kopub.figures.figure import FigureNote
from kopub.recognition.content import fence_code
from kopub.recognition.tables import is_table, tables_and_text
from kopub.states import LOST, State
from kopub.texts.markdown import DOTS, NOT_PRINTED, link_target
from kopub.texts.markup import block_markdown, formula_markdown, inline_markdown, printable, title_markdown


@dataclass(frozen=True, slots=True)
class MarkdownOptions:
    """The options of a markdown file.

    `page_marks` adds the line `----- Page 3 -----` from the second page on, before the first block that begins on that
    page or later. `notes` adds a model's notes below their pictures and tables.
    """

    page_marks: bool = False
    notes: bool = False


def document_markdown(document: Document, blocks: Sequence[Block], options: MarkdownOptions | None = None) -> str:
    """Return the blocks as markdown, without running heads, feet and page numbers.

    `<!-- page 3 -->` stands before the beginning of page 3, even in the middle of a paragraph or table that continues
    there. A page or region that could not be read is a quotation that says so. Footnotes are `[^1]`, or `[^3-1]` if the
    document has several of that number; tables are HTML with one row per line; pictures are links, or words if they
    have no path. What is not printed is marked so. Nothing that was read is a link. `blocks` are those of the
    document, in its order.
    """
    options = options or MarkdownOptions()
    pages = len(document.pages)
    done = [f"<!-- {_comment(document.doc_id)}: {pages} page{'s' if pages > 1 else ''} -->"]
    marks = _Marks(document.pages, options.page_marks)
    entries: list[tuple[int, int]] = []
    """The level of each entry that the next one may stand in, and the columns before its text."""
    for block in _by_page([block for block in blocks if block.kind is not BlockKind.FURNITURE]):
        marked = marks.before(block.page)
        is_next = bool(entries) and block.kind is BlockKind.ITEM and not marked
        while entries and (block.kind is not BlockKind.ITEM or entries[-1][0] >= block.level):
            entries.pop()
        indent = " " * (entries[-1][1] if entries else 0)
        if block.kind is BlockKind.ITEM:
            entries.append((block.level, len(indent) + len(_list_mark(block))))
        text = [_noted(part.note) for part in block.parts if part.note is not None] if options.notes else ()
        unprinted = [] if block.is_printed else [NOT_PRINTED]
        written = "\n\n".join([*marked, *unprinted, _markdown(block, marks), *text])
        done.append(("\n" if is_next else "\n\n") + textwrap.indent(written, indent))
    rest = marks.before(None)
    return "".join(done) + "".join(f"\n\n{mark}" for mark in rest) + "\n"


def _by_page(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks, those that continue on the next page last of their page.

    Everything after the mark of a page has to be on that page.
    """
    left = list(blocks)
    while left:
        block = left.pop(0)
        if block.last_page > block.page:
            is_near = True
            later: list[Block] = []
            for other in left:
                is_near = is_near and other.page <= block.last_page
                if is_near and other.last_page < block.last_page:
                    yield other
                else:
                    later.append(other)
            left = later
        yield block


class _Marks:
    """The marks of pages not marked yet; `visible` ones stand only between blocks."""

    def __init__(self, pages: Sequence[DocumentPage], visible: bool) -> None:
        self._left = list(pages)
        self._first = pages[0].number if pages else None
        self._visible = visible
        self._pending: list[str] = []

    def before(self, number: int | None) -> list[str]:
        """Return the marks before a block on page `number`; None means all that remain."""
        waiting, self._pending = self._pending, []
        for (comment, *loss), shown in self._up_to(number):
            waiting += (comment, *shown, *loss)
        return waiting

    def within(self, number: int) -> list[str]:
        """Return the marks within a block that continues on page `number`.

        The visible ones come after the block.
        """
        marks: list[str] = []
        for comment, shown in self._up_to(number):
            marks += comment
            self._pending += shown
        return marks

    def _up_to(self, number: int | None) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the comment of each page up to `number`, any loss, and its visible mark."""
        while self._left and (number is None or self._left[0].number <= number):
            page = self._left.pop(0)
            state = "" if page.state is State.OK else f": {page.state}{_comment(_why(page.reason))}"
            comment = [f"<!-- page {page.number}{state} -->"]
            if page.state in LOST:
                why = inline_markdown(_why(page.reason))
                comment.append(f"> Page {page.number} could not be read ({page.state}){why}")
            is_shown = self._visible and page.number != self._first
            yield comment, [f"----- Page {page.number} -----"] if is_shown else []


def _why(reason: str | None) -> str:
    return f": {visible(reason)}" if reason else ""


def _comment(text: str) -> str:
    """Return the text so that it cannot end an HTML comment."""
    return visible(text).replace("--", "- -").replace(">", "&gt;")


def _markdown(block: Block, marks: _Marks) -> str:
    match block.kind:
        case BlockKind.CODE:
            return fence_code(block.text, block.language)
        case BlockKind.TABLE:
            html = f"<table>{caption_of(block.parts[0].text)}"
            for part in block.parts:
                html += "".join(f"\n{mark}" for mark in marks.within(part.page))
                table = without_rows(part.text, part.repeated)
                html += rows_of(table).replace("<tr>", "\n<tr>")
            return f"{html}\n</table>"
        case BlockKind.FORMULA:
            return formula_markdown(block.text, block.number.text if block.number else None)
        case BlockKind.PICTURE:
            return _picture(block)
        case BlockKind.LOST:
            region = block.parts[0].region
            where = f"Region {region.index} ({region.label}) of page {block.page}"
            return f"> {where} could not be read{inline_markdown(_why(region.reason))}"
        case _:
            return _running(block, marks)


def _list_mark(block: Block) -> str:
    """Return the mark of a list entry, a dash or its number."""
    return f"{block.sign} " if _NUMBER.fullmatch(block.sign) else "- "


_NUMBER = re.compile(r"[0-9]+[.)]")


def _picture(block: Block) -> str:
    if block.picture is None:
        return ""
    note = block.parts[0].note
    words = _in_line(note.description if note and note.description else block.label)
    if not block.picture.path:
        return f"*({words})*"
    return "![" + _BRACKET.sub(r"\\\g<0>", words) + f"]({link_target(block.picture.path)})"


def _in_line(text: str) -> str:
    """Return what is said of a page, in one line of markdown."""
    return inline_markdown(" ".join(printable(text).split()))


def _noted(note: FigureNote) -> str:
    """Return a model's note on a picture or table, marked as such."""
    kind = f" ({_in_line(note.kind.replace('_', ' '))})" if note.kind else ""
    lines = [f"**By a model{kind}:** {_in_line(note.description)}"]
    if note.keywords:
        lines.append(f"Keywords: {_in_line(', '.join(note.keywords))}")
    if note.smiles:
        lines.append(f"SMILES: `{' '.join(note.smiles.replace('`', '').split())}`")
    if note.data_html:
        pieces = tables_and_text(printable(note.data_html))
        lines += [" ".join(piece.split()) if is_table(piece) else _in_line(piece) for piece in pieces]
    return "\n>\n".join(f"> {line}" for line in lines)


_BRACKET = re.compile(r"(?<!\\)[\[\]]")


def _running(block: Block, marks: _Marks) -> str:
    """Return a title, list entry, note or paragraph.

    Line breaks are kept by two blanks each.
    """
    parts = block.parts
    if block.mark is not None:
        parts = (replace(parts[0], text=parts[0].text[block.printed_mark :]), *parts[1:])
    # The marks of pages are put in last: printed signs may be pairs across them.
    pages: dict[str, str] = {}
    text = ""
    for part in parts:
        within = "".join(marks.within(part.page))
        begin = f"\ufdd2{len(pages)}\ufdd3" if within else ""
        pages |= {begin: within} if within else {}
        text += part.joint + begin
        end = 0
        for start, stop, mark in part.refers:
            text += f"{part.text[end:start]}\ufdd0{mark}\ufdd1"
            end = stop
        text += part.text[end:]
    if block.kind is BlockKind.TITLE:
        written = title_markdown(text, block.level)
    elif block.kind is BlockKind.ITEM:
        mark = _list_mark(block)
        sign = "" if block.sign in DOTS or mark != "- " else f"{block.sign} "
        written = mark + block_markdown(sign + text, "  \n" + " " * len(mark))
    else:
        written = ("" if block.mark is None else f"[^{block.mark}]: ") + block_markdown(text, "  \n")
    for sign, within in pages.items():
        written = written.replace(sign, within)
    return _NOTE.sub(r"[^\1]", _RAISED.sub(r"<\1>\2</\1>", written))


_RAISED = re.compile(r"&lt;(su[bp])>([^<>&]{1,40})&lt;/\1>")
"""Tags of raised and lowered text, the only two that a text keeps."""
_NOTE = re.compile("\ufdd0(.*?)\ufdd1")
"""The mark of a note between two characters that occur in no text."""
