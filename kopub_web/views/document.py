"""A document: its pages as pictures."""

import kopub
from kopub_web.elements import document_name, page_card
from kopub_web.requests import ViewRequest, ViewResponse, part
from kopub_web.room import Room

_PAGES = 60
"""In one part of the list."""


def document(room: Room, request: ViewRequest) -> ViewResponse:
    found = document_of(room.now.corpus, request)
    shown, pager = part(len(found), _PAGES, request, lambda **at: request.to.document(found, **at))
    title = document_name(found, request)
    before, after = room.now.documents_beside(found.id)
    return ViewResponse(
        "document.html.jinja",
        {
            "document_before": None if before is None else request.to.document(before),
            "document_after": None if after is None else request.to.document(after),
            "room": "documents",
            "title": title,
            "path": [(request.t("room.documents"), request.to.documents()), (title, None)],
            "pages_count": len(found),
            "states": [(state.value, count) for state, count in found.states.items()],
            "pages": [page_card(page, request, _short(page, request)) for page in found.pages[shown]],
            "pager": pager,
        },
    )


def document_of(corpus: kopub.Corpus, request: ViewRequest) -> kopub.Document:
    """Return the document that an address names. Raises `NoSuchPage`."""
    if (page_id := request.text("of")) in corpus.pages:
        return corpus.page(page_id).document
    document = request.text("id")
    if document not in corpus.documents:
        raise kopub.NoSuchPage(request.t("message.no_document", id=document or "?"))
    return corpus.documents[document]


def _short(page: kopub.Page, request: ViewRequest) -> str:
    return page.id if page.number is None else request.t("page.short", number=page.number)
