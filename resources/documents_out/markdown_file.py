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
    done = [f"<!-- {_comment(document.doc_id)}: {len(document.pages)} pages -->"]
    marks = _Marks(document.pages)
    before: Kind | None = None
    for block in blocks:
        if block.kind is Kind.FURNITURE:
            continue
        marked = marks.up_to(block.page)
        in_list = before is block.kind is Kind.ITEM and not marked
        done.append(("\n" if in_list else "\n\n") + "\n\n".join([*marked, _markdown(block, marks)]))
        before = block.kind
    rest = marks.up_to(None)
    return "".join(done) + "".join(f"\n\n{mark}" for mark in rest) + "\n"


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
    text = block.text
    match block.kind:
        case Kind.TITLE:
            return f"{'#' * block.level} {_running(block, marks)}"
        case Kind.ITEM:
            return f"- {_running(block, marks)}"
        case Kind.CODE:
            return fenced(text, block.language)
        case Kind.TABLE:
            return _table(block, marks)
        case Kind.FORMULA:
            return formula_markdown(text, block.number.text if block.number else None)
        case Kind.PICTURE if block.picture is not None:
            says = " ".join((block.picture.note or block.label).split())
            return f"![{says.translate(_IN_BRACKETS)}]({link_target(block.picture.path)})"
        case Kind.FOOTNOTE if block.mark is not None:
            note = replace(block.parts[0], text=text[block.printed_mark :])
            return f"[^{block.mark}]: {_running(replace(block, parts=(note,)), marks)}"
        case Kind.LOST:
            region = block.parts[0].region
            reason = f": {visible(region.reason)}" if region.reason else ""
            where = f"Region {region.index} ({region.label}) of page {block.page}"
            return f"> {where} could not be read{inline_markdown(reason)}"
        case _:
            return _running(block, marks)


_IN_BRACKETS = str.maketrans({"[": r"\[", "]": r"\]"})


def _running(block: Block, marks: _Marks) -> str:
    """A paragraph; lines of its content end with two blanks, so that they stay lines."""
    text = ""
    for part in block.parts:
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
