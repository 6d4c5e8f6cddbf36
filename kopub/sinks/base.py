"""The protocol of sinks: vector stores of other programs that hold the corpus's chunks."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import AfterValidator, Field, field_validator

from kopub.engine import Engine, ProfileOnly, missing_modules
from kopub.errors import EngineError, KopubError, StoreError, first_line
from kopub.files import is_url
from kopub.fingerprints import CodeVersion
from kopub.folders import placed
from kopub.states import phrase, with_remedy
from kopub.store.schemas import PLACE

Address = Annotated[str, AfterValidator(lambda url: url if is_url(url) or not url else str(placed(url)))]
"""A URL, or a folder as an absolute path."""
BATCH = 500
"""Most records that are handed to a store at once: 4 MB of vectors of 2,048 numbers."""


def records_schema(dim: int) -> pa.Schema:
    """Return the columns of the records of a sink with vectors of `dim` numbers."""
    return pa.schema(
        [
            ("id", pa.string()),
            ("shard", pa.string()),
            ("doc_id", pa.string()),
            ("page_id", pa.string()),
            ("page", pa.int32()),
            ("bbox_2d", pa.list_(pa.int32())),
            ("places", pa.list_(PLACE)),
            ("headings", pa.list_(pa.string())),
            ("kinds", pa.list_(pa.string())),
            ("text", pa.string()),
            ("made_with", pa.string()),
            ("fingerprint", pa.string()),
            ("vector", pa.list_(pa.float32(), dim)),
        ]
    )


class SinkTable(ABC):
    """The open table of a sink; each method raises whatever the store's library does."""

    @abstractmethod
    def fingerprints(self, shard: str) -> dict[str, str]:
        """Return the fingerprints of all records of a shard by id."""

    @abstractmethod
    def put(self, records: pa.Table) -> None:
        """Add records, or replace those of the same id, and return once they are stored."""

    @abstractmethod
    def remove(self, ids: Sequence[str]) -> None:
        """Remove records, and return once they are gone."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The ids of the records in which a sink and a shard differ."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    removed: tuple[str, ...]

    @classmethod
    def between(cls, stored: Mapping[str, str], wanted: Mapping[str, str]) -> "Changes":
        """Compare the fingerprints of records by id."""
        added: list[str] = []
        replaced: list[str] = []
        for record, fingerprint in wanted.items():
            if record not in stored:
                added.append(record)
            elif stored[record] != fingerprint:
                replaced.append(record)
        return cls(tuple(added), tuple(replaced), tuple(record for record in stored if record not in wanted))

    @property
    def counts(self) -> dict[str, int]:
        return {"added": len(self.added), "replaced": len(self.replaced), "removed": len(self.removed)}

    def apply(self, sink: SinkTable, records: pa.Table) -> None:
        """Bring the changes into a sink, in batches."""
        changed = {*self.added, *self.replaced}
        put = records.filter(pa.array([record in changed for record in records["id"].to_pylist()], pa.bool_()))
        for start in range(0, put.num_rows, BATCH):
            sink.put(put.slice(start, BATCH))
        for start in range(0, len(self.removed), BATCH):
            sink.remove(self.removed[start : start + BATCH])


class Sink(Engine):
    """A vector store of other programs, which holds the corpus's chunks."""

    off: ClassVar[str | None] = None
    """The reason why nothing is stored, or None."""
    package: ClassVar[str] = ""
    """The client library of the store, imported only when it is used."""
    typical_seconds: ClassVar[float] = 0.001
    secrets: ClassVar[str] = "the environment"
    """The place of passwords and keys, which the address of a store must not hold."""

    table: ProfileOnly[str] = Field(
        default="chunks",
        pattern="^[a-z_][a-z0-9_]{0,62}$",
        description="Table or collection of the store, made if it is missing; each corpus has its own.",
    )

    @field_validator("url", check_fields=False)
    @classmethod
    def _without_password(cls, url: str) -> str:
        if urlsplit(url).password or re.search(r"(password|key|token|secret)\s*=", url, re.IGNORECASE):
            # The address is part of the recipe, which tables hold in the clear.
            raise ValueError(phrase("it must hold no password: put that into {secrets}", cls.secrets))
        return url

    @property
    def place(self) -> str:
        """The table with its store, as messages name it; the same wherever the home lies."""
        return f"{self.table} of {self.code_version.bare_name}"

    @abstractmethod
    def open(self, dim: int) -> AbstractContextManager[SinkTable]:
        """Open the table for vectors of `dim` numbers, and make it if it is missing.

        Raises `StoreError` if it holds vectors of another length.
        """

    def lacks(self) -> list[str]:
        missing = missing_modules(self.package)
        finding, remedy = "{names} is not installed", "pip install 'kopub[sinks]'"
        return [with_remedy(phrase(finding, name), remedy) for name in missing]

    def library(self) -> Any:
        """Import the client library. Raises `EngineError` if it is not installed."""
        for line in self.lacks():
            raise EngineError("sinks.engine {engine}: {reason}", self.code_version.bare_name, line)
        return import_module(self.package)

    def require_dim(self, stored: int | None, dim: int) -> None:
        """Raise `StoreError` if the table holds no vectors of length `dim`.

        `stored` is their length, or None if the table is not ours.
        """
        if stored is None:
            raise StoreError("{place} belongs to another program: name another table in sinks.table", self.place)
        if stored != dim:
            form = (
                "{place} holds vectors of {width} numbers, and this profile makes {own}: name another table in "
                "sinks.table, or delete that one"
            )
            raise StoreError(form, self.place, stored, dim)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Turn what the store's library raises into a `StoreError` of one line."""
        try:
            yield
        except KopubError:
            raise
        except Exception as error:  # each library has its own, without a common base
            raise StoreError("{place} cannot be used: {error}", self.place, first_line(error)) from error


class NoSink(Sink):
    """No vector store: chunks get no vectors, and nothing leaves the tables."""

    code_version: ClassVar[CodeVersion] = CodeVersion("sinks.none", {1: "the first release"})
    off: ClassVar[str | None] = "sinks.engine is none"

    def open(self, dim: int) -> AbstractContextManager[SinkTable]:
        raise EngineError(str(self.off))
