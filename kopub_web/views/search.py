"""Pages that answer a question, each with its passage and the boxes that hold the question's words."""

from typing import Any

from kopub_web.asked import LONGEST_QUERY, Asked, Shown
from kopub_web.elements.hues import hue
from kopub_web.elements.regions import pieces
from kopub_web.room import Room
from resources.errors import KopubError
from resources.search.answer import Hit
from resources.search.options import MOST, Mode, Where

_TOP = 10
_NAMED = 500
"""Documents that the form names for a person who types; any other can be typed too."""
WAY = ("q", "mode", "doc", "source", "shard", "table", "figure")
"""What of an address is the question: a page that was found leads back with it."""


def search(room: Room, asked: Asked) -> Shown:
    t, query = asked.t, asked.values.get("q", "")
    corpus = room.now.corpus
    values: dict[str, Any] = {
        "title": query[:LONGEST_QUERY] or t("search.title"),
        "query": query[:LONGEST_QUERY],
        "mode": asked.text("mode"),
        "doc": asked.text("doc"),
        "source": asked.text("source"),
        "sources": list(dict.fromkeys(asked.sources.values())),
        "shard": asked.text("shard"),
        "table": asked.flag("table"),
        "figure": asked.flag("figure"),
        "shards": corpus.shards,
        "documents": [document for document in corpus.documents.ids[:_NAMED] if document],
        "choices": [choice.value for choice in room.searcher.choices],
        "answer": None,
        "finding": None,
        "error": None,
        "detail": None,
    }
    if "q" not in asked.values:
        return Shown("search.html.jinja", values)
    if not query.strip():
        return Shown("search.html.jinja", {**values, "error": t("search.empty")}, 400)
    if len(query) > LONGEST_QUERY:
        return Shown("search.html.jinja", {**values, "error": t("search.too_long", most=LONGEST_QUERY)}, 400)
    top = min(asked.number("top"), MOST) if asked.values.get("top", "").isdecimal() else _TOP
    mode = Mode(asked.text("mode")) if asked.text("mode") in list(Mode) else None
    if (found := room.words.waits(mode)) is not None:
        return Shown("search.html.jinja", {**values, "finding": t("search.finding", at=found[0], count=found[1])})
    try:
        answer = room.searcher.search(query, top, mode, _where(room, asked))
    except KopubError as error:
        detail = t.sentence(str(error))
        return Shown("search.html.jinja", {**values, "error": t("search.cannot"), "detail": detail}, 400)
    way = {name: asked.values[name] for name in WAY if asked.values.get(name)}
    hits = [_hit(hit, asked, way) for hit in answer.hits]
    notes = [t.sentence(note) for note in answer.notes]
    return Shown("search.html.jinja", {**values, "answer": answer, "notes": notes, "hits": hits})


def _where(room: Room, asked: Asked) -> Where:
    """Raises `SourceError` for a source that the corpus does not have."""
    doc, shard, source = asked.text("doc"), asked.text("shard"), asked.text("source")
    manifest = room.settings.corpus.manifest
    return Where(
        frozenset([doc] if doc else ()),
        manifest.shards_to_search([shard] if shard else (), [source] if source else ()),
        has_table=asked.flag("table"),
        has_figure=asked.flag("figure"),
    )


def _hit(hit: Hit, asked: Asked, way: dict[str, str]) -> dict[str, Any]:
    page, passage = hit.page, hit.match.passage
    matching = [page.regions[at].index for at in hit.match.regions]
    is_named = page.doc_id and page.page_no is not None
    return {
        "rank": hit.rank,
        "score": hit.score,
        "source": asked.sources.get(page.shard, ""),
        "name": asked.t("page.name", document=page.doc_id, number=page.page_no) if is_named else page.page_id,
        "page_id": page.page_id,
        "href": asked.to.page(page.page_id, **way),
        "thumb": asked.to.picture(page.page_id, "small", page.sha256) if page.width else None,
        "width": page.width,
        "height": page.height,
        "boxes": [
            {"index": region.index, "box": region.box, "hue": hue(region.label), "held": region.index in matching}
            for region in page.regions
        ],
        "matching": matching,
        "has_text": bool(passage.text),
        "pieces": list(pieces(passage.text, passage.marks)),
    }
