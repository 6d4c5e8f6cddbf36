"""The view of a page: its picture, reading, history and earlier versions."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import kopub
from kopub.errors import KopubError
from kopub.recognition.regions import crop_index
from kopub.search.answer import QueryWords
from kopub.texts.text_quality import DOUBTFUL
from kopub.web import elements
from kopub.web.answers import answers_of, explained, page_scores
from kopub.web.editing import edit_view
from kopub.web.elements import document_name, page_name, rendered
from kopub.web.pictures import FULL, picture_stamp
from kopub.web.requests import LONGEST_QUERY, ViewRequest, ViewResponse
from kopub.web.room import LISTS, Room, page_versions
from kopub.web.views.document import text_address
from kopub.web.views.lists import WAY

TEXT, MARKDOWN, HISTORY, ANSWER, VERSIONS, EDIT = "text", "markdown", "history", "answer", "versions", "edit"
PAGE = "page.html.jinja"
_WAY = ("walk", *WAY)
"""The parts of a URL that say how a person came to a page: through a list or a search."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The way that a person came: its name, neighbouring pages, and the way back.

    `at` is the place of the page on it, from 1; None if the person cannot continue along it.
    """

    name: str
    back: str
    back_name: str
    at: int | None = None
    count: int = 0
    previous: str | None = None
    next: str | None = None


def page(room: Room, request: ViewRequest) -> ViewResponse:
    if room.editor is not None and request.text("view") == EDIT:
        # An editor sees the page as it is, not as it was a moment ago.
        room.look_again()
    subject, now = page_of(room, request), room.now
    if request.text("number").isdecimal():
        number = request.number("number")
        subject = next((other for other in subject.document.pages if other.number == number), subject)
    views = [TEXT, MARKDOWN, HISTORY]
    if subject.id in now.known_answers:
        views.append(ANSWER)
    if subject.shard in now.replaced:
        views.append(VERSIONS)
    if room.editor is not None:
        views.append(EDIT)
    view = request.text("view") if request.text("view") in views else TEXT
    t, to, document = request.t, request.to, subject.document
    way = {name: request.values[name] for name in _WAY if request.values.get(name)}
    lasting = {**way, **({"view": view} if view != TEXT else {})}
    # A neighbour in the document drops the list, because the person leaves the way through it.
    off_the_list = {name: value for name, value in lasting.items() if name != "walk"}
    problem = None if subject.width else subject.reason or ""
    try:
        subject.image_bytes  # noqa: B018
    except KopubError as error:
        problem = str(error)
    neighbours: dict[str, kopub.Page | None] = {"previous": subject.previous, "next": subject.next}
    for name, other in zip(("document_before", "document_after"), now.documents_beside(document.id), strict=True):
        neighbours[name] = None if other is None else other.pages[0]
    is_checked = subject.id in now.checked
    scores: list[dict[str, Any]] = []
    for score in page_scores(now.scored, subject.id, is_checked):
        shown = {"value": f"{score.value:.3f}", "href": to.page(subject.id, **way, view=ANSWER)}
        scores.append({**asdict(score), **shown, "says": explained(score.metric, t)})
    words = QueryWords.of(request.text("q")[:LONGEST_QUERY]) if way.get("q") else None
    return ViewResponse(
        PAGE,
        {
            "room": "documents",
            "title": page_name(subject, request),
            "path": [
                (t("room.documents"), to.documents()),
                (document_name(document, request), to.document(document)),
                (subject.id if subject.number is None else t("page.short", number=subject.number), None),
            ],
            "page": subject,
            "query": request.text("q")[:LONGEST_QUERY],
            "walk": _walk(room, subject, request, lasting),
            **{name: other and to.page(other.id, **off_the_list) for name, other in neighbours.items()},
            "scores": scores,
            # The fields of the form that goes to another page of the document, if there is one.
            "jump": {} if subject.number is None or len(document) < 2 else {"id": subject.id, **off_the_list},
            "in_text": text_address(subject, request),
            "doubtful": (subject.doubt or 0) >= DOUBTFUL and not is_checked,
            "doubts": [t.reason(line) for line in subject.doubts] if (subject.doubt or 0) > 0 else [],
            "reason": t.reason(subject.reason or ""),
            "no_picture": problem,
            "picture": to.picture(subject.id, "small", picture_stamp(subject)),
            "sharp": to.picture(subject.id, "large", picture_stamp(subject)),
            "full": to.picture(subject.id, FULL, picture_stamp(subject)),
            "regions": [rendered(region, words) for region in subject.regions],
            "view": view,
            "views": [(name, to.page(subject.id, **way, view=name if name != TEXT else "")) for name in views],
            **(_MORE[view](room, subject, request) if view in _MORE else {}),
        },
    )


def page_of(room: Room, request: ViewRequest) -> kopub.Page:
    """Return the page that a URL names. Raises `NoSuchPage`."""
    corpus, page_id = room.now.corpus, request.text("id")
    if page_id not in corpus.pages:
        raise kopub.NoSuchPage(request.t("message.no_page", id=page_id or "?"))
    return corpus.page(page_id)


def _walk(room: Room, page: kopub.Page, request: ViewRequest, lasting: Mapping[str, str]) -> Walk | None:
    t, to = request.t, request.to
    kind = request.text("walk")
    if kind in LISTS:
        ids = room.now.lists[kind].ids
        at = ids.index(page.id) if page.id in ids else None
        name, back = t(f"list.{kind}"), to.pages(kind)
        if at is None:
            return Walk(name, back, t("walk.back"))
        before = to.page(ids[at - 1], **lasting) if at else None
        after = to.page(ids[at + 1], **lasting) if at + 1 < len(ids) else None
        return Walk(name, back, t("walk.back"), at + 1, len(ids), before, after)
    if query := request.text("q")[:LONGEST_QUERY]:
        way = {name: value for name, value in lasting.items() if name in _WAY}
        back = f"{to.search(**way)}#{quote(page.id, errors='replace')}"
        return Walk(t("walk.results", query=query), back, t("walk.back_to_results"))
    return None


def _markdown(room: Room, page: kopub.Page, request: ViewRequest) -> dict[str, Any]:
    indices = {region.index for region in page.regions}

    def picture(source: str) -> str | None:
        try:
            region = crop_index(source)
        except ValueError:
            return None
        return request.to.figure(page.id, region) if region in indices else None

    text = page.markdown
    return {"rendered": elements.markdown(text, picture) if text.strip() else None, "source": text}


def _history(room: Room, page: kopub.Page, request: ViewRequest) -> dict[str, Any]:
    origin, problem = elements.origin_of(page)
    several = len(room.settings.corpus.manifest.sources) > 1
    steps: list[dict[str, Any]] = []
    for step in page.lineage:
        facts = {
            "reason": step.reason,
            "engine": step.engine,
            "model": step.model,
            "revision": step.revision,
            "made_at": step.made_at and f"{step.made_at:%Y-%m-%d %H:%M:%S} UTC",
            "run": step.run_id,
            "recipe": step.recipe,
            "code": json.dumps(step.code_version, ensure_ascii=False) if step.code_version else None,
            "seconds": f"{step.gpu_seconds:.3f}" if step.gpu_seconds else None,
        }
        settings = {**step.parameters, **step.versions}
        steps.append(
            {
                "asset": step.asset,
                "state": step.state.value,
                "run": room.settings.reading_room.of_run(step.run_id) if step.run_id else None,
                "facts": [(name, value) for name, value in facts.items() if value],
                "parameters": json.dumps(settings, ensure_ascii=False, indent=1, default=str) if settings else "",
            }
        )
    return {"steps": steps, "origin": origin, "origin_problem": problem, "several_sources": several}


def _versions(room: Room, page: kopub.Page, request: ViewRequest) -> dict[str, Any]:
    try:
        return {"diff": page_versions(room.settings.store, page.shard, page.id), "problem": None}
    except KopubError as error:
        return {"diff": None, "problem": str(error)}


def _edit(room: Room, page: kopub.Page, request: ViewRequest) -> dict[str, Any]:
    assert room.editor is not None, "the view is there where somebody may correct"
    return edit_view(room.editor, room.settings.store, page, request)


_MORE: Mapping[str, Callable[[Room, kopub.Page, ViewRequest], dict[str, Any]]] = {
    MARKDOWN: _markdown,
    HISTORY: _history,
    ANSWER: lambda room, page, request: {
        "answers": answers_of(room.now.scored, page, room.settings.store, request.t),
    },
    VERSIONS: _versions,
    EDIT: _edit,
}
"""The values that a view needs besides the page."""
