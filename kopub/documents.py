"""The documents of a corpus."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

from kopub.pages import NoSuchPage, Pages
from kopub.rows import Region
from resources.errors import did_you_mean
from resources.states import State

if TYPE_CHECKING:
    from resources.documents.chunks import Chunk
    from resources.documents.document import Document as ReadDocument
    from resources.documents.document import DocumentBlock
    from resources.documents.tables import DocumentTable


class Document:
    """A document: its id, which is empty for pages of no document, and its pages by their numbers."""

    def __init__(self, id: str, pages: Pages) -> None:
        self.id = id
        self.pages = pages

    def __repr__(self) -> str:
        return f"<kopub.Document {self.id!r}: {len(self.pages)} pages>"

    def __len__(self) -> int:
        return len(self.pages)

    @cached_property
    def states(self) -> dict[State, int]:
        """Return how many of its pages ended in each state."""
        return self.pages.states

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions of all its pages, page by page."""
        return tuple(region for page in self.pages for region in page.regions)

    @property
    def text(self) -> str:
        """The texts of its pages, a blank line apart."""
        return _joined(page.text for page in self.pages)

    @property
    def markdown(self) -> str:
        """The markdown of its pages, a blank line apart."""
        return _joined(page.markdown for page in self.pages)

    def chunks(self, max_tokens: int = 512, count_tokens: Callable[[str], int] | None = None) -> "Iterator[Chunk]":
        """Return the text in pieces of at most `max_tokens`, by its structure, with headings, pages and boxes.

        `count_tokens` is the tokenizer of your model; without one, a quarter of the bytes are counted.
        """
        from resources.documents.chunks import chunk_document, estimate_tokens

        return chunk_document(*self._structured, max_tokens, count_tokens or estimate_tokens)

    @property
    def tables(self) -> "list[DocumentTable]":
        """Its tables as rows and columns, whole where they go on over pages, with caption, pages and boxes."""
        from resources.documents.tables import document_tables

        return list(document_tables(*self._structured))

    @cached_property
    def _structured(self) -> "tuple[ReadDocument, tuple[DocumentBlock, ...]]":
        """The document as exports see it, without its pictures, and its blocks."""
        from resources.documents.document import Document as ReadDocument
        from resources.documents.document import DocumentPage
        from resources.documents.stream import page_numbers
        from resources.documents.structure import structure_document
        from resources.layout.regions import Task
        from resources.recognition.regions import RegionRecord

        pages = [
            DocumentPage(
                number=number,
                page_id=page.id,
                width=page.width or 0,
                height=page.height or 0,
                state=page.state,
                reason=page.reason,
                regions=tuple(
                    RegionRecord(
                        index=region.index,
                        label=region.label,
                        task=Task(region.task),
                        score=region.score or 0.0,
                        bbox=region.box,
                        bbox_2d=region.box_2d,
                        polygon=region.polygon,
                        content=region.content,
                        state=region.state or page.state,
                        reason=region.reason,
                    )
                    for region in page.regions
                ),
            )
            for page, number in zip(self.pages, page_numbers([page.number for page in self.pages]), strict=True)
        ]
        document = ReadDocument(self.id, self.id, 0, tuple(sorted(pages, key=lambda page: page.number)))
        return document, structure_document(document).blocks


class Documents(Sequence[Document]):
    """The documents of a corpus in the order of their first pages: by number, by slice, or by id."""

    def __init__(self, ids: Sequence[str], pages: Callable[[int], Pages]) -> None:
        self._ids, self._pages = ids, pages

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, key: int | str) -> Document: ...
    @overload
    def __getitem__(self, key: slice) -> list[Document]: ...
    def __getitem__(self, key: int | str | slice) -> Document | list[Document]:
        if isinstance(key, slice):
            return [self._document(at) for at in range(len(self))[key]]
        if isinstance(key, str):
            if key not in self._numbers:
                raise NoSuchPage(f"there is no document {key!r}{did_you_mean(key, self._ids)}")
            key = self._numbers[key]
        return self._document(range(len(self))[key])

    def __iter__(self) -> Iterator[Document]:
        return (self._document(at) for at in range(len(self)))

    def __contains__(self, item: object) -> bool:
        return (item.id if isinstance(item, Document) else item) in self._numbers

    def __repr__(self) -> str:
        return f"<kopub.Documents: {len(self):,} documents>"

    @property
    def ids(self) -> list[str]:
        return list(self._ids)

    def _document(self, at: int) -> Document:
        return Document(self._ids[at], self._pages(at))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {document: at for at, document in enumerate(self._ids)}


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)
