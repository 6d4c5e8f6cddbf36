"""The documents of a corpus."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, overload

from kopub.api.pages import NoSuchPage, Pages
from kopub.documents.chunks import Chunk, chunk_document, estimate_tokens
from kopub.documents.document import Block, DocumentPage, PictureFile
from kopub.documents.document import Document as ReadDocument
from kopub.documents.markdown import document_markdown
from kopub.documents.stream import page_numbers, split_namesakes
from kopub.documents.structure import structure_document
from kopub.documents.tables import DataTable, document_tables
from kopub.errors import KopubError, counted, did_you_mean
from kopub.recognition.regions import crop_path
from kopub.states import State, decisive
from kopub.store.corpus_tables import TABLES
from kopub.texts.markdown import link_target
from kopub.texts.regions import Region


class Document:
    """A document: its id and its pages by number.

    The id is empty for pages that belong to no document.
    """

    def __init__(self, id: str, pages: Pages) -> None:
        self.id = id
        self.pages = pages

    def __repr__(self) -> str:
        return f"<kopub.Document {self.id!r}: {counted(len(self), 'page')}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Document) and self.id == other.id and list(self.pages) == list(other.pages)

    def __hash__(self) -> int:
        return hash(self.id)

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
        """The texts of its pages, separated by blank lines."""
        return _join(page.text for page in self.pages)

    @property
    def markdown(self) -> str:
        """The markdown of its pages, separated by blank lines."""
        return _join(page.markdown for page in self.pages)

    def to_markdown(self, picture: Callable[[str, int], str] | None = None) -> str:
        """Return the document as one text, as exports write it.

        Paragraphs are joined across lines and pages, without running heads. `picture` returns the link target of a
        region's picture, by page id and index of the region; without it, or if it is empty, words stand for a picture.
        """
        texts: list[str] = []
        for of, blocks in self.structured:
            ids = {page.number: page.page_id for page in of.pages}
            linked: list[Block] = []
            for block in blocks:
                if block.picture and picture is not None:
                    path = picture(ids[block.page], block.parts[0].region.index)
                    linked.append(replace(block, picture=replace(block.picture, path=path)))
                else:
                    linked.append(block)
            texts.append(document_markdown(of, linked))
        return _join(texts)

    def to_dict(self) -> dict[str, Any]:
        """Return the pages with their regions as JSON values, as `kopub read --json` prints."""
        return {"document": self.id, "pages": [page.to_dict() for page in self.pages]}

    def chunks(self, max_tokens: int = 512, count_tokens: Callable[[str], int] | None = None) -> Iterator[Chunk]:
        """Yield the text in pieces of at most `max_tokens`, by its structure.

        Each has its headings, pages and boxes. `count_tokens` counts with your model's tokenizer; without it, a quarter
        of the bytes is counted. Raises `KopubError` for less than one token.
        """
        if max_tokens < 1:
            raise KopubError(f"max_tokens is {max_tokens}, and must be at least 1")

        count = count_tokens or estimate_tokens
        return (chunk for of in self.structured for chunk in chunk_document(*of, max_tokens, count))

    @property
    def tables(self) -> list[DataTable]:
        """Return its tables as rows and columns, with caption, pages and boxes.

        Tables that span pages are whole.
        """
        return [table for of in self.structured for table in document_tables(*of)]

    @cached_property
    def structured(self) -> tuple[tuple[ReadDocument, tuple[Block, ...]], ...]:
        """The document as exports see it, without its picture files, and its blocks.

        There are several if documents share one name, or for pages of no document, each of which is its own.
        """
        pages = list(self.pages.in_corpus_order)
        numbered = [(page.id, page.number) for page in pages]
        parts = split_namesakes(numbered).values() if self.id else [[at] for at in range(len(pages))]
        read_from = (TABLES.readings.name, TABLES.regions.name, TABLES.pages.name)
        documents = []
        for part in parts:
            numbers = page_numbers([pages[at].number for at in part])
            read_pages: list[DocumentPage] = []
            for at, number in zip(part, numbers, strict=True):
                page = pages[at]
                # A page is as in the readings, whatever happened to it later.
                ended = decisive({asset: page.states[asset] for asset in read_from if asset in page.states})
                regions: list[Region] = []
                pictures: dict[int, PictureFile] = {}
                for region in page.regions:
                    # State and reason of a region without a reading are those of the page.
                    is_read = region.content is not None
                    regions.append(region if is_read else replace(region, state=None, reason=None))
                    # The markdown links to each picture, so their bytes need not be read.
                    if f"]({link_target(crop_path(page.id, region.index))})" in page.markdown:
                        pictures[region.index] = PictureFile("", 0, 0)
                read_page = DocumentPage(
                    number=number,
                    page_id=page.id,
                    width=page.width or 0,
                    height=page.height or 0,
                    state=State.OK if ended is None else page.states[ended],
                    # The page's own reason begins with the name of a table, and may be that of a later one.
                    reason=ended and next(step.reason for step in page.lineage if step.asset == ended),
                    regions=tuple(regions),
                    pictures=pictures,
                    shard=page.shard,
                )
                read_pages.append(read_page)
            of_document = tuple(sorted(read_pages, key=lambda page: page.number))
            document = ReadDocument(self.id or pages[part[0]].id, self.id, 0, of_document)
            documents.append((document, structure_document(document).blocks))
        return tuple(documents)


class Documents(Sequence[Document]):
    """The documents of a corpus in the order of their first pages.

    They are accessed by number, by slice, or by id.
    """

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
            return list(map(self._document, range(len(self))[key]))
        if isinstance(key, str):
            if key not in self._numbers:
                raise NoSuchPage(f"there is no document {key!r}{did_you_mean(key, self._ids)}")
            key = self._numbers[key]
        return self._document(range(len(self))[key])

    def __iter__(self) -> Iterator[Document]:
        return map(self._document, range(len(self)))

    def __contains__(self, item: object) -> bool:
        return (item.id if isinstance(item, Document) else item) in self._numbers

    def __repr__(self) -> str:
        return f"<kopub.Documents: {counted(len(self), 'document')}>"

    @property
    def ids(self) -> list[str]:
        return list(self._ids)

    def _document(self, at: int) -> Document:
        return Document(self._ids[at], self._pages(at))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {document: at for at, document in enumerate(self._ids)}


def _join(texts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, texts))
