"""The reading room as a web application: routes, headers and error pages."""

import hashlib
import re
import time
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

import kopub
from kopub.corrections.log import CorrectedMeanwhile
from kopub.errors import KopubError
from kopub.language import LANGUAGES
from kopub.texts.markup import printable_value
from kopub.web.api import api_of
from kopub.web.downloads import DOWNLOADS, DownloadKind, download
from kopub.web.editing import correct, refused_values, sent_form
from kopub.web.elements import markdown as rendered
from kopub.web.file_reading import LARGEST, MOST_PAGES, BusyReader, FileReader
from kopub.web.gate import ApiGate
from kopub.web.metrics import PATH as METRICS
from kopub.web.metrics import CountedRequests, RoomMetrics
from kopub.web.own_pages import LOOPBACK, ForeignRequest
from kopub.web.pictures import FULL, SIDES, NoPicture, picture_stamp
from kopub.web.requests import (
    CHOICES,
    LONGEST_QUERY,
    STATIC,
    THEMES,
    Addresses,
    ViewRequest,
    ViewResponse,
    cookie_of,
)
from kopub.web.room import Room
from kopub.web.views.document import document
from kopub.web.views.home import evaluation, home
from kopub.web.views.lists import documents, figures, pages, search, versions
from kopub.web.views.page import EDIT, PAGE, page, page_of

View = Callable[[Room, ViewRequest], ViewResponse]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
"""The header for content whose URL contains the hash of its bytes, so that it never changes."""
_A_WHILE = {"Cache-Control": "private, max-age=300"}
_A_YEAR = 31536000
_OF_THE_ROOM = re.compile(r"/(?!/)[^\\\s]*")
"""A URL path of this room; two slashes at the start would lead to another site."""
_STATIC = {"room.css": "text/css", "dark.css": "text/css", "room.js": "text/javascript", "icon.svg": "image/svg+xml"}
_VIEWS: Mapping[str, View] = {
    "/": home,
    "/documents": documents,
    "/document": document,
    "/page": page,
    "/pages": pages,
    "/figures": figures,
    "/search": search,
    "/evaluation": evaluation,
    "/versions": versions,
}
_PICTURES_AT_ONCE = 8
"""Most requests for pictures handled at once: others wait, but requests for text do not."""
_DOWNLOADS_AT_ONCE = 2
"""Most files made at once; the file of a whole document may take a while."""


