"""The documents of a corpus, and the pages of one."""

import unicodedata

import kopub
from kopub_web.asked import Asked, Shown, part
from kopub_web.elements.cards import document_cards, document_name, page_card
from kopub_web.room import Room

_DOCUMENTS, _PAGES = 48, 60
"""In one part of a list."""


def documents(room: Room, asked: Asked) -> Shown:
    corpus = room.now.corpus
    name, shard = asked.text("name"), asked.text("shard")
    found = _of_shard(corpus, shard) if shard in corpus.shards else corpus.documents.ids
    if name.strip():
        wanted = _plain(name.strip())
        found = [document for document in found if wanted in _plain(document)]
    shown, pager = part(len(found), _DOCUMENTS, asked, lambda **at: asked.to.documents(name=name, shard=shard, **at))
    return Shown(
        "documents.html.jinja",
        {
            "room": "documents",
            "title": asked.t("room.documents"),
            "name": name,
            "shard": shard,
            "shards": corpus.shards,
            "found": len(found),
            "documents": document_cards([corpus.documents[document] for document in found[shown]], asked),
            "pager": pager,
        },
    )


def document(room: Room, asked: Asked) -> Shown:
    found = _document(room.now.corpus, asked)
    shown, pager = part(len(found), _PAGES, asked, lambda **at: asked.to.document(found.id, **at))
    title = document_name(found, asked)
    return Shown(
        "document.html.jinja",
        {
            "room": "documents",
            "title": title,
            "path": [(asked.t("room.documents"), asked.to.documents()), (title, None)],
            "pages_count": len(found),
            "states": [(state.value, count) for state, count in found.states.items()],
            "pages": [page_card(page, asked, _short(page, asked)) for page in found.pages[shown]],
            "pager": pager,
        },
    )


def _document(corpus: kopub.Corpus, asked: Asked) -> kopub.Document:
    """The document that an address names. Raises `NoSuchPage`."""
    document = asked.text("id")
    if document not in corpus.documents:
        raise kopub.NoSuchPage(asked.t("message.no_document", id=document or "?"))
    return corpus.documents[document]


def _short(page: kopub.Page, asked: Asked) -> str:
    return page.id if page.number is None else asked.t("page.short", number=page.number)


def _of_shard(corpus: kopub.Corpus, shard: str) -> list[str]:
    return [document or "" for document in corpus.pages.where(shard=shard).catalogue["doc_id"].unique().to_pylist()]


def _plain(name: str) -> str:
    """Capitals and the way that Hangul is written count for nothing."""
    return unicodedata.normalize("NFC", name).casefold()
