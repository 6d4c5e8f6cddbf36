"""A document as one markdown file. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from resources.documents_out.document import Block, Document, DocumentPage, Kind, Part
from resources.documents_out.table_grid import caption_of, rows_of, without_first_row
from resources.printable import visible
from resources.recognition.code_fences import fenced
from resources.states import LOST, State
from resources.texts.markdown import formula_markdown, inline_markdown, line_markdown, link_target


def document_markdown(document: Document, blocks: Sequence[Block]) -> str:
    """The blocks as markdown, without running heads, feet and page numbers.

    `<!-- page 3 -->` stands before what page 3 begins with, in the middle of a paragraph or table that goes on there.
    A page or region that could not be read is a quotation that says so. Notes are `[^3-1]`, tables HTML with a line
    for each row, pictures links. `blocks` are those of the document, in its order.
    """
    pages = len(document.pages)
    done = [f"<!-- {_comment(document.doc_id)}: {pages} page{'s' if pages > 1 else ''} -->"]
    marks = _Marks(document.pages)
    before: Kind | None = None
    for block in _by_page([block for block in blocks if block.kind is not Kind.FURNITURE]):
        marked = marks.up_to(block.page)
        in_list = before is block.kind is Kind.ITEM and not marked
        done.append(("\n" if in_list else "\n\n") + "\n\n".join([*marked, _markdown(block, marks)]))
        before = block.kind
    rest = marks.up_to(None)
    return "".join(done) + "".join(f"\n\n{mark}" for mark in rest) + "\n"


def _by_page(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks, those of a page before the one that goes on on the next: a mark of a page holds for what follows."""
    left = list(blocks)
    while left:
        block = left.pop(0)
        if block.last_page > block.page:
            near = next((at for at, other in enumerate(left) if other.page > block.last_page), len(left))
            early = [at for at in range(near) if left[at].last_page < block.last_page]
            yield from (left[at] for at in early)
            left = [other for at, other in enumerate(left) if at not in early]
        yield block


class _Marks:
    """Marks of pages that are not marked yet."""

    def __init__(self, pages: Sequence[DocumentPage]) -> None:
        self._left = list(pages)

    def up_to(self, number: int | None) -> list[str]:
        """The marks of the pages up to `number`, of all for None."""
        marks = []
        while self._left and (number is None or self._left[0].number <= number):
            marks += _page_mark(self._left.pop(0))
        return marks


def _page_mark(page: DocumentPage) -> Iterator[str]:
    if page.state is State.OK:
        yield f"<!-- page {page.number} -->"
        return
    reason = f": {visible(page.reason)}" if page.reason else ""
    yield f"<!-- page {page.number}: {page.state}{_comment(reason)} -->"
    if page.state in LOST:
        yield f"> Page {page.number} could not be read ({page.state}){inline_markdown(reason)}"


def _comment(text: str) -> str:
    """Text that ends no comment."""
    return visible(text).replace("--", "- -").replace(">", "&gt;")


def _markdown(block: Block, marks: _Marks) -> str:
    match block.kind:
        case Kind.CODE:
            return fenced(block.text, block.language)
        case Kind.TABLE:
            return _table(block, marks)
        case Kind.FORMULA:
            return formula_markdown(block.text, block.number.text if block.number else None)
        case Kind.PICTURE:
            return _picture(block)
        case Kind.LOST:
            region = block.parts[0].region
            reason = f": {visible(region.reason)}" if region.reason else ""
            where = f"Region {region.index} ({region.label}) of page {block.page}"
            return f"> {where} could not be read{inline_markdown(reason)}"
        case _:
            return _before(block) + _running(block, marks)


def _before(block: Block) -> str:
    """What stands before the text of a title, an entry of a list and a note that is tied."""
    if block.mark is not None:
        return f"[^{block.mark}]: "
    return {Kind.TITLE: "#" * block.level + " ", Kind.ITEM: "- "}.get(block.kind, "")


def _picture(block: Block) -> str:
    if block.picture is None:
        return ""
    says = " ".join((block.picture.note or block.label).split())
    return f"![{says.translate(_IN_BRACKETS)}]({link_target(block.picture.path)})"


_IN_BRACKETS = str.maketrans({"[": r"\[", "]": r"\]"})


def _running(block: Block, marks: _Marks) -> str:
    """A paragraph; lines of its content end with two blanks, so that they stay lines."""
    text = ""
    parts = block.parts
    if block.mark is not None:
        parts = (replace(parts[0], text=parts[0].text[block.printed_mark :]), *parts[1:])
    for part in parts:
        first, *others = _with_notes(part).split("\n")
        begins = block.kind is Kind.TEXT and not text
        lines = [line_markdown(first) if begins else inline_markdown(first), *map(line_markdown, others)]
        text += part.joint + "".join(marks.up_to(part.page)) + "  \n".join(lines)
    return _NOTE.sub(r"[^\1]", text)


_NOTE = re.compile("\ufdd0(.*?)\ufdd1")
"""The mark of a note between two signs that no text has."""


def _with_notes(part: Part) -> str:
    done, text = 0, ""
    for start, end, mark in part.refers:
        text += f"{part.text[done:start]}\ufdd0{mark}\ufdd1"
        done = end
    return text + part.text[done:]


def _table(block: Block, marks: _Marks) -> str:
    """A table with a line for each row."""
    html = f"<table>{caption_of(block.parts[0].text)}"
    for part in block.parts:
        html += "".join(f"\n{mark}" for mark in marks.up_to(part.page))
        table = without_first_row(part.text) if part.repeated else part.text
        html += rows_of(table).replace("<tr>", "\n<tr>")
    return f"{html}\n</table>"