def reading_room(
    room: Room, hosts: Sequence[str] = LOOPBACK, token: str = "", reader: FileReader | None = None, place: str = ""
) -> Starlette:
    """Return the web application of a room.

    All requests but corrections use GET, and nothing is recorded of who requested what. It only answers to the names
    `hosts`, so that no page of another site can read it through a name of its own. If there is a `token`, the API
    requires it. `/metrics` has the figures of all this for Prometheus. A `reader` reads uploaded files; `place` is the
    URL folder of a room that shows such a file.
    """
    # The imports for rendering are done now, so that no request waits for them.
    rendered("", lambda source: None)
    contents = {name: files("kopub.web").joinpath("static", name).read_bytes() for name in _STATIC}
    to = Addresses({name: hashlib.sha256(content).hexdigest()[:16] for name, content in contents.items()}, place)
    picturing = ThreadPoolExecutor(_PICTURES_AT_ONCE, "pictures")
    loading = ThreadPoolExecutor(_DOWNLOADS_AT_ONCE, "downloads")

    def asked_of(request: Request) -> ViewRequest:
        return ViewRequest.of(request, to, room.sources, lambda: room.now.reasons)

    def view(shown: View, request: Request) -> Response:
        view_request = asked_of(request)
        return _html(room, view_request, _shown(shown, room, view_request), reader)

    def picture(view_request: ViewRequest) -> Response:
        subject, size = page_of(room, view_request), view_request.text("size")
        size = size if size in SIDES or size == FULL else "small"
        served = room.pictures.page(picture_stamp(subject), lambda: subject.upright_bytes, size)
        is_named = view_request.text("of") == picture_stamp(subject)[:16] != ""
        return Response(served.data, 200, _HEADERS | (_FOR_EVER if is_named else _A_WHILE), served.kind)

    def figure(view_request: ViewRequest) -> Response:
        subject, number = page_of(room, view_request), view_request.number("region", 0)
        region = next((region for region in subject.regions if region.index == number), None)
        if region is None:
            raise NoPicture(view_request.t("message.nowhere"))
        served = room.pictures.crop(picture_stamp(subject), lambda: subject.upright_bytes, region.box)
        return Response(served.data, 200, _HEADERS | _A_WHILE, served.kind)

    def file(kind: DownloadKind, view_request: ViewRequest) -> Response:
        data, named = download(room, view_request, kind)
        return Response(data, 200, _HEADERS | named, kind.media_type)

    async def made_by(
        make: Callable[[ViewRequest], Response], threads: ThreadPoolExecutor, request: Request
    ) -> Response:
        """Answer with a response that is made in one of the threads."""
        try:
            return await get_running_loop().run_in_executor(threads, make, asked_of(request))
        except KopubError as error:
            return PlainTextResponse(str(error), 404, _HEADERS)

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in contents:
            return PlainTextResponse("", 404, _HEADERS)
        same = request.query_params.get("of") == to.static(name).rpartition("=")[2]
        return Response(contents[name], 200, _HEADERS | (_FOR_EVER if same else {}), _STATIC[name])

    figures_of_room = RoomMetrics(room)

    def metrics(request: Request) -> Response:
        return Response(
            generate_latest(figures_of_room.registry), 200, _HEADERS | {"Content-Type": CONTENT_TYPE_LATEST}
        )

    def nowhere(request: Request, error: Exception) -> Response:
        view_request = asked_of(request)
        status = getattr(error, "status_code", 404)
        response = _message(view_request.t("message.not_found"), view_request.t("message.nowhere"), status)
        return _html(room, view_request, response)

    @asynccontextmanager
    async def lasting(app: Starlette) -> AsyncIterator[None]:
        yield
        if reader is not None:
            reader.close()

    return Starlette(
        lifespan=lasting,
        routes=[
            *(Route(path, partial(view, shown), methods=["GET"]) for path, shown in _VIEWS.items()),
            Route("/picture", partial(made_by, picture, picturing), methods=["GET"]),
            Route("/figure", partial(made_by, figure, picturing), methods=["GET"]),
            *(
                Route(f"/{name}", partial(made_by, partial(file, kind), loading), methods=["GET"])
                for name, kind in DOWNLOADS.items()
            ),
            *([] if room.editor is None else [Route("/correct", _correction(room, asked_of), methods=["POST"])]),
            *([] if reader is None else _file_routes(room, reader, hosts, asked_of)),
            *([] if place else [Route(METRICS, metrics, methods=["GET"])]),
            Route("/display", _choose, methods=["GET"]),
            Route(f"{STATIC}/{{name}}", static, methods=["GET"]),
            Route("/favicon.ico", lambda request: Response(status_code=204, headers=_HEADERS), methods=["GET"]),
        ],
        middleware=[
            Middleware(CountedRequests, metrics=figures_of_room),
            Middleware(ApiGate, api_of=lambda: api_of(room), hosts=hosts, token=token),
            Middleware(TrustedHostMiddleware, allowed_hosts=[f"[{name}]" if ":" in name else name for name in hosts]),
        ],
        exception_handlers={404: nowhere},
    )


def _choose(request: Request) -> Response:
    """Save a choice of language or colours in a cookie, and redirect back."""
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return PlainTextResponse("refused: the request is from a page of another site", 403, _HEADERS)
    sent = request.query_params
    back = sent.get("back", "")
    answer = RedirectResponse(back if _OF_THE_ROOM.fullmatch(back) else "/", 303, _HEADERS)
    for name, among in CHOICES.items():
        if sent.get(name) in among:
            answer.set_cookie(cookie_of(name), sent[name], _A_YEAR, httponly=True, samesite="lax")
    return answer


def _correction(room: Room, asked_of: Callable[[Request], ViewRequest]) -> Callable[[Request], Any]:
    """Return the endpoint of the forms that correct a page.

    It shows the page after the correction, or why nothing was saved.
    """

    async def answer(request: Request) -> Response:
        assert room.editor is not None, "the route is there where somebody may correct"
        try:
            sent = await sent_form(request)
            room.editor.require_own_form(request.headers, sent)
        except ForeignRequest as error:
            return PlainTextResponse(f"refused: {error}", 403, _HEADERS)
        view_request, page_id = asked_of(request), sent.get("id", "")
        here = view_request.to.page(page_id, view=EDIT)
        view_request = replace(view_request, values={"id": page_id, "view": EDIT}, here=here)
        return await get_running_loop().run_in_executor(None, save, view_request, sent)

    def save(view_request: ViewRequest, sent: Mapping[str, str]) -> Response:
        store = room.settings.store
        try:
            subject = page_of(room, view_request)
        except kopub.NoSuchPage:
            return _html(room, view_request, _shown(page, room, view_request))
        try:
            correct(store, subject, sent)
            room.forget_look()
        except KopubError as error:
            response, status = _shown(page, room, view_request), 409 if isinstance(error, CorrectedMeanwhile) else 422
            if response.template == PAGE:
                values = {**response.values, **refused_values(error, store, subject, sent, view_request)}
                response = ViewResponse(PAGE, values, status)
            return _html(room, view_request, response)
        return RedirectResponse(f"{view_request.to.page(subject.id, view=EDIT)}#view", 303, _HEADERS)

    return answer


