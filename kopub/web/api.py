"""The JSON API of the reading room, under /api/v1.

It gives programs in any language the functions of the package `kopub`. FastAPI is loaded at the first request, so that
looking at pages does without it.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import kopub
from kopub.api.search import answer_of
from kopub.errors import KopubError, counted, did_you_mean, quoted
from kopub.search.answer import CannotSearch, NotInCorpus
from kopub.search.options import MOST, Mode, Where
from kopub.states import State
from kopub.web.elements import origin_of
from kopub.web.gate import PREFIX, PROBLEM, ApiProblem, ProblemDetails, problem_response
from kopub.web.pictures import NoPicture, picture_stamp
from kopub.web.requests import LONGEST_QUERY, Addresses
from kopub.web.room import Room

_LONGEST_ID = 1024
_MOST_PAGES = 100
"""Most pages in the markdown of one answer."""


def api_of(room: Room) -> FastAPI:
    """Return the application that answers under /api/v1 from a room."""

    def require_known(request: Request) -> None:
        """Raise `ApiProblem` for a parameter that the path does not have, such as a mistyped filter."""
        names = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
        for name in request.query_params:
            if name not in names:
                raise ApiProblem(400, f"there is no parameter {quoted(name)}{did_you_mean(name[:_LONGEST_ID], names)}")

    app = FastAPI(
        title="KoPub",
        version="1",
        description="A corpus that KoPub read: documents, pages, regions, texts, pictures, search and lineage.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        dependencies=[
            Depends(HTTPBearer(auto_error=False, description="Needed if other machines have access.")),
            Depends(require_known),
        ],
        responses={"default": {"description": "A problem (RFC 9457)", "content": {PROBLEM: {"schema": _REFERENCE}}}},
    )
    answers = ApiAnswers(room)
    for answer in (answers.corpus, answers.documents, answers.document, answers.pages, answers.page, answers.regions):
        app.get(f"{PREFIX}/{answer.__name__}")(answer)
    for answer in (answers.search, answers.lineage, answers.scores):
        app.get(f"{PREFIX}/{answer.__name__}")(answer)
    app.get(f"{PREFIX}/markdown", **_sent("text/markdown", {"type": "string"}))(answers.markdown)
    app.get(f"{PREFIX}/picture", **_sent("image/*", {"type": "string", "format": "binary"}))(answers.picture)

    def problem(request: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            wrong = [f"{'.'.join(map(str, fault['loc'][1:]))}: {fault['msg']}" for fault in error.errors()]
            return problem_response(400, "; ".join(wrong))
        if isinstance(error, HTTPException):
            detail = _UNANSWERED.get(error.status_code, error.detail)
            return problem_response(error.status_code, detail, error.headers)
        if isinstance(error, ApiProblem):
            return problem_response(error.status, str(error))
        if isinstance(error, kopub.NoSuchPage | NoPicture):
            return problem_response(404, str(error))
        return problem_response(500, str(error) if isinstance(error, KopubError) else "the server failed: see its log")

    for kind in (RequestValidationError, HTTPException, KopubError, Exception):
        app.add_exception_handler(kind, problem)

    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        schema["components"]["schemas"].setdefault(ProblemDetails.__name__, ProblemDetails.model_json_schema())
        return schema

    app.openapi = openapi
    return app


_UNANSWERED = {
    404: f"there is nothing at this address: {PREFIX}/openapi.json describes every path",
    405: "the API is read-only: ask with GET",
}
"""What to do, for errors whose framework message only repeats the status."""
_REFERENCE = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}


def _sent(kind: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the registration arguments of a path that does not answer in JSON."""
    return {
        "response_class": Response,
        "response_model": None,
        "responses": {200: {"content": {kind: {"schema": schema}}}},
    }


