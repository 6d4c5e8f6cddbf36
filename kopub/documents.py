"""The documents of a corpus."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

from kopub.pages import NoSuchPage, Pages
from kopub.rows import Region
from resources.errors import did_you_mean
from resources.states import State


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
        """How many of its pages ended in each state."""
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
