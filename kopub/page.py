"""A page of a corpus."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from kopub.rows import Picture, Region, Step
from kopub.sources.source import Place
from resources.states import State
from resources.texts.markdown import defused

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from kopub.corpus import Corpus
    from kopub.documents import Document
    from kopub.rows import Facts
    from kopub.sources.source import Source
    from resources.pages.origins import Origin
    from resources.pages.upright.transform import PageTransform


class Page:
    """One page. What the catalogue has is at hand; all else is read when it is asked for, and kept.

    Properties raise `KopubError`, one line, where a table is damaged or a picture cannot be had.
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
        """Number of the page in its document, from 1; None where nobody knows."""
        return self._corpus.value("page_no", self._at)

    @property
    def state(self) -> State:
        """Return the state of the page over all tables that were made."""
        return State(self._corpus.value("state", self._at))

    @property
    def doubt(self) -> float | None:
        """Return how wrong the text looks, from 0 to 1 (surely wrong); None while there is no text."""
        return self._corpus.value("doubt", self._at)

    @property
    def document(self) -> "Document":
        """The document the page is of."""
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
        """As the source states it."""
        return self._facts.license

    @property
    def source(self) -> str | None:
        """Name of the file that the page came in."""
        return self._facts.source

    @cached_property
    def origin(self) -> "Origin | None":
        """The file that the page comes from, as its owner knows it; None where a release does not say."""
        return self._source.origin(self._place)

    @property
    def reason(self) -> str | None:
        """Return why the state is not ok, with its asset."""
        return self._facts.reason

    @property
    def states(self) -> Mapping[str, State]:
        """The state in every table that has been made, by asset."""
        return self._facts.states

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return the reasons to doubt the text, the most certain first."""
        return self._facts.doubts

    @property
    def text(self) -> str:
        """The page in reading order, without markup; empty where nothing was read."""
        return self._texts[0]

    @property
    def markdown(self) -> str:
        """The page as markdown, with links to its pictures; empty where nothing was read."""
        return defused(self._texts[1])

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The regions in reading order, each with what was read from it."""
        return self._source.regions(self._place)

    @cached_property
    def vectors(self) -> Mapping[str, "np.ndarray"]:
        """`text` and `image`, each float16 of shape (dim,) and norm 1; a vector that was not made is no key."""
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
        """The page's encoded image, as the source holds it, proved by its SHA-256. Raises `SourceError`."""
        return self._source.image_bytes(self._place)

    @cached_property
    def upright(self) -> "PageTransform | None":
        """What set the page upright before it was read; None for one that is as it came. Boxes count on the result."""
        return self._source.upright(self._place)

    @property
    def upright_bytes(self) -> bytes:
        """The encoded upright page, on which boxes count. Raises `SourceError` or `UndecodableImage`."""
        return self.image_bytes if self.upright is None else self.upright.apply_encoded(self.image_bytes)

    @property
    def image(self) -> "Image.Image":
        """The page, upright, in RGB. Raises `SourceError` or `UndecodableImage`."""
        from PIL import Image

        from resources.pages.pixels.images import decode

        return Image.fromarray(decode(self.upright_bytes))

    def on_source(self, box: tuple[float, float, float, float]) -> list[tuple[float, float]]:
        """Return the corners of a box of the upright page on the picture as it came, clockwise from its top left."""
        x1, y1, x2, y2 = box
        corners = [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]
        return corners if self.upright is None else self.upright.to_original(corners)

    @cached_property
    def _facts(self) -> "Facts":
        return self._source.facts(self._place)

    @cached_property
    def _texts(self) -> tuple[str, str]:
        return self._source.texts(self._place)
