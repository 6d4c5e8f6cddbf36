"""Pages of a corpus, in an order."""

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
import pyarrow as pa
from PIL import Image

from kopub.api.rows import Picture, Step, TableName, numbers_array, table_name
from kopub.api.sources.source import Place
from kopub.errors import KopubError, counted, did_you_mean
from kopub.pages.page import decode
from kopub.recognition.content import main_script
from kopub.states import State, count_states
from kopub.texts.markup import defuse
from kopub.texts.regions import Region
from kopub.texts.text_quality import DOUBTFUL

if TYPE_CHECKING:
    import pandas as pd

    from kopub.api.corpus import Corpus
    from kopub.api.documents import Document
    from kopub.api.rows import Facts
    from kopub.api.sources.source import Source
    from kopub.pages.page_reader import Origin
    from kopub.pages.upright import UprightTransform


class NoSuchPage(KopubError, KeyError):
    """An id that no page or document of the corpus has."""

    def __str__(self) -> str:
        # KeyError's own would put the line in quotes.
        return KopubError.__str__(self)


class Page:
    """One page of a corpus.

    Values in the catalogue are in memory; all others are read at their first use and kept. Properties raise
    `KopubError`, one line, if a table is damaged or a picture is not available.
    """

    def __init__(self, corpus: "Corpus", source: "Source", at: int, place: Place) -> None:
        self._corpus, self._source, self._at, self._place = corpus, source, at, place

    def __repr__(self) -> str:
        return f"<kopub.Page {self.id!r} {self.state.value}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Page) and (self._source, self.id) == (other._source, other.id)

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        """Unique in the corpus."""
        return self._place.page_id

    @property
    def shard(self) -> str:
        """The shard the page is in: a partition of every asset."""
        return self._place.shard

    @property
    def row(self) -> int:
        """Number of the page in its shard, from 0."""
        return self._place.row

    @property
    def number(self) -> int | None:
        """Number of the page in its document, from 1; None if unknown."""
        return self._corpus.value("page_no", self._at)

    @property
    def state(self) -> State:
        """Return the state of the page over all tables that were made."""
        return State(self._corpus.value("state", self._at))

    @property
    def doubt(self) -> float | None:
        """Return how wrong the text looks, from 0 to 1.

        1 means surely wrong; None as long as there is no text.
        """
        return self._corpus.value("doubt", self._at)

    @property
    def document(self) -> "Document":
        """The document of the page."""
        return self._corpus.document_of(self._at)

    @property
    def previous(self) -> "Page | None":
        """The page before it in its document."""
        return self._corpus.neighbour(self._at, -1)

    @property
    def next(self) -> "Page | None":
        """The page after it in its document."""
        return self._corpus.neighbour(self._at, 1)

    @property
    def width(self) -> int | None:
        """Pixels of the upright page; None for one that cannot be decoded."""
        return self._facts.width

    @property
    def height(self) -> int | None:
        """Pixels of the upright page; None for one that cannot be decoded."""
        return self._facts.height

    @property
    def sha256(self) -> str | None:
        """Return the SHA-256 of the encoded image in the source."""
        return self._facts.sha256

    @property
    def license(self) -> str | None:
        """The licence, in the words of the source."""
        return self._facts.license

    @property
    def source(self) -> str | None:
        """Name of the file that contained the page."""
        return self._facts.source

    @cached_property
    def origin(self) -> "Origin | None":
        """The file that the page comes from; None if a release does not say."""
        return self._source.origin(self._place)

    @property
    def reason(self) -> str | None:
        """Return the asset in which the state is not ok, and why."""
        return self._facts.reason

    @property
    def states(self) -> Mapping[str, State]:
        """The state in each table that has been made, by asset."""
        return self._facts.states

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return the reasons to doubt the text, the most certain first."""
        return self._facts.doubts

    @property
    def text(self) -> str:
        """The text in reading order, without markup; empty if nothing was read."""
        return self._texts[0]

    @property
    def script(self) -> str | None:
        """The script of most letters, such as HANGUL; None without letters."""
        return main_script(self.text)

    @property
    def markdown(self) -> str:
        """The page as markdown, with links to its pictures; empty if nothing was read."""
        return defuse(self._texts[1])

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The regions in reading order, each with its reading."""
        return self._source.regions(self._place)

    def to_dict(self) -> dict[str, Any]:
        """Return the page with its regions as JSON values, as `kopub read --json` does."""
        return {
            "page_id": self.id,
            "page_no": self.number,
            "width": self.width,
            "height": self.height,
            "state": self.state,
            "reason": self.reason,
            "doubt": self.doubt,
            "doubts": list(self.doubts),
            "regions": [region.to_dict() for region in self.regions],
            "markdown": self.markdown,
        }

    @cached_property
    def vectors(self) -> Mapping[str, np.ndarray]:
        """The vectors `text` and `image`: float16 of shape (dim,) and norm 1.

        A vector that was not made has no key.
        """
        return self._source.vectors(self._place)

    @cached_property
    def pictures(self) -> tuple[Picture, ...]:
        """The picture regions, cut out of the page."""
        return self._source.pictures(self._place)

    @cached_property
    def lineage(self) -> tuple[Step, ...]:
        """Return how the row of each table was made, in the order of the tables."""
        return self._source.lineage(self._place)

    @property
    def image_bytes(self) -> bytes:
        """The page's encoded image from the source, verified by SHA-256. Raises `SourceError`."""
        return self._source.image_bytes(self._place)

    @cached_property
    def upright(self) -> "UprightTransform | None":
        """Return the transform that set the page upright, None without one.

        Boxes refer to the upright page.
        """
        return self._source.upright(self._place)

    @property
    def upright_bytes(self) -> bytes:
        """The encoded upright page, to which boxes refer. Raises `SourceError` or `UndecodableImage`."""
        return self.image_bytes if self.upright is None else self.upright.apply_encoded(self.image_bytes)

    # Quoted, because pyright's check of the public types does not follow it otherwise.
    @property
    def image(self) -> "Image.Image":
        """The page, upright, in RGB. Raises `SourceError` or `UndecodableImage`."""
        return Image.fromarray(decode(self.upright_bytes))

    def on_source(self, box: tuple[float, float, float, float]) -> list[tuple[float, float]]:
        """Return the corners of a box of the upright page on the original picture.

        They are in clockwise order from its top left.
        """
        x1, y1, x2, y2 = box
        corners = [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]
        return corners if self.upright is None else self.upright.to_original(corners)

    @cached_property
    def _facts(self) -> "Facts":
        return self._source.facts(self._place)

    @cached_property
    def _texts(self) -> tuple[str, str]:
        return self._source.texts(self._place)