_READ, _RESULT = "/read", "/read/result"


def _file_routes(
    room: Room, reader: FileReader, hosts: Sequence[str], asked_of: Callable[[Request], ViewRequest]
) -> list[BaseRoute]:
    """Return the routes that take a file, follow its reading, and show it.

    The file is shown in a room of its own.
    """

    async def take(request: Request) -> Response:
        try:
            reader.editor.require_own_page(request.headers)
            if not 0 < int(request.headers.get("content-length", "0")) <= LARGEST:
                raise ForeignRequest("a file may have at most {size:.0f} MB", LARGEST / 1e6)
            async with request.form(max_files=1, max_fields=5) as form:
                file, fields = form.get("file"), {name: str(value) for name, value in form.items() if name != "file"}
                reader.editor.require_own_form(request.headers, fields)
                if isinstance(file, str) or file is None or not file.filename:
                    raise ForeignRequest("no file was sent")
                await get_running_loop().run_in_executor(None, reader.begin, file.filename, file.file)
        except ForeignRequest as error:
            return PlainTextResponse(f"refused: {error}", 403, _HEADERS)
        except BusyReader as error:
            return PlainTextResponse(str(error), 409, _HEADERS)
        except KopubError as error:
            return PlainTextResponse(str(error), 507, _HEADERS)
        except (ValueError, HTTPException):
            return PlainTextResponse("refused: the form cannot be read", 400, _HEADERS)
        return RedirectResponse(_READ, 303, _HEADERS)

    def follow(request: Request) -> Response:
        view_request, reading = asked_of(request), reader.reading
        if reading is None:
            return RedirectResponse("/", 303, _HEADERS)
        if reading.room is not None:
            first = reading.room.now.corpus.pages.ids[0]
            return RedirectResponse(Addresses({}, _RESULT).page(first), 303, _HEADERS)
        if reading.error:
            t = view_request.t
            return _html(
                room, view_request, _message(t("read.failed", name=reading.name), t("read.why"), 422, reading.error)
            )
        seconds = int(time.monotonic() - reading.began)
        values = {"title": view_request.t("read.title"), "name": reading.name, "seconds": seconds}
        return _html(room, view_request, ViewResponse("read.html.jinja", values))

    async def result(scope: Any, receive: Any, send: Any) -> None:
        reading = reader.reading
        if reading is None or reading.room is None:
            return await RedirectResponse(_READ, 303, _HEADERS)(scope, receive, send)
        reading.app = reading.app or reading_room(reading.room, hosts, place=_RESULT)
        await reading.app(scope, receive, send)

    return [
        Route(_READ, take, methods=["POST"]),
        Route(_READ, follow, methods=["GET"]),
        Mount(_RESULT, result),
    ]


def _shown(view: View, room: Room, request: ViewRequest) -> ViewResponse:
    """Return the response of a view, or a page that explains the error."""
    try:
        return view(room, request)
    except kopub.NoSuchPage as error:
        return _message(request.t("message.not_found"), str(error), 404)
    except KopubError as error:
        return _message(request.t("message.broken"), request.t("message.broken.says"), 500, str(error))


def _message(title: str, says: str, status: int, detail: str = "") -> ViewResponse:
    return ViewResponse("message.html.jinja", {"title": title, "says": says, "detail": detail}, status)


def _html(room: Room, request: ViewRequest, response: ViewResponse, reader: FileReader | None = None) -> Response:
    t, to = request.t, request.to
    common = {
        "t": t,
        "to": to,
        "room": "",
        "title": "",
        "path": (),
        "query": "",
        "longest_query": LONGEST_QUERY,
        "profile": room.settings.profile_name,
        "here": request.here,
        "languages": LANGUAGES,
        "themes": THEMES,
        "theme": request.theme,
        "reader": reader and reader.editor,
        "guest": request.to.home() != "/",
        "most_read": MOST_PAGES,
        "rooms": [
            ("documents", to.documents()),
            ("pages", to.pages()),
            ("figures", to.figures()),
            ("evaluation", to.evaluation()),
            ("versions", to.versions()),
        ],
    }
    environment = _environment()
    parts = environment.get_template("parts.html.jinja").make_module({"t": t, "to": to})
    page = environment.get_template(response.template).render({**common, "parts": parts, **response.values})
    headers = {**_HEADERS, "Content-Language": t.language, "Vary": "Accept-Language, Cookie"}
    if room.editor is not None or reader is not None:
        # Forms must send their origin to the room; other sites still get no referrer.
        headers["Referrer-Policy"] = "same-origin"
    # An id from a hostile file may contain half of a surrogate pair, which cannot be encoded.
    return HTMLResponse(page.encode("utf-8", "replace"), response.status, headers)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("kopub.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=printable_value,
    )
