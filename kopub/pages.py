"""Pages of a corpus, in an order."""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np
import pyarrow as pa

from kopub.catalogue import array_of
from kopub.page import Page
from kopub.tables import TableName, known
from resources.errors import KopubError
from resources.states import State, count_states
from resources.texts.text_quality import DOUBTFUL

if TYPE_CHECKING:
    import pandas as pd

    from kopub.corpus import Corpus


class NoSuchPage(KopubError, KeyError):
    """An id that no page or document of the corpus has."""

    def __str__(self) -> str:
        # That of KeyError puts the line in quotes.
        return KopubError.__str__(self)


class Pages(Sequence[Page]):
    """Pages of a corpus in an order: by number, by slice, or by id; `in` takes an id or a page."""

    def __init__(self, corpus: "Corpus", positions: np.ndarray) -> None:
        self._corpus, self._positions = corpus, np.ascontiguousarray(positions, np.int64)

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, key: int | str) -> Page: ...
    @overload
    def __getitem__(self, key: slice) -> "Pages": ...
    def __getitem__(self, key: int | str | slice) -> "Page | Pages":
        if isinstance(key, slice):
            return Pages(self._corpus, self._positions[key])
        if isinstance(key, str):
            page = self._corpus.page(key)
            if page not in self:
                raise NoSuchPage(f"the page {key!r} is not among these {len(self):,}")
            return page
        return self._corpus.page_at(int(self._positions[key]))

    def __iter__(self) -> Iterator[Page]:
        return (self._corpus.page_at(at) for at in self._positions.tolist())

    def __contains__(self, item: object) -> bool:
        page_id = item.id if isinstance(item, Page) else item
        at = self._corpus.position(page_id) if isinstance(page_id, str) else None
        return at is not None and at in self._numbers

    def __repr__(self) -> str:
        return f"<kopub.Pages: {len(self):,} pages>"

    @property
    def catalogue(self) -> pa.Table:
        """page_id, doc_id, page_no, shard, row, state and doubt of these pages."""
        return self._corpus.catalogue.take(array_of(self._positions))

    @property
    def ids(self) -> list[str]:
        return self.catalogue["page_id"].to_pylist()

    @property
    def states(self) -> dict[State, int]:
        """How many of the pages ended in each state."""
        return {State(state): count for state, count in count_states(self.catalogue["state"].to_pylist()).items()}

    @property
    def doubtful(self) -> "Pages":
        """Those whose text looks wrong, worst first."""
        doubts = self._corpus.doubts[self._positions]
        order = np.argsort(-doubts, kind="stable")
        return Pages(self._corpus, self._positions[order[doubts[order] >= DOUBTFUL]])

    def where(self, state: State | str | Collection[State | str] = (), shard: str | None = None) -> "Pages":
        """Those in one of the states, or in the shard; in the same order. Raises `KopubError` for no state."""
        wanted = set([state] if isinstance(state, str) else state)
        if unknown := wanted.difference(State):
            raise KopubError(f"there is no state {min(unknown)!r}; there are {', '.join(State)}")
        kept = np.ones(len(self), bool)
        catalogue = self.catalogue
        if wanted:
            kept &= np.isin(catalogue["state"].to_pylist(), list(wanted))
        if shard is not None:
            kept &= np.isin(catalogue["shard"].to_pylist(), [shard])
        return Pages(self._corpus, self._positions[kept])

    def to_arrow(self, table: TableName = "pages") -> pa.Table:
        """The pages with their texts, their regions, or their vectors: a row each, in the order of the pages.

        Everything of it is read. `pages` has no pictures; a page without a vector is no row of its table.
        """
        return self._corpus.table(known(table), self.ids)

    def to_pandas(self, table: TableName = "pages") -> "pd.DataFrame":
        """`to_arrow` as a DataFrame; boxes and vectors are NumPy arrays."""
        return self.to_arrow(table).to_pandas()

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(self._positions.tolist())
