"""Pages and documents as they are shown in lists."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import kopub
from kopub_web.asked import Asked
from kopub_web.room import Now
from resources.states import LOST, State
from resources.texts.text_quality import DOUBTFUL


@dataclass(frozen=True, slots=True)
class PageCard:
    """A page in a list: its name, its state, its picture's address where it has one, and why it is here.

    `source` is named where the corpus has several.
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
class DocumentCard:
    """A document in a list: its first page under its name, its pages, and how many of them a person should look at."""

    cover: PageCard
    href: str
    pages: int
    calls: int


def page_name(page: kopub.Page, asked: Asked) -> str:
    """The page as people call it: its document and number, or its id."""
    document, number = page.document.id, page.number
    return page.id if number is None or not document else asked.t("page.name", document=document, number=number)


def document_name(document: kopub.Document, asked: Asked) -> str:
    return document.id or asked.t("document.none")


def page_card(page: kopub.Page, asked: Asked, name: str = "", why: str = "", **way: object) -> PageCard:
    """A page that leads to itself, by the `way` on which a person came."""
    # Bytes that cannot be used make no picture.
    has_picture = page.state not in LOST or (page.sha256 is not None and page.width is not None)
    return PageCard(
        page.id,
        name or page_name(page, asked),
        page.state.value,
        (page.doubt or 0) >= DOUBTFUL,
        asked.to.picture(page.id, "thumb") if has_picture else None,
        asked.to.page(page.id, **way),
        why,
        asked.sources.get(page.shard, ""),
    )


def document_cards(documents: Sequence[kopub.Document], asked: Asked) -> list[DocumentCard]:
    cards = []
    for document in documents:
        first = page_card(document.pages[0], asked, document_name(document, asked))
        # The state of the first page would be taken for that of the document.
        cover = replace(first, state=State.OK.value, is_doubtful=False)
        pages = document.pages
        calls = len({*pages.where(state=(State.PARTIAL, *LOST)).ids, *pages.doubtful.ids})
        cards.append(DocumentCard(cover, asked.to.document(document.id), len(document), calls))
    return cards


def counted_lists(now: Now, kinds: Sequence[str]) -> list[tuple[str, int]]:
    """The lists of pages to look at with how many each has."""
    return [(kind, len(now.lists[kind])) for kind in kinds]
