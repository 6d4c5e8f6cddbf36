"""The search as web pages: plain HTML without scripts, for one person on one machine."""

from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from resources.errors import KopubError
from resources.pages.corpus import Corpus
from resources.search.answers import Answer, CannotSearch
from resources.search.highlight import Passage, QueryWords
from resources.search.page_view import PageView
from resources.search.pictures import SIDES, NoPicture, Pictures
from resources.search.search_options import MOST, Mode
from resources.search.searcher import Searcher

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

_HOSTS = ["127.0.0.1", "localhost"]
"""Names that this machine calls itself; another one is a foreign site that had its name resolve to here."""
_TOP = 10
_LONGEST_QUERY = 2000
"""Characters: some servers and browsers refuse longer addresses."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
"""For a picture whose address has the hash of its page's bytes: it never changes."""


def search_app(searcher: Searcher, corpus: Corpus) -> "Starlette":
    """The search of a corpus as a web application: `/`, `/page`, `/picture` and `/style.css`, all of them GET."""
    from jinja2 import Environment, PackageLoader
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, PlainTextResponse, Response
    from starlette.routing import Route

    pictures = Pictures(corpus)
    templates = Environment(loader=PackageLoader("resources.search", "."), autoescape=True, trim_blocks=True)
    style = files("resources.search").joinpath("style.css").read_text("utf-8")

    def html(request: "Request", template: str, status: int = 200, **values: Any) -> Response:
        asked = {"query": request.query_params.get("q", ""), "mode": request.query_params.get("mode")}
        form = {"longest": _LONGEST_QUERY, "choices": searcher.choices}
        return HTMLResponse(templates.get_template(template).render(**asked, **form, **values), status, _HEADERS)

    def results(request: "Request") -> Response:
        if "q" not in request.query_params:
            return html(request, "results.html.jinja")
        try:
            answer = searcher.search(_query(request), _top(request), _mode(request))
        except KopubError as error:
            return html(request, "results.html.jinja", 400, error=str(error))
        return html(request, "results.html.jinja", answer=answer, hits=list(_items(answer, pictures)))

    def page(request: "Request") -> Response:
        try:
            shown, words = _page(searcher, request), QueryWords.of(_query(request))
        except KopubError as error:
            return html(request, "results.html.jinja", 404, error=str(error))
        spans = [tuple((start, end) for start, end, _ in words.marks(region.text)) for region in shown.regions]
        texts = [Passage(region.text, marks) for region, marks in zip(shown.regions, spans, strict=True)]
        return html(
            request,
            "page.html.jinja",
            page=shown,
            texts=list(zip(shown.regions, map(pieces, texts), strict=True)),
            boxes=list(zip(shown.regions, map(bool, spans), strict=True)),
            no_picture=pictures.problem(shown),
            address=_picture(shown, "large"),
        )

    def picture(request: "Request") -> Response:
        size = request.query_params.get("size", "small")
        try:
            shown = _page(searcher, request)
            jpeg = pictures.jpeg(shown, size if size in SIDES else "small")
        except NoPicture as error:
            return PlainTextResponse(str(error), 404, _HEADERS)
        same_bytes = request.query_params.get("of") == _bytes_of(shown)
        return Response(jpeg, 200, _HEADERS | (_FOR_EVER if same_bytes else {}), "image/jpeg")

    def stylesheet(request: "Request") -> Response:
        return Response(style, 200, _HEADERS, "text/css")

    routes = [
        Route("/", results, methods=["GET"]),
        Route("/page", page, methods=["GET"]),
        Route("/picture", picture, methods=["GET"]),
        Route("/style.css", stylesheet, methods=["GET"]),
        Route("/favicon.ico", lambda request: Response(status_code=204), methods=["GET"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS)])


def pieces(passage: Passage) -> Iterator[tuple[bool, str]]:
    """The text of a passage in order, cut where a mark begins or ends: (marked, text)."""
    at = 0
    for start, end in passage.marks:
        yield False, passage.text[at:start]
        yield True, passage.text[start:end]
        at = end
    yield False, passage.text[at:]


def _items(answer: Answer, pictures: Pictures) -> Iterator[dict[str, Any]]:
    for hit in answer.hits:
        yield {
            "hit": hit,
            "page": hit.page,
            "pieces": list(pieces(hit.match.passage)),
            "matching": [hit.page.regions[at].index for at in hit.match.regions],
            "boxes": [(region, at in hit.match.regions) for at, region in enumerate(hit.page.regions)],
            "no_picture": pictures.problem(hit.page),
            "address": _picture(hit.page, "small"),
            "more": "/page?" + urlencode({**_which(hit.page), "q": answer.query}),
        }


def _picture(page: PageView, size: str) -> str:
    return "/picture?" + urlencode({**_which(page), "of": _bytes_of(page), "size": size})


def _bytes_of(page: PageView) -> str:
    return (page.sha256 or "")[:16]


def _which(page: PageView) -> dict[str, str]:
    return {"shard": page.shard, "id": page.page_id}


def _page(searcher: Searcher, request: "Request") -> PageView:
    """The page that an address names. Raises `NoPicture` when the corpus does not have it."""
    page = searcher.page(request.query_params.get("shard", ""), request.query_params.get("id", ""))
    if page.page_idx is None and not page.regions:
        raise NoPicture(f"there is no page {page.page_id!r} in {page.shard!r}")
    return page


def _query(request: "Request") -> str:
    query = request.query_params.get("q", "")
    if len(query) > _LONGEST_QUERY:
        raise CannotSearch(f"the query has {len(query):,} characters; shorten it to {_LONGEST_QUERY:,}")
    return query


def _mode(request: "Request") -> Mode | None:
    asked = request.query_params.get("mode")
    if asked and asked not in list(Mode):
        raise CannotSearch(f"{asked!r} is no way to search; choose one of {', '.join(Mode)}")
    return Mode(asked) if asked else None


def _top(request: "Request") -> int:
    """How many pages an address asks for; the usual number when it is none, and never out of bounds."""
    asked = request.query_params.get("top", "")
    # Python refuses to read a number of thousands of digits.
    return min(max(int(asked[: len(str(MOST)) + 1]), 1), MOST) if asked.isdecimal() else _TOP
