"""Lists to walk through: pages that a person should look at."""

import kopub
from kopub_web.asked import Asked, Shown, part
from kopub_web.elements.cards import counted_lists, page_card
from kopub_web.room import DOUBTFUL, LISTS, Room

_PAGES = 24
"""In one part: for each of them its reason is read."""
_WHY = 300


def pages(room: Room, asked: Asked) -> Shown:
    now = room.now
    counts = counted_lists(now, LISTS)
    kind = asked.text("kind")
    if kind not in LISTS:
        kind = next((name for name, count in counts if count), DOUBTFUL)
    found = now.lists[kind]
    shown, pager = part(len(found), _PAGES, asked, lambda **at: asked.to.pages(kind, **at))
    return Shown(
        "pages.html.jinja",
        {
            "room": "pages",
            "title": asked.t(f"list.{kind}"),
            "kind": kind,
            "lists": counts,
            "pages": [page_card(page, asked, why=_why(page, kind, asked), walk=kind) for page in found[shown]],
            "first": asked.to.page(found[0].id, walk=kind) if len(found) else None,
            "start": shown.start,
            "pager": pager,
        },
    )


def _why(page: kopub.Page, kind: str, asked: Asked) -> str:
    if kind == DOUBTFUL:
        return "; ".join(asked.t.sentence(line)[0] for line in page.doubts)[:_WHY]
    return asked.t.reason(page.reason or "")[0][:_WHY]
