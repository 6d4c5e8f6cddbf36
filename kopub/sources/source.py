"""Where a corpus is read from: what a home and a release have in common."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from kopub.rows import Facts, Picture, Region, Step
from kopub.tables import TableName
from resources.pages.origins import Origin
from resources.pages.upright.transform import PageTransform


class Place(NamedTuple):
    """Where a page stands: its shard, its row in that shard, from 0, and its id, which proves the row."""

    shard: str
    row: int
    page_id: str


class Source(Protocol):
    """Reads the rows of pages; threads may share it. Every method raises `StoreError` for a table that is damaged."""

    @property
    def location(self) -> str:
        """The folder, for people."""
        ...

    @property
    def shards(self) -> Sequence[str]:
        """Those that have pages, in corpus order."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What is left out, a sentence each."""
        ...

    def fresh(self) -> "Source":
        """The source as it is now: itself when nothing changed."""
        ...

    def catalogue(self, shard: str) -> pa.Table:
        """page_id, doc_id, page_no, state and doubt of every page of a shard, in its order."""
        ...

    def table(self, shard: str, name: TableName) -> pa.Table | None:
        """The rows of all pages of a shard, in its order; None where no such table has been made."""
        ...

    def facts(self, place: Place) -> Facts: ...

    def origin(self, place: Place) -> Origin | None:
        """The file of a person that a page comes from. Raises `SourceError` when it cannot be had."""
        ...

    def texts(self, place: Place) -> tuple[str, str]:
        """(plain text, markdown); both are empty where nothing was read."""
        ...

    def regions(self, place: Place) -> tuple[Region, ...]: ...

    def vectors(self, place: Place) -> Mapping[str, np.ndarray]:
        """float16 of shape (dim,) by kind, text and image; a page without one lacks the key."""
        ...

    def pictures(self, place: Place) -> tuple[Picture, ...]: ...

    def lineage(self, place: Place) -> tuple[Step, ...]: ...

    def upright(self, place: Place) -> PageTransform | None:
        """What set the page upright; None for one that is as it came, or of a table that does not say."""
        ...

    def image_bytes(self, place: Place) -> bytes:
        """The encoded page, as it came. Raises `SourceError` when it cannot be had."""
        ...
