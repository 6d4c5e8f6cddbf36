"""The embedding assets, and their check."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kopub.config.settings import Resources
from kopub.embedding.base import Embedder, Embedding, PassageEmbedding
from kopub.figures.figure import notes_text
from kopub.fingerprints import CodeVersion
from kopub.pages.corpus import queries_source
from kopub.pages.page import Page
from kopub.states import State
from kopub.store.corpus_tables import PASSAGE_VECTORS, TABLES, Table
from kopub.tables.asset import EngineTable, Metadata, ShardAsset
from kopub.tables.checks import Check, unsound_passage_vectors, unsound_vectors
from kopub.tables.figures import FigureNotes
from kopub.tables.ocr_and_texts import ParsedTexts
from kopub.tables.pages_and_layout import RawPages
from kopub.tables.rows import Row, RowResult, RowSpec, ShardResult, page_rows, picture_inputs

VECTORS_ARE_SOUND = Check(
    "vectors_are_sound", "Every row with something to embed has a vector of the right width and norm 1, without NaN."
)


class EmbeddingTable(EngineTable):
    """An `EngineTable` of the engine of vectors.

    The engine is given texts, unless a subclass says otherwise.
    """

    engine_section: ClassVar[str | None] = "embedding"
    engine: Embedder
    id_of_result: ClassVar[str] = "id"

    def prepare(self) -> None:
        self.engine.prepare_texts()

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[Any]:
        for row in todo:
            yield row.id, row.given


class VectorTable(EmbeddingTable):
    """An `EmbeddingTable` with one vector in each row."""

    checks: ClassVar[tuple[Check, ...]] = (*EngineTable.checks, VECTORS_ARE_SOUND)

    def row(self, spec: RowSpec, result: Embedding) -> RowResult:
        vector = None if result.vector is None else result.vector.astype(np.float16)
        return RowResult(spec.id, {"vector": vector, "state": result.state, "reason": result.reason})

    def problems(self, result: ShardResult) -> Mapping[str, str | None]:
        return {VECTORS_ARE_SOUND.name: unsound_vectors(result.table, self.engine.dim)}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        vectors = table["vector"]
        return {
            "dimensions": table.schema.field("vector").type.list_size,
            "vectors": len(vectors) - vectors.null_count,
        }


class CorpusImageEmbeddings(VectorTable):
    """The vector of every page image: float16 of L2 norm 1, compared by dot product."""

    table: ClassVar[Table] = TABLES.image_vectors
    kinds: ClassVar[frozenset[str]] = frozenset({"image"})
    code_version: ClassVar[CodeVersion] = CodeVersion(
        "corpus_image_embeddings",
        {
            1: "the first release",
            2: "pictures with damaged metadata, greys of 32 bits or a transparent grey are read",
        },
    )
    parents = (RawPages,)

    def prepare(self) -> None:
        self.engine.prepare()

    def typical_seconds(self, megabytes: float) -> float:
        return self.engine.typical_image_seconds

    def rows(self, shard: str) -> Iterator[RowSpec]:
        for page in page_rows(self.store, RawPages.table, shard):
            yield RowSpec.after(page, [self.recipe_hash, *picture_inputs(page)], {"page_id": page["page_id"]}, page)

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[Page]:
        with self.corpus.reader(shard) as source:
            for row in todo:
                yield source.page_of(row.given)

    def results(self, inputs: Iterator[Page]) -> Iterator[Embedding]:
        return self.engine.embed_images(inputs)


class TextTable(EmbeddingTable):
    """An `EmbeddingTable` of the texts of pages.

    A text is what is printed, followed, if `figures.embed_notes` is set, by a model's notes on the figures.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"text"})
    parents = (ParsedTexts, FigureNotes)
    needs: ClassVar[tuple[str, ...]] = ("figures", "notes")

    @property
    def reads(self) -> tuple[type[ShardAsset], ...]:
        return super().reads if self.resources["figures"].embed_notes else (ParsedTexts,)

    def rows(self, shard: str) -> Iterator[RowSpec]:
        notes: dict[str, str] = {}
        if FigureNotes in self.reads:
            pages = self.store.read(FigureNotes.table.name, shard, ["page_id", "notes"]).to_pylist()
            notes = {page["page_id"]: notes_text(page["notes"]) for page in pages}
        for row in self.store.read(ParsedTexts.table.name, shard).to_pylist():
            columns, note = {"page_id": row["page_id"]}, notes.get(row["page_id"])
            if note and row["state"] in (State.OK, State.PARTIAL, State.BLANK):
                # A page that shows nothing but a figure is found by the note on the figure.
                text = f"{row['text']}\n\n{note}" if row["text"] else note
                partial = row["reason"] if row["state"] == State.PARTIAL else None
                yield RowSpec(row["page_id"], [self.recipe_hash, text], columns, text, partial=partial)
            else:
                yield RowSpec.after(row, [self.recipe_hash, row["text"]], columns, row["text"])


