"""Pages that answer a question, each with its passage and the boxes that hold the question's words."""

from typing import Any

from kopub_web.asked import LONGEST_QUERY, Asked, Shown
from kopub_web.hues import hue
from kopub_web.regions import pieces
from kopub_web.room import Room
from resources.errors import KopubError
from resources.search.search_options import MOST, By
from resources.search.searcher import Hit

_TOP = 10


def search(room: Room, asked: Asked) -> Shown:
    t, query = asked.t, asked.values.get("q", "")
    by = asked.text("by")
    values: dict[str, Any] = {
        "title": query[:LONGEST_QUERY] or t("search.title"),
        "query": query[:LONGEST_QUERY],
        "by": by,
        "choices": [choice.value for choice in room.searcher.choices],
        "answer": None,
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
    try:
        answer = room.searcher.search(query, top, By(by) if by in list(By) else None)
    except KopubError as error:
        return Shown("search.html.jinja", {**values, "error": t("search.cannot"), "detail": str(error)}, 400)
    way = {"q": query, "by": by}
    hits = [_hit(hit, asked, way) for hit in answer.hits]
    return Shown("search.html.jinja", {**values, "answer": answer, "notes": answer.notes, "hits": hits})


def _hit(hit: Hit, asked: Asked, way: dict[str, str]) -> dict[str, Any]:
    page, passage = hit.page, hit.match.passage
    matching = [page.regions[at].index for at in hit.match.regions]
    is_named = page.doc_id and page.page_no is not None
    return {
        "rank": hit.rank,
        "score": hit.score,
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
        "matching": [index + 1 for index in matching],
        "has_text": bool(passage.text),
        "pieces": list(pieces(passage.text, passage.marks)),
    }
