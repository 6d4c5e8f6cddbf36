"""What the last upgrade changed, shard by shard."""

from kopub_web.asked import Asked, Shown, part
from kopub_web.elements.cards import page_card
from kopub_web.room import Room

_PAGES = 24


def versions(room: Room, asked: Asked) -> Shown:
    now = room.now
    values = {"room": "versions", "title": asked.t("room.versions"), "shards": now.replaced}
    if not now.replaced:
        return Shown("versions.html.jinja", values)
    shard = asked.text("shard") if asked.text("shard") in now.replaced else now.replaced[0]
    diff, upgrades = now.changes(shard)
    changed = [page for page in diff.changed if page.page_id in now.corpus.pages]
    shown, pager = part(len(changed), _PAGES, asked, lambda **at: asked.to.versions(shard=shard, **at))
    cards = [{**_card(room, page.page_id, asked), "damage": page.damage.score} for page in changed[shown]]
    return Shown(
        "versions.html.jinja",
        {
            **values,
            "shard": shard,
            "upgrades": upgrades,
            "changed": len(diff.changed),
            "pages_count": diff.pages,
            "pages": cards,
            "pager": pager,
        },
    )


def _card(room: Room, page_id: str, asked: Asked) -> dict[str, object]:
    card = page_card(room.now.corpus.page(page_id), asked, view="versions")
    return {name: getattr(card, name) for name in card.__slots__}
