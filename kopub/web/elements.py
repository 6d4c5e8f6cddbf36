"""Pages, documents and regions as the views show them."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup
from mdit_py_plugins.dollarmath import dollarmath_plugin

import kopub
from kopub.documents.joins import one_line, paragraphs
from kopub.documents.searchable_pdf import PlacedLine, placed_lines
from kopub.errors import KopubError
from kopub.layout.regions import Task
from kopub.recognition.regions import TextOrigin
from kopub.search.answer import QueryWords
from kopub.states import LOST, State
from kopub.texts.markup import printable
from kopub.texts.text_quality import DOUBTFUL
from kopub.web.requests import ViewRequest
from kopub.web.room import Now

if TYPE_CHECKING:
    from kopub.pages.page_reader import Origin


@dataclass(frozen=True, slots=True)
class ListCard:
    """A page in a list: name, state, picture's URL, and why it is listed.

    `source` is given if the corpus has several.
    """

    page_id: str
    name: str
    state: str
    is_doubtful: bool
    thumb: str | None
    href: str
    why: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Cover:
    """A document in a list: its first page with the document's name, and two counts.

    `pages` counts all its pages; `calls` counts the pages that a person should look at.
    """

    cover: ListCard
    href: str
    pages: int
    calls: int


def page_name(page: kopub.Page, request: ViewRequest) -> str:
    """Return the name of a page for people: its document and number, or its id."""
    document, number = page.document.id, page.number
    return page.id if number is None or not document else request.t("page.name", document=document, number=number)


def document_name(document: kopub.Document, request: ViewRequest) -> str:
    return document.id or request.t("document.none")


def page_card(page: kopub.Page, request: ViewRequest, name: str = "", why: str = "", **way: object) -> ListCard:
    """Return the card of a page, whose link keeps the `way` that a person came."""
    # A page whose bytes cannot be used has no picture.
    has_picture = page.state not in LOST or (page.sha256 is not None and page.width is not None)
    return ListCard(
        page.id,
        name or page_name(page, request),
        page.state.value,
        (page.doubt or 0) >= DOUBTFUL,
        request.to.picture(page.id, "thumb") if has_picture else None,
        request.to.page(page.id, **way),
        why,
        request.sources.get(page.shard, ""),
    )


def origin_of(page: kopub.Page) -> "tuple[Origin | None, str | None]":
    """Return the origin of a page, or None and why it is not available."""
    try:
        return page.origin, None
    except KopubError as error:
        return None, str(error)


def documents_named(documents: Sequence[str], name: str) -> list[str]:
    """Return the ids that contain `name`, whatever its case and its form of Hangul."""

    def plain(text: str) -> str:
        return unicodedata.normalize("NFC", text).casefold()

    wanted = plain(name.strip())
    return [document for document in documents if wanted in plain(document)]


def document_cards(documents: Sequence[kopub.Document], request: ViewRequest) -> list[Cover]:
    cards = []
    for document in documents:
        first = page_card(document.pages[0], request, document_name(document, request))
        # The first page's state could be mistaken for the document's.
        cover = replace(first, state=State.OK.value, is_doubtful=False)
        pages = document.pages
        calls = len({*pages.where(state=(State.PARTIAL, *LOST)).ids, *pages.doubtful.ids})
        cards.append(Cover(cover, request.to.document(document), len(document), calls))
    return cards


def counted_lists(now: Now, kinds: Sequence[str]) -> list[tuple[str, int]]:
    """Return the lists of pages to look at, with the number of pages in each."""
    return [(kind, len(now.lists[kind])) for kind in kinds]


Piece = tuple[bool, str]
"""(marked, text)."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """A region as a page shows it.

    `held` says that it has words of the question. `table` is its HTML if a table was read; `paragraphs` are its running
    text, cut around words of the question, and code unchanged. `lines` are shown over the picture, in pixels of the
    upright page. `from_pdf` says that the text is from the PDF's text layer.
    """

    region: kopub.Region
    hue: str
    held: bool
    content: str
    paragraphs: Sequence[tuple[Sequence[Piece], bool]]
    """(pieces, whether it is code)."""
    table: Markup | None
    lines: Sequence[PlacedLine]
    from_pdf: bool


def rendered(region: kopub.Region, words: QueryWords | None) -> Rendering:
    """Return what a page shows of a region, with the question's words marked."""
    content = printable(region.content or "")
    running: list[tuple[Sequence[Piece], bool]] = []
    is_held = False
    for text, is_code in _paragraphs(region):
        marks = [] if words is None else [(start, end) for start, end, _ in words.marks(text)]
        running.append((list(pieces(text, marks)), is_code))
        is_held = is_held or bool(marks)
    return Rendering(
        region,
        hue=hue(region.label),
        held=is_held,
        content=content,
        paragraphs=running,
        table=table(content) if is_table(content) else None,
        lines=placed_lines(region.text[:MOST], region.box),
        from_pdf=region.origin in (TextOrigin.TEXT_LAYER, TextOrigin.DOCUMENT),
    )