class Pages(Sequence[Page]):
    """Pages of a corpus in an order.

    They are accessed by number, by slice, or by id; `in` takes an id or a page.
    """

    def __init__(self, corpus: "Corpus", positions: np.ndarray) -> None:
        self._corpus, self._positions = corpus, np.ascontiguousarray(positions, np.int64)

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Page: ...
    @overload
    def __getitem__(self, key: slice) -> "Pages": ...
    def __getitem__(self, key: SupportsIndex | str | slice) -> "Page | Pages":
        if isinstance(key, slice):
            return Pages(self._corpus, self._positions[key])
        if isinstance(key, str):
            page = self._corpus.page(key)
            if page not in self:
                raise NoSuchPage(f"the page {key!r} is not among these {len(self):,}")
            return page
        return self._corpus.page_at(int(self._positions[operator.index(key)]))

    def __iter__(self) -> Iterator[Page]:
        return (self._corpus.page_at(at) for at in self._positions.tolist())

    def __contains__(self, item: object) -> bool:
        page_id = item.id if isinstance(item, Page) else item
        at = self._corpus.position(page_id) if isinstance(page_id, str) else None
        return at is not None and at in self._numbers

    def __repr__(self) -> str:
        return f"<kopub.Pages: {counted(len(self), 'page')}>"

    @property
    def catalogue(self) -> pa.Table:
        """page_id, doc_id, page_no, shard, row, state and doubt of these pages."""
        return self._corpus.catalogue.take(numbers_array(self._positions))

    @property
    def ids(self) -> list[str]:
        return self.catalogue["page_id"].to_pylist()

    @property
    def states(self) -> dict[State, int]:
        """Return how many of the pages ended in each state."""
        return {State(state): count for state, count in count_states(self.catalogue["state"].to_pylist()).items()}

    @property
    def in_corpus_order(self) -> "Pages":
        """Return the same pages in the order of the corpus."""
        return Pages(self._corpus, np.sort(self._positions))

    @property
    def doubtful(self) -> "Pages":
        """Return the pages whose text looks wrong, worst first."""
        doubts = self._corpus.doubts[self._positions]
        order = np.argsort(-doubts, kind="stable")
        return Pages(self._corpus, self._positions[order[doubts[order] >= DOUBTFUL]])

    def without(self, ids: Iterable[Page | str]) -> "Pages":
        """Return the pages that are not among `ids`, ids or pages, in order."""
        items = [ids] if isinstance(ids, str) else ids
        left_out = {item.id if isinstance(item, Page) else item for item in items}
        mask = np.array([page_id not in left_out for page_id in self.ids], bool)
        return Pages(self._corpus, self._positions[mask])

    def where(self, state: State | str | Collection[State | str] = (), shard: str | None = None) -> "Pages":
        """Return the pages in one of the states, or in the shard.

        They keep their order. Raises `KopubError` for an unknown state or shard.
        """
        states = set([state] if isinstance(state, str) else state)
        if unknown := states.difference(State):
            raise KopubError(f"there is no state {min(unknown)!r}; there are {', '.join(State)}")
        mask = np.ones(len(self), bool)
        catalogue = self.catalogue
        if states:
            mask &= np.isin(catalogue["state"].to_pylist(), list(states))
        if shard is not None:
            if shard not in self._corpus.shards:
                raise KopubError(f"there is no shard {shard!r}{did_you_mean(shard, self._corpus.shards)}")
            mask &= np.isin(catalogue["shard"].to_pylist(), [shard])
        return Pages(self._corpus, self._positions[mask])

    def to_arrow(self, table: TableName = "pages") -> pa.Table:
        """Return the pages with their texts, or their regions or vectors, a row each.

        Rows are in the order of the pages. All of their data is read. `pages` has no pictures; a page without a vector
        has no row in the table of vectors.
        """
        return self._corpus.table(table_name(table), self.ids)

    def to_pandas(self, table: TableName = "pages") -> "pd.DataFrame":
        """Return `to_arrow` as a DataFrame; boxes and vectors are NumPy arrays."""
        return self.to_arrow(table).to_pandas()

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(self._positions.tolist())