class _Answer(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


T = TypeVar("T")


class ApiList(_Answer, Generic[T]):
    """A part of a list; `next` is the cursor of the next part, null after the last."""

    items: list[T]
    count: int
    next: str | None


class ApiCorpus(_Answer):
    """A corpus: its name, location and size."""

    name: str
    location: str
    profile: str
    notes: list[str]
    shards: list[str]
    documents: int
    pages: int
    states: dict[State, int]


class ApiDocument(_Answer):
    """A document, and its pages by state; `link` leads to it in the room."""

    id: str
    pages: int
    states: dict[State, int]
    link: str


class ApiPageLine(_Answer):
    """A page as it is listed; `link` leads to it in the room."""

    id: str
    document: str
    number: int | None
    shard: str
    state: State
    doubt: float | None
    link: str


class ApiOrigin(_Answer):
    """The file that a page comes from."""

    source: str | None
    file: str
    sha256: str | None
    page: int | None
    dpi: float | None
    renderer: str | None


class ApiPage(ApiPageLine):
    """A page with its text; `previous` and `next` are ids of its document.

    `origin_problem` says why the origin is not available.
    """

    width: int | None
    height: int | None
    sha256: str | None
    license: str | None
    source: str | None
    origin: ApiOrigin | None
    origin_problem: str | None
    reason: str | None
    states: dict[str, State]
    doubts: list[str]
    text: str
    previous: str | None
    next: str | None


class ApiRegion(_Answer):
    """A region, with its box in pixels and on a grid.

    Boxes are (x1, y1, x2, y2), in pixels of the upright page and on a grid of 0 to 1000.
    """

    index: int
    label: str
    task: str
    score: float | None
    box: tuple[float, float, float, float]
    box_2d: tuple[int, int, int, int]
    polygon: list[tuple[float, float]] | None
    content: str | None
    text: str
    state: State | None
    reason: str | None
    origin: str | None


class ApiHit(_Answer):
    """A page that answers the question, its passage, and the regions that contain the words.

    `also` are pages with the same picture.
    """

    rank: int
    score: float
    matches_well: bool | None
    page: ApiPageLine
    also: list[ApiPageLine]
    passage: str
    marks: list[tuple[int, int]]
    regions: list[ApiRegion]


class ApiFound(_Answer):
    """The answer to a question, best page first."""

    query: str
    mode: str
    chosen: str
    matches_well: bool | None
    searched: int
    notes: list[str]
    hits: list[ApiHit]


class ApiStep(_Answer):
    """A step of lineage: how a table's row was made."""

    asset: str
    state: State
    reason: str | None
    engine: str | None
    model: str | None
    revision: str | None
    parameters: dict[str, Any]
    versions: dict[str, Any]
    code_version: dict[str, Any]
    recipe: str | None
    fingerprint: str
    run_id: str | None
    made_at: datetime | None
    gpu_seconds: float | None


class ApiScore(_Answer):
    """A mean over `samples`; its `kind` is reading (`of` a benchmark) or finding (`of` a retriever)."""

    kind: str
    of: str
    metric: str
    value: float
    samples: int


Id = Annotated[str, Field(max_length=_LONGEST_ID)]
Cursor = Annotated[str, Field(max_length=2048, description="`next` of the previous part; empty for the first.")]
Limit = Annotated[int, Field(ge=1, le=200)]
Question = Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY)]
PageNumber = Annotated[int, Field(ge=1, le=10**7)]


