"""The views of lists: pages to look at, answers, documents, versions and figures."""

from typing import Any

from kopub.errors import KopubError
from kopub.search.answer import Hit
from kopub.search.options import MOST, Mode, Where
from kopub.search.pages import View
from kopub.web.elements import (
    ListCard,
    counted_lists,
    document_cards,
    documents_named,
    hue,
    page_card,
    page_name,
    pieces,
)
from kopub.web.requests import LONGEST_QUERY, ViewRequest, ViewResponse, part
from kopub.web.room import DOUBTFUL, LISTS, Room

_TOP = 10
_NAMED = 500
"""Most documents that the form suggests to a person who types; others can be typed, too."""
WAY = ("q", "mode", "doc", "source", "since", "shard", "table", "figure")
"""The parts of a URL that make up the question; the page of a hit uses them to lead back."""


def search(room: Room, request: ViewRequest) -> ViewResponse:
    t, query = request.t, request.values.get("q", "")
    corpus = room.now.corpus
    values: dict[str, Any] = {
        "title": query[:LONGEST_QUERY] or t("search.title"),
        "query": query[:LONGEST_QUERY],
        "mode": request.text("mode"),
        "doc": request.text("doc"),
        "source": request.text("source"),
        "sources": list(dict.fromkeys(request.sources.values())),
        "since": request.text("since"),
        "shard": request.text("shard"),
        "table": request.flag("table"),
        "figure": request.flag("figure"),
        "shards": corpus.shards,
        "documents": [document for document in corpus.documents.ids[:_NAMED] if document],
        "choices": [choice.value for choice in room.searcher.choices],
        "answer": None,
        "finding": None,
        "error": None,
        "detail": None,
    }
    if "q" not in request.values:
        return ViewResponse("search.html.jinja", values)
    if not query.strip():
        return ViewResponse("search.html.jinja", {**values, "error": t("search.empty")}, 400)
    if len(query) > LONGEST_QUERY:
        return ViewResponse("search.html.jinja", {**values, "error": t("search.too_long", most=LONGEST_QUERY)}, 400)
    top = min(request.number("top"), MOST) if request.values.get("top", "").isdecimal() else _TOP
    mode = Mode(request.text("mode")) if request.text("mode") in list(Mode) else None
    if (progress := room.words.waits(mode)) is not None:
        finding = t("search.finding", at=progress[0], count=progress[1])
        return ViewResponse("search.html.jinja", {**values, "finding": finding})
    document, shard, source = values["doc"], values["shard"], values["source"]
    try:
        shards = room.settings.corpus.manifest.shards_to_search(
            [shard] if shard else (), [source] if source else (), values["since"]
        )
        where = Where(frozenset([document] if document else ()), shards, values["table"], values["figure"])
        answer = room.searcher.search(query, top, mode, where)
    except KopubError as error:
        detail = t.sentence(str(error))
        return ViewResponse("search.html.jinja", {**values, "error": t("search.cannot"), "detail": detail}, 400)
    way = {name: request.values[name] for name in WAY if request.values.get(name)}
    hits = [_hit(hit, request, way, answer.matches_well is False) for hit in answer.hits]
    notes = [t.sentence(note) for note in answer.notes]
    return ViewResponse("search.html.jinja", {**values, "answer": answer, "notes": notes, "hits": hits})


def _hit(hit: Hit, request: ViewRequest, way: dict[str, str], weak: bool) -> dict[str, Any]:
    page, passage = hit.page, hit.match.passage
    boxes: list[dict[str, Any]] = []
    matching: list[int] = []
    for at in hit.match.regions:
        region = page.regions[at]
        boxes.append({"region": region, "hue": hue(region.label), "held": True})
        matching.append(region.index)
    # The page lights the region of the passage, whatever way found it.
    place = "" if hit.match.best is None else f"#text-{page.regions[hit.match.best].index}"
    return {
        "weak": weak if hit.matches_well is None else not hit.matches_well,
        "source": request.sources.get(page.shard, ""),
        "name": _name(page, request),
        "also": [(_name(also, request), request.to.page(also.page_id, **way)) for also in hit.also],
        "page_id": page.page_id,
        "href": request.to.page(page.page_id, **way) + place,
        "thumb": request.to.picture(page.page_id, "small", page.sha256) if page.width else None,
        "width": page.width,
        "height": page.height,
        "boxes": boxes,
        "matching": matching,
        "has_text": bool(passage.text),
        "pieces": list(pieces(passage.text, passage.marks)),
    }


