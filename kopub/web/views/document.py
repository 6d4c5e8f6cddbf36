"""The view of a document: its pages as pictures, or the whole as text."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

import kopub
from kopub.documents.document import Block, BlockKind, Document
from kopub.errors import visible
from kopub.states import LOST, Reason, State
from kopub.texts.text_quality import DOUBTFUL
from kopub.web import elements
from kopub.web.elements import document_name, page_card
from kopub.web.requests import ViewRequest, ViewResponse, part
from kopub.web.room import Now, Room

_PAGES, TEXT_PAGES = 60, 20
"""Pages in one part of the pictures and of the text; parts are made separately, however long the document is."""
_LONGEST_TEXT = 5 * elements.MOST
TEXT = "text"
_PAGE_MARK = re.compile(rf"page \d+(: ({'|'.join(State)})(: .*)?)?", re.DOTALL)
"""The comment where a page begins; that of a document named `page 3` goes on with its number of pages."""
_QUOTED = re.compile(r"<blockquote>\s*<p>([^<]* could not be read[^<]*)</p>\s*</blockquote>")
_PAGE_LOST = "Page {page} could not be read ({state}): {reason}"
_REGION_LOST = "Region {region} ({label}) of page {page} could not be read: {reason}"
_COMMENT_OR_TABLE = re.compile(r"(<!--.*?-->|</?table\b[^>]*>)", re.DOTALL)


def document(room: Room, request: ViewRequest) -> ViewResponse:
    subject, t, to = document_of(room.now.corpus, request), request.t, request.to
    view = TEXT if request.text("view") == TEXT else ""
    title = document_name(subject, request)
    before, after = room.now.documents_beside(subject.id)
    if view:
        values = _text(room.now, subject, request)
    else:
        places, pager = part(len(subject), _PAGES, request, lambda **at: to.document(subject, **at))
        cards = [page_card(page, request, _short(page, request)) for page in subject.pages[places]]
        values = {"pages": cards, "pager": pager}
    return ViewResponse(
        "document.html.jinja",
        {
            "document_before": None if before is None else to.document(before, view=view),
            "document_after": None if after is None else to.document(after, view=view),
            "room": "documents",
            "title": title,
            "path": [(t("room.documents"), to.documents()), (title, None)],
            "document": subject,
            "pages_count": len(subject),
            "states": [(state.value, count) for state, count in subject.states.items()],
            "view": view,
            "views": [("", to.document(subject)), (TEXT, to.document(subject, view=TEXT))],
            **values,
        },
    )


def _text(now: Now, subject: kopub.Document, request: ViewRequest) -> dict[str, Any]:
    to = request.to
    places, pager = part(len(subject), TEXT_PAGES, request, lambda **at: to.document(subject, view=TEXT, **at))
    of = kopub.Document(subject.id, subject.pages[places])
    figures: dict[str, str] = {}

    def picture(page_id: str, region: int) -> str:
        link = str(len(figures))
        figures[link] = to.figure(page_id, region)
        return link

    html = elements.markdown(of.to_markdown(picture), figures.get, _LONGEST_TEXT, comments=True)
    marked: list[kopub.Page] = []
    losses: dict[str, Reason] = {}
    for document, blocks in of.structured:
        marked += [now.corpus.page(page.page_id) for page in document.pages]
        for loss in _losses(document, blocks):
            losses[loss] = loss

    def in_language(quoted: re.Match[str]) -> str:
        """Return why a page or region was not read, quoted in the person's language."""
        text = str(Markup(quoted[1]).unescape())
        message, language = request.t.reason(losses.get(text, text))
        return Markup('<blockquote><p lang="{}">{}</p></blockquote>').format(language, message)

    html = _QUOTED.sub(in_language, html)
    marks: list[Markup] = []
    for page in marked:
        states = [page.state.value] if page.state != State.OK else []
        if (page.doubt or 0) >= DOUBTFUL and page.id not in now.checked:
            states.append("doubtful")
        badges = Markup("")
        for state in states:
            badges += Markup('<span class="state {}">{}</span>').format(state, request.t.word("state", state))
        link = Markup('<a class="leaf" id="{}" href="{}">{}{}</a>')
        marks.append(link.format(page_anchor(page), to.page(page.id), _short(page, request), badges))
    # A mark stands in place of the comment where each page begins.
    pieces: list[Markup] = []
    in_table = False
    for piece in _COMMENT_OR_TABLE.split(html):
        if not piece.startswith("<!--"):
            in_table = piece.startswith("<table") if _COMMENT_OR_TABLE.fullmatch(piece) else in_table
            pieces.append(Markup(piece))
        elif marks and _PAGE_MARK.fullmatch(piece[4:-3].strip()):
            mark = marks.pop(0)
            pieces.append(Markup("<tr><td>{}</td></tr>").format(mark) if in_table else mark)
    return {"rendered": Markup("").join(pieces), "source": of.to_markdown(), "pager": pager}


def _losses(document: Document, blocks: Sequence[Block]) -> Iterator[Reason]:
    """Yield what a document's markdown says of pages and regions without a reading."""
    for page in document.pages:
        if page.state in LOST and page.reason:
            yield Reason(_PAGE_LOST, page=page.number, state=page.state.value, reason=visible(page.reason))
    for block in blocks:
        if block.kind is BlockKind.LOST and (region := block.parts[0].region).reason:
            why = visible(region.reason)
            yield Reason(_REGION_LOST, region=region.index, label=region.label, page=block.page, reason=why)


def page_anchor(page: kopub.Page) -> str:
    """Return the anchor of a page in its document's text."""
    return f"page-{page.shard}-{page.row}"


def text_address(page: kopub.Page, request: ViewRequest) -> str:
    """Return the URL of a page in the text of its document."""
    at = page.document.pages.ids.index(page.id) // TEXT_PAGES + 1
    return f"{request.to.document(page.document, view=TEXT, part=at)}#{page_anchor(page)}"


def document_of(corpus: kopub.Corpus, request: ViewRequest) -> kopub.Document:
    """Return the document that a URL names. Raises `NoSuchPage`."""
    if (page_id := request.text("of")) in corpus.pages:
        return corpus.page(page_id).document
    document = request.text("id")
    if document not in corpus.documents:
        raise kopub.NoSuchPage(request.t("message.no_document", id=document or "?"))
    return corpus.documents[document]


def _short(page: kopub.Page, request: ViewRequest) -> str:
    return page.id if page.number is None else request.t("page.short", number=page.number)
