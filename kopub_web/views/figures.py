"""The figures of a corpus: the pictures and charts that its pages have."""

from kopub_web.asked import Asked, Shown, part
from kopub_web.elements.cards import page_name
from kopub_web.room import Room

_FIGURES = 36
"""In one part of the list."""


def figures(room: Room, asked: Asked) -> Shown:
    now = room.now
    found = now.figures
    shown, pager = part(found.num_rows, _FIGURES, asked, asked.to.figures)
    rows = [row for row in found.slice(shown.start, _FIGURES).to_pylist() if row["page_id"] in now.corpus.pages]
    return Shown(
        "figures.html.jinja",
        {
            "room": "figures",
            "title": asked.t("room.figures"),
            "found": found.num_rows,
            "figures": [
                {
                    "picture": asked.to.figure(row["page_id"], row["region"]),
                    "href": f"{asked.to.page(row['page_id'])}#text-{row['region']}",
                    "page": page_name(now.corpus.page(row["page_id"]), asked),
                    "label": row["label"],
                }
                for row in rows
            ],
            "pager": pager,
        },
    )
