"""The release protocol: what is published of a shard, and what a target promises."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self

import dagster as dg
import pyarrow as pa
from pydantic import Field


class TableReader(Protocol):
    """Whatever can read the store's tables."""

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class ReleaseInput:
    """The tables of one shard, as the assets left them."""

    raw_pages: pa.Table
    layout_regions: pa.Table
    ocr_results: pa.Table
    parsed_texts: pa.Table
    corpus_image_embeddings: pa.Table
    corpus_text_embeddings: pa.Table
    query_embeddings: pa.Table

    @classmethod
    def read(cls, reader: TableReader, shard: str) -> Self:
        """The tables of `shard`, each field being an asset's name."""
        return cls(**{asset: reader.read(asset, shard) for asset in (field.name for field in fields(cls))})

    @property
    def page_tables(self) -> dict[str, pa.Table]:
        """The tables with one row per page, by asset, in the order the assets are made."""
        return {asset: getattr(self, asset) for asset in PAGE_ASSETS}


PAGE_ASSETS = (
    "raw_pages",
    "layout_regions",
    "ocr_results",
    "parsed_texts",
    "corpus_image_embeddings",
    "corpus_text_embeddings",
)


@dataclass(frozen=True, slots=True)
class ReleaseAbout:
    """What a release says of itself besides what its files tell.

    `made_with` is the recipe of the engine behind each asset, `limits` are sentences a user must
    know, `shards` the keys the corpus has now, `license` the one of pages that state none.
    """

    title: str
    source: str
    profile: str
    shards: Sequence[str]
    made_with: Mapping[str, Mapping[str, Any]]
    limits: Sequence[str] = ()
    languages: Sequence[str] = ("ko", "en")
    license: str | None = None


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    """A published file: path relative to the release, SHA-256 of its bytes, rows (None for the card) and size."""

    path: str
    sha256: str
    rows: int | None
    bytes: int


class ReleaseTarget(dg.ConfigurableResource, ABC):
    """Where releases go, and what they say of themselves."""

    title: str = Field(default="Pages, text and vectors", description="Title of the dataset card.")
    license: str | None = Field(default=None, description="Hub id of the licence of pages that state none.")

    @abstractmethod
    def publish(self, shard: str, tables: ReleaseInput) -> list[ReleasedFile]:
        """Replace the files of one shard and leave all others. Equal tables give equal bytes.

        Raises `StoreError` when a table does not fit the others or a file cannot be written.
        """

    @abstractmethod
    def finish(self, about: ReleaseAbout) -> list[ReleasedFile]:
        """Drop the files of shards that `about` does not name, and write the card from what is there."""