class ApiAnswers:
    """The endpoints of the API on a room, which threads may share."""

    def __init__(self, room: Room) -> None:
        self._room = room

    @property
    def _corpus(self) -> kopub.Corpus:
        return self._room.now.corpus

    def corpus(self) -> ApiCorpus:
        """Return the name, location and size of the corpus."""
        corpus = self._corpus
        return ApiCorpus(
            name=self._room.name,
            location=corpus.location,
            profile=self._room.settings.profile_name,
            notes=list(corpus.notes),
            shards=list(corpus.shards),
            documents=len(corpus.documents),
            pages=len(corpus.pages),
            states=corpus.pages.states,
        )

    def documents(self, limit: Limit = 50, cursor: Cursor = "") -> ApiList[ApiDocument]:
        """List the documents, in the order of their first pages."""
        return _part(self._corpus.documents, limit, cursor, _document)

    def document(self, id: Id) -> ApiDocument:
        """Return a document; the empty id stands for the pages without one."""
        return _document(self._corpus.documents[id])

    def pages(
        self,
        document: Id | None = None,
        state: State | None = None,
        shard: Id | None = None,
        doubtful: bool = False,
        limit: Limit = 50,
        cursor: Cursor = "",
    ) -> ApiList[ApiPageLine]:
        """List the pages of the corpus or of a document in order, or only the doubtful ones, worst first."""
        corpus = self._corpus
        if shard is not None and shard not in corpus.shards:
            raise ApiProblem(404, f"there is no shard {shard!r}{did_you_mean(shard, corpus.shards)}")
        selection = corpus.pages if document is None else corpus.documents[document].pages
        if state is not None or shard is not None:
            selection = selection.where(() if state is None else state, shard)
        return _part(selection.doubtful if doubtful else selection, limit, cursor, _line)

    def page(self, id: Id) -> ApiPage:
        """Return a page with its text and where it comes from."""
        page = self._corpus.page(id)
        origin, problem = origin_of(page)
        values = {
            **dict(_line(page)),
            "previous": page.previous and page.previous.id,
            "next": page.next and page.next.id,
            "origin": origin,
            "origin_problem": problem,
        }
        own = {name: getattr(page, name) for name in ApiPage.model_fields if name not in values}
        return ApiPage.model_validate({**values, **own})

    def regions(self, page: Id) -> list[ApiRegion]:
        """Return the regions of a page in reading order, with what was read."""
        return [ApiRegion.model_validate(region) for region in self._corpus.page(page).regions]

    def markdown(
        self, page: Id | None = None, document: Id | None = None, first: PageNumber = 1, last: PageNumber | None = None
    ) -> Any:
        """Return a page, or a range of the pages of a document counted from 1, as markdown."""
        if (page is None) == (document is None):
            raise ApiProblem(400, "name either a page or a document")
        if page is not None:
            text = self._corpus.page(page).markdown
        else:
            pages = pages_between(self._corpus.documents[document or ""], first, last)
            if len(pages) > _MOST_PAGES:
                raise ApiProblem(400, f"at most {_MOST_PAGES} pages at once: name the first and the last")
            text = kopub.Document(document or "", pages).markdown
        return Response(text.encode("utf-8", "replace"), 200, media_type="text/markdown; charset=utf-8")

    def picture(self, page: Id, size: Literal["thumb", "small", "large", "full"] = "small") -> Any:
        """Return a picture of the upright page; its longer side has 360, 900 or 1800 pixels, or full size."""
        subject = self._corpus.page(page)
        served = self._room.pictures.page(picture_stamp(subject), lambda: subject.upright_bytes, size)
        return Response(served.data, media_type=served.kind)

    def search(
        self,
        query: Question | None = None,
        limit: Annotated[int, Field(ge=1, le=MOST)] = 10,
        mode: Mode | None = None,
        document: Id | None = None,
        shard: Id | None = None,
        has_table: bool = False,
        has_figure: bool = False,
        scripts: Annotated[str, Field(max_length=200, description="Separated by commas: hangul,latin.")] = "",
        q: Annotated[Question | None, Field(deprecated=True, description="The older name of `query`.")] = None,
    ) -> ApiFound:
        """Find the pages that answer a question: in the corpus, a document or a shard, or mainly in some scripts."""
        query = q if query is None else query
        if query is None:
            raise ApiProblem(400, "query: name the question")
        if waits := self._room.words.waits(mode):
            raise ApiProblem(503, f"splitting the pages into words: {waits[0]} of {waits[1]} shards so far; ask again")
        documents = frozenset(() if document is None else (document,))
        shards = frozenset(() if shard is None else (shard,))
        names = frozenset(map(str.strip, scripts.split(","))) - {""}
        where = Where(documents, shards, has_table, has_figure, names)
        try:
            answer_found = self._room.searcher.search(query, limit, mode, where)
        except CannotSearch as error:
            raise ApiProblem(404 if isinstance(error, NotInCorpus) else 400, str(error)) from None
        answer = answer_of(answer_found, self._room.page_found)
        hits: list[ApiHit] = []
        for hit in answer:
            hits.append(
                ApiHit(
                    rank=hit.rank,
                    score=hit.score,
                    matches_well=hit.matches_well,
                    page=_line(hit.page),
                    also=[*map(_line, hit.also)],
                    passage=hit.passage,
                    marks=list(hit.marks),
                    regions=[ApiRegion.model_validate(region) for region in hit.regions],
                )
            )
        values = {name: getattr(answer, name) for name in ApiFound.model_fields if name != "hits"}
        return ApiFound.model_validate({**values, "hits": hits})

    def lineage(self, page: Id) -> list[ApiStep]:
        """Return how the row of a page in each table was made."""
        return [ApiStep.model_validate(step) for step in self._corpus.page(page).lineage]

    def scores(self) -> list[ApiScore]:
        """Return what was measured on the current tables."""
        return [ApiScore.model_validate(score) for score in self._room.now.scores]


_TO = Addresses({})


def pages_between(document: kopub.Document, first: int, last: int | None) -> kopub.Pages:
    """Return a range of the pages of a document, counted from 1.

    Raises `ApiProblem` if there is no such range.
    """
    if last is not None and last < first:
        raise ApiProblem(400, "the last page comes before the first")
    if first > len(document):
        has = f"the document has {counted(len(document), 'page')}, counted from 1, and first is {first}"
        raise ApiProblem(400, f"{has}: name a page by its id instead")
    return document.pages[first - 1 : last]


def _line(page: kopub.Page) -> ApiPageLine:
    own = {name: getattr(page, name) for name in ("id", "number", "shard", "state", "doubt")}
    return ApiPageLine(**own, document=page.document.id, link=_TO.page(page.id))


def _document(document: kopub.Document) -> ApiDocument:
    return ApiDocument(id=document.id, pages=len(document), states=document.states, link=_TO.document(document))


S = TypeVar("S", kopub.Document, kopub.Page)


def _part(members: Sequence[S], limit: int, cursor: str, as_item: Callable[[S], T]) -> ApiList[T]:
    """Return the part of a list after a cursor, which names the last item before it, and its place."""
    start, last = 0, None
    if cursor:
        try:
            start, last = json.loads(base64.b64decode(cursor.encode(), b"-_", validate=True))
        except (binascii.Error, ValueError, TypeError, RecursionError):
            start = 0
        # A flag of JSON would pass for a number.
        if type(start) is not int or not (0 < start <= len(members) and members[start - 1].id == last):
            raise ApiProblem(
                400, "the cursor belongs to another list, or the list has changed: start again without one"
            )
    items = members[start : start + limit]
    end = start + len(items)
    after = json.dumps([end, items[-1].id]) if end < len(members) else None
    following = None if after is None else base64.urlsafe_b64encode(after.encode()).decode()
    return ApiList(items=[as_item(item) for item in items], count=len(members), next=following)
