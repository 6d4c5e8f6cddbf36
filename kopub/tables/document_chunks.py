"""The chunks of documents: a row for each document, in the shard where it begins."""

import pickle
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.log import CorrectionLog
from kopub.documents.chunks import chunk_document
from kopub.documents.document import Document, DocumentPage
from kopub.documents.stream import Assembler
from kopub.documents.structure import structure_document
from kopub.fingerprints import CodeVersion, fingerprint
from kopub.states import LOST, Reason, State, joined
from kopub.store.corpus_tables import DOCUMENT_CHUNKS, Table
from kopub.store.table_source import Entry, FooterCache
from kopub.tables.asset import Metadata, RowTable
from kopub.tables.ocr_and_texts import OcrResults
from kopub.tables.pages_and_layout import LayoutRegions, RawPages
from kopub.tables.provenance import Provenance
from kopub.tables.rows import RowResult, RowSpec

ELSEWHERE = "pages in other shards"
"""The name under which a plan shows a table's inputs from other shards."""
_SECONDS = 0.2
"""Seconds for a document of 100 pages."""


class DocumentChunks(RowTable):
    """The documents that begin in a shard, cut into chunks by their structure.

    Chunks fit a model, and carry their pages and boxes. A document may have pages in other shards: until those are
    read, it is `failed`, and it is made afterwards. This table is made if the profile sets `documents.chunks`.
    """

    table: ClassVar[Table] = DOCUMENT_CHUNKS
    code_version: ClassVar[CodeVersion] = CodeVersion(
        "document_chunks",
        {
            1: "the first release",
            2: "a page that lost all that it shows is lost to its document, not blank",
            3: "a document without chunks that lost a page is partial, not blank; "
            "a chart that was read as a table is cut as one; marks of list entries and formulas count as tokens; "
            "a chunk has the place of a heading that stands alone on its page; "
            "a table of headings alone is cut, and a first row is a heading with the rows that it spans",
            4: "a title keeps a number sign that is printed in it (`C# 언어`)",
            5: "list entries keep their printed signs; a document of one page keeps its head and foot; "
            "tables are joined over pages on evidence alone, and each piece has its caption; "
            "control characters are left out",
            6: "a table goes on over the page past the tables in its cells",
        },
    )
    parents = (RawPages, LayoutRegions, OcrResults)
    needs: ClassVar[tuple[str, ...]] = ("documents",)

    @classmethod
    def off(cls, resources: Any) -> str | None:
        return None if resources["documents"].chunks else "documents.chunks is false"

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"documents.chunk_tokens": self.resources["documents"].chunk_tokens}

    def typical_seconds(self, megabytes: float) -> float:
        return _SECONDS

    def expected_rows(self, shard: str, rows_now: int | None) -> int:
        if rows_now is not None:
            return rows_now
        is_read = shard in self._entries[RawPages.table.name]
        return len(self._beginning_in(shard)) if is_read else super().expected_rows(shard, rows_now)

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        return CorrectionLog(self.store).shard_settings(shard)

    def other_shards(self, shard: str) -> Collection[str]:
        return sorted({other for document in self._beginning_in(shard) for other in document.shards} - {shard})

    def extra_inputs(self, shard: str) -> dict[str, str]:
        """Return what decides the rows besides this shard.

        That is which pages are in other shards, and what was read there; nothing if every document lies in this shard
        alone. A change in another shard makes the table stale, and in it the rows whose pages changed.
        """
        inputs = super().extra_inputs(shard)
        across = [document for document in self._stream.of_shard(shard) if len(document.shards) > 1]
        if not across:
            return inputs
        others = self.other_shards(shard)
        marks = CorrectionLog(self.store).marks(others)
        contents: list[list[str | None]] = []
        for other in others:
            contents.append([other, marks.get(other)])
            for parent in self.parents:
                contents[-1].append(self._content(parent.table.name, other))
        pages: list[list[list[str]]] = []
        for document in across:
            pages.append([[page.page_id, page.shard] for page in document.pages])
        return {**inputs, ELSEWHERE: fingerprint([pages, contents])}

    def provenance(self, shard: str) -> Provenance:
        # A table is made from the other tables as they are now, not as they were when the run began.
        before = vars(self).pop("_entries", {}).get(RawPages.table.name)
        if before != self._entries[RawPages.table.name]:
            vars(self).pop("_stream", None)
        return super().provenance(shard)

    def rows(self, shard: str) -> Iterator[RowSpec]:
        lacking: dict[str, str] = {}
        for other in self.other_shards(shard):
            if why := self._lacking(other):
                lacking[other] = why
        beginning = self._beginning_in(shard)
        complete = [document for document in beginning if lacking.keys().isdisjoint(document.shards)]
        columns: dict[str, dict[str, Any]] = {}
        for document in beginning:
            columns[document.name] = {
                "page_id": document.pages[0].page_id,
                "doc_id": document.doc_id,
                "n_pages": len(document.pages),
            }
        specs: dict[str, RowSpec] = {}
        for document in self._stream.read(chosen=complete):
            own = columns[document.name]
            # All documents of a shard are held until they are cut; compressed, they take a tenth of the memory.
            packed = zlib.compress(pickle.dumps(document), 1)
            spec = RowSpec(own["page_id"], [self.recipe_hash, *map(_content, document.pages)], own, packed)
            incomplete = [page for page in document.pages if page.state in {State.PARTIAL, *LOST}]
            if incomplete:
                form = "{lost} of {count} pages are lost or read in part, first {page}"
                count = len(document.pages)
                reason = Reason(form, lost=len(incomplete), count=count, page=incomplete[0].page_id)
                states = {page.state for page in document.pages}
                if states <= set(LOST):
                    state = State.QUARANTINED if states == {State.QUARANTINED} else State.FAILED
                    spec = replace(spec, predetermined={"chunks": None, "state": state, "reason": reason})
                else:
                    spec = replace(spec, partial=reason)
            specs[document.name] = spec
        for planned in beginning:
            if planned.name in specs:
                yield specs[planned.name]
                continue
            why = joined(lacking[other] for other in planned.shards if other in lacking)
            ended = {"chunks": None, "state": State.FAILED, "reason": why}
            own = columns[planned.name]
            yield RowSpec(own["page_id"], [self.recipe_hash], own, predetermined=ended)

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[RowResult]:
        max_tokens = self.resources["documents"].chunk_tokens
        for spec in todo:
            document: Document = pickle.loads(zlib.decompress(spec.given))
            blocks = structure_document(document).blocks
            chunks = [asdict(chunk) for chunk in chunk_document(document, blocks, max_tokens)]
            # A document that lost pages is not one in which there was nothing to cut.
            ended = {"state": State.OK if chunks or spec.partial else State.BLANK, "reason": None}
            yield RowResult(spec.id, {"chunks": chunks, **ended})

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        chunks = table["chunks"].combine_chunks().flatten()
        return {"chunks": len(chunks), "text": chunks[0]["text"].as_py() if len(chunks) else ""}

    @cached_property
    def _entries(self) -> dict[str, dict[str, Entry]]:
        """The footers of the tables that are read, by asset and shard."""
        footers = FooterCache(self.store)
        return {parent.table.name: footers.tables(parent.table.name) for parent in self.parents}

    @cached_property
    def _stream(self) -> Assembler:
        """The documents of all shards whose pages are known."""
        entries = self._entries[RawPages.table.name]
        return Assembler(CorrectedTables(self.store), [key for key in self.corpus.manifest.keys if key in entries])

    def _beginning_in(self, shard: str) -> list[Document]:
        return [document for document in self._stream.of_shard(shard) if document.pages[0].shard == shard]

    def _content(self, asset: str, shard: str) -> str | None:
        entry = self._entries[asset].get(shard)
        return entry and entry.content

    def _lacking(self, shard: str) -> str | None:
        """Return why the pages of a shard cannot be used, or None if they can."""
        for parent in self.parents:
            entry = self._entries[parent.table.name].get(shard)
            if entry is None:
                return Reason("its pages in {shard} are not read yet", shard=shard)
            for name, content in entry.made_from.items():
                if name in self._entries and self._content(name, shard) != content:
                    form = "{table} of {shard} is of other pages or regions than there are now"
                    return Reason(form, table=parent.table.name, shard=shard)
        return None


def _content(page: DocumentPage) -> list[Any]:
    """Return the parts of a page that decide the chunks of its document."""
    regions = [
        [region.index, region.label, region.box, region.box_2d, region.content, region.state] for region in page.regions
    ]
    return [page.page_id, page.number, page.width, page.height, page.state, regions, sorted(page.pictures)]