class CorpusTextEmbeddings(TextTable, VectorTable):
    """The vector of every page's text: float16 of L2 norm 1.

    It is compared with query vectors by dot product.
    """

    table: ClassVar[Table] = TABLES.text_vectors
    code_version: ClassVar[CodeVersion] = CodeVersion("corpus_text_embeddings", {1: "the first release"})

    def results(self, inputs: Iterator[tuple[str, str]]) -> Iterator[Embedding]:
        return self.engine.embed_texts(inputs)


PASSAGES_ARE_SOUND = Check(
    "passages_are_sound", "Every text that is ok has passages with vectors of the right width and norm 1, without NaN."
)


class PassageEmbeddings(TextTable):
    """The vectors of the passages of every page's text: float16 of L2 norm 1.

    They are compared with questions by meaning, and a page is as near as its nearest passage. They are made if the
    engine of vectors makes them, as `sentence` does.
    """

    table: ClassVar[Table] = PASSAGE_VECTORS
    code_version: ClassVar[CodeVersion] = CodeVersion("passage_embeddings", {1: "the first release"})
    checks: ClassVar[tuple[Check, ...]] = (*EngineTable.checks, PASSAGES_ARE_SOUND)
    width_of: ClassVar[str] = "passage_dim"

    @classmethod
    def off(cls, resources: Resources) -> str | None:
        makes_them = "meaning" in resources["embedding"].queries_match
        return None if makes_them else "embedding.engine makes no vectors of passages"

    @property
    def engine_recipes(self) -> list[dict[str, Any]]:
        return [self.engine.passage_recipe()]

    def typical_seconds(self, megabytes: float) -> float:
        return self.engine.typical_passages_seconds

    def results(self, inputs: Iterator[tuple[str, str]]) -> Iterator[PassageEmbedding]:
        return self.engine.embed_passages(inputs)

    def row(self, spec: RowSpec, result: PassageEmbedding) -> RowResult:
        passages: list[Row] = []
        for passage in result.passages:
            vector = passage.vector.astype(np.float16)
            passages.append({"start": passage.start, "end": passage.end, "vector": vector})
        return RowResult(spec.id, {"passages": passages, "state": result.state, "reason": result.reason})

    def problems(self, result: ShardResult) -> Mapping[str, str | None]:
        return {PASSAGES_ARE_SOUND.name: unsound_passage_vectors(result.table, self.engine.passage_dim)}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        lengths = table["passages"].combine_chunks().value_lengths()
        return {"dimensions": self.engine.passage_dim, "vectors": sum(filter(None, lengths.to_pylist()))}


_log = logging.getLogger(__name__)


class QueryEmbeddings(VectorTable):
    """The vector of every query, with its answer and the pages that hold it.

    A query belongs to the shard of its first ground-truth page. A corpus without queries gets empty tables.
    """

    table: ClassVar[Table] = TABLES.query_vectors
    kinds: ClassVar[frozenset[str]] = frozenset({"query"})
    code_version: ClassVar[CodeVersion] = CodeVersion("query_embeddings", {1: "the first release"})

    def source(self, shard: str) -> str:
        """Return the fingerprint of a shard's own queries as they were indexed."""
        return queries_source(self.corpus.manifest, shard)

    def expected_rows(self, shard: str, rows_now: int | None) -> int:
        return len(self.corpus.queries(shard))

    def rows(self, shard: str) -> Iterator[RowSpec]:
        queries = self.corpus.queries(shard)
        if not queries:
            _log.info("%s has no queries: its table of query vectors is empty", shard)
        for query in queries:
            yield RowSpec(query.query_id, [self.recipe_hash, query.query], asdict(query), query.query)

    def results(self, inputs: Iterator[tuple[str, str]]) -> Iterator[Embedding]:
        return self.engine.embed_queries(inputs)