def _paragraphs(region: kopub.Region) -> Iterator[tuple[str, bool]]:
    """Yield the paragraphs of a region, and whether each is code.

    Printed lines are joined as in exports.
    """
    content = unicodedata.normalize("NFC", region.content or "")
    if region.task in (Task.TABLE, Task.FORMULA) or "<table" in content.lower() or len(content) > MOST:
        yield region.text, False
    elif hue(region.label) == "title":
        yield one_line(content), False
    else:
        for paragraph in paragraphs(content, region.box.width, region.box.height):
            yield f"{paragraph.bullet} {paragraph.text}".lstrip(), paragraph.is_code


def pieces(text: str, marks: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    """Yield the text in order, cut at the start and end of every mark."""
    at = 0
    for start, end in marks:
        yield False, text[at:start]
        yield True, text[start:end]
        at = end
    yield False, text[at:]


_TITLES = ("doc_title", "paragraph_title", "figure_title")
_TEXTS = ("text", "vertical_text", "abstract", "content", "aside_text")
_FORMULAS = ("display_formula", "inline_formula", "formula_number")
_PICTURES = ("image", "chart", "seal", "header_image", "footer_image")
_MARGINS = ("header", "footer", "number", "footnote", "vision_footnote")

_HUES = {
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(_TITLES, "title"),
    "table": "table",
    **dict.fromkeys(_FORMULAS, "formula"),
    **dict.fromkeys(_PICTURES, "picture"),
    **dict.fromkeys(_MARGINS, "margin"),
}


def hue(label: str) -> str:
    """Return the colour class of a label: text, title, table, formula, picture, margin or other."""
    return _HUES.get(label, "other")


MOST = 100_000
"""Most characters that are rendered; a longer text, which no page has, is shown unrendered."""
_INLINE = {"b", "br", "em", "i", "s", "strong", "sub", "sup", "u"}
_TABLE = {"caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
_BLOCKS = {"blockquote", "code", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p", "pre", "ul"}
_SPANS = {"colspan": 100, "rowspan": 1000}
"""Most columns and rows of a cell, because a browser lays out every one."""
_HEADINGS = 2
"""Levels by which a page's headings are lowered, below the names of the page and the view."""


def is_table(content: str) -> bool:
    """Return whether the content of a region is a table in HTML."""
    return content.lstrip().startswith("<table") and len(content) <= MOST


def table(content: str) -> Markup:
    """Return a table with only cells and superscript, subscript or emphasized text."""
    return _cleaned(content, _TABLE | _INLINE, lambda source: None)


def markdown(text: str, picture: Callable[[str], str | None], most: int = MOST, comments: bool = False) -> Markup:
    """Return markdown as HTML, or unrendered if longer than `most` characters.

    `picture` returns the URL for an image's link target, or None to leave out the image. `comments` keeps HTML
    comments, none of which may come from a reading.
    """
    if len(text) > most:
        return Markup("<pre>{}</pre>").format(text)
    return _cleaned(_renderer().render(text), _TABLE | _INLINE | _BLOCKS, picture, comments)


def _cleaned(html: str, tags: set[str], picture: Callable[[str], str | None], comments: bool = False) -> Markup:
    def attribute(tag: str, name: str, value: str) -> str | None:
        if name == "src":
            return picture(value)
        if name in _SPANS:
            return value if value.isdecimal() and len(value) < 5 and 0 < int(value) <= _SPANS[name] else None
        return value

    attributes = {"td": set(_SPANS), "th": set(_SPANS), "img": {"src", "alt"}, "ol": {"start"}}
    cleaned = nh3.clean(
        html,
        tags=tags,
        attributes=attributes,
        attribute_filter=attribute,
        set_tag_attribute_values={"img": {"loading": "lazy"}} if "img" in tags else None,
        link_rel=None,
        strip_comments=not comments,
    )
    return Markup(cleaned)


@cache
def _renderer() -> MarkdownIt:
    # Formulas are written as blocks; printed text between two dollar signs is more likely a price.
    formula = Markup("<code>{}</code>")
    renderer = MarkdownIt("commonmark", {"html": True})
    renderer.use(dollarmath_plugin, renderer=lambda content, options: str(formula.format(content.strip())))
    renderer.disable("math_inline")
    renderer.core.ruler.push("lower_headings", _lower_headings)
    return renderer


def _lower_headings(state: object) -> None:
    for token in state.tokens:  # type: ignore[attr-defined]
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + _HEADINGS)}"