def _name(page: View, request: ViewRequest) -> str:
    if not page.doc_id or page.page_no is None:
        return page.page_id
    return request.t("page.name", document=page.doc_id, number=page.page_no)


_PAGES = 24
"""Pages in one part of a list: few, because the reason of each is read."""
_WHY = 300


def pages(room: Room, request: ViewRequest) -> ViewResponse:
    now = room.now
    counts = counted_lists(now, LISTS)
    kind = request.text("kind")
    if kind not in LISTS:
        kind = next((name for name, count in counts if count), DOUBTFUL)
    listed = now.lists[kind]
    places, pager = part(len(listed), _PAGES, request, lambda **at: request.to.pages(kind, **at))
    cards: list[ListCard] = []
    for page in listed[places]:
        lines = page.doubts if kind == DOUBTFUL else [page.reason or ""]
        why = "; ".join(request.t.reason(line)[0] for line in lines)[:_WHY]
        cards.append(page_card(page, request, why=why, walk=kind))
    return ViewResponse(
        "pages.html.jinja",
        {
            "room": "pages",
            "title": request.t(f"list.{kind}"),
            "kind": kind,
            "lists": counts,
            "pages": cards,
            "first": request.to.page(listed[0].id, walk=kind) if len(listed) else None,
            "start": places.start,
            "pager": pager,
        },
    )


_DOCUMENTS = 48
"""Documents in one part of a list."""


def documents(room: Room, request: ViewRequest) -> ViewResponse:
    corpus = room.now.corpus
    name, shard = request.text("name"), request.text("shard")
    ids = corpus.documents.ids
    if shard in corpus.shards:
        ids = [document or "" for document in corpus.pages.where(shard=shard).catalogue["doc_id"].unique().to_pylist()]
    listed = documents_named(ids, name)
    places, pager = part(
        len(listed), _DOCUMENTS, request, lambda **at: request.to.documents(name=name, shard=shard, **at)
    )
    return ViewResponse(
        "documents.html.jinja",
        {
            "room": "documents",
            "title": request.t("room.documents"),
            "name": name,
            "shard": shard,
            "shards": corpus.shards,
            "found": len(listed),
            "documents": document_cards([corpus.documents[document] for document in listed[places]], request),
            "pager": pager,
        },
    )


def versions(room: Room, request: ViewRequest) -> ViewResponse:
    now = room.now
    values = {"room": "versions", "title": request.t("room.versions"), "shards": now.replaced}
    if not now.replaced:
        return ViewResponse("versions.html.jinja", values)
    shard = request.text("shard") if request.text("shard") in now.replaced else now.replaced[0]
    diff, upgrades = now.changes(shard)
    changed = [page for page in diff.changed if page.page_id in now.corpus.pages]
    places, pager = part(len(changed), _PAGES, request, lambda **at: request.to.versions(shard=shard, **at))
    cards: list[ListCard] = []
    for page in changed[places]:
        why = request.t("versions.damage", count=page.damage.score)
        cards.append(page_card(now.corpus.page(page.page_id), request, why=why, view="versions"))
    return ViewResponse(
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


_FIGURES = 36
"""Figures in one part of the list."""


def figures(room: Room, request: ViewRequest) -> ViewResponse:
    now = room.now
    rows_of_room = now.figures
    places, pager = part(rows_of_room.num_rows, _FIGURES, request, request.to.figures)
    shown: list[dict[str, str]] = []
    for row in rows_of_room.slice(places.start, _FIGURES).to_pylist():
        page_id, region = row["page_id"], row["region"]
        if page_id in now.corpus.pages:
            shown.append(
                {
                    "picture": request.to.figure(page_id, region),
                    "href": f"{request.to.page(page_id)}#text-{region}",
                    "page": page_name(now.corpus.page(page_id), request),
                    "label": row["label"],
                }
            )
    return ViewResponse(
        "figures.html.jinja",
        {
            "room": "figures",
            "title": request.t("room.figures"),
            "found": rows_of_room.num_rows,
            "figures": shown,
            "pager": pager,
        },
    )
