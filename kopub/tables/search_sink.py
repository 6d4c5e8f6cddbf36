"""The chunks of documents with their vectors, and the vector store that follows them."""

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from kopub.config.settings import Resources
from kopub.embedding.base import Embedding
from kopub.errors import StoreError, counted
from kopub.fingerprints import CodeVersion, canonical_json, fingerprint
from kopub.sinks.base import Changes, Sink, records_schema
from kopub.store.corpus_tables import CHUNK_VECTORS, SUNK_CHUNKS, Table
from kopub.store.schemas import SEARCH_SINK
from kopub.store.table_source import FooterCache
from kopub.tables.asset import PublishedShard, RunContext, ShardAsset
from kopub.tables.checks import Check
from kopub.tables.document_chunks import DocumentChunks
from kopub.tables.embeddings import VectorTable
from kopub.tables.progress import watcher
from kopub.tables.provenance import Provenance
from kopub.tables.rows import RowSpec


class ChunkEmbeddings(VectorTable):
    """The vector of every chunk of the documents that begin in a shard.

    It is made from the chunk and the titles above it, as float16 of L2 norm 1, and is compared with query vectors by
    dot product. A chunk that stays the same keeps its vector when others of its document change. The table is made if
    the profile's section `sinks` names an engine.
    """

    table: ClassVar[Table] = CHUNK_VECTORS
    kinds: ClassVar[frozenset[str]] = frozenset({"text"})
    code_version: ClassVar[CodeVersion] = CodeVersion("chunk_embeddings", {1: "the first release"})
    parents = (DocumentChunks,)
    needs: ClassVar[tuple[str, ...]] = ("documents", "sinks")

    @classmethod
    def off(cls, resources: Resources) -> str | None:
        return resources["sinks"].off

    def rows(self, shard: str) -> Iterator[RowSpec]:
        cut_with = self.store.metadata(DocumentChunks.table.name, shard)["made_with"]
        made_with = canonical_json({DocumentChunks.table.name: cut_with, self.name: self.made_with})
        for document in self.store.read(DocumentChunks.table.name, shard).to_pylist():
            alike: Counter[str] = Counter()
            for chunk in document["chunks"] or ():
                content = fingerprint([document["page_id"], chunk["text"], chunk["headings"], chunk["places"]])
                # The pieces of a long table row have one place, and may have one text.
                name = f"{content} {alike[content]}"
                alike[content] += 1
                columns = {
                    "id": str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
                    "doc_id": document["doc_id"],
                    **{column: chunk[column] for column in ("places", "headings", "kinds", "text")},
                    "made_with": made_with,
                }
                text = "\n".join((*chunk["headings"], chunk["text"]))
                yield RowSpec(columns["id"], [self.recipe_hash, text], columns, text)

    def results(self, inputs: Iterator[tuple[str, str]]) -> Iterator[Embedding]:
        return self.engine.embed_texts(inputs)


_PLACES = "places"
"""The key of a table's metadata that lists the stores whose records of the shard are this corpus's."""
HOLDS_THE_CHUNKS = Check("holds_the_chunks", "The vector store holds exactly the shard's chunks that have vectors.")


class SearchSink(ShardAsset):
    """The chunks of a shard in a vector store that other programs search.

    What the store holds is compared with the chunks by their fingerprints, and only what differs is added, replaced
    or removed. The table lists the records, and is written once the store has them: a killed run goes on with what is
    left. Each record has the chunk's document, pages and boxes, and what it was made with.
    """

    table: ClassVar[Table] = SUNK_CHUNKS
    code_version: ClassVar[CodeVersion] = CodeVersion("search_sink", {1: "the first release"})
    parents = (ChunkEmbeddings,)
    engine_section: ClassVar[str | None] = "sinks"
    engine: Sink
    needs: ClassVar[tuple[str, ...]] = ("embedding",)
    checks: ClassVar[tuple[Check, ...]] = (HOLDS_THE_CHUNKS,)

    @classmethod
    def off(cls, resources: Resources) -> str | None:
        return resources["sinks"].off

    def require_possible(self) -> None:
        self.engine.library()

    def make_shard(self, shard: str, run: RunContext) -> PublishedShard:
        with self.store.exclusive(self.name, shard), self.store.fetched_once():
            stored = self.store.find_sound(self.name, shard)
            if stored is not None:
                self.require_not_newer(shard, stored[1].get("made_with", ""))
            stamp = self.provenance(shard)
            records = _records(shard, self.store.read(CHUNK_VECTORS.name, shard))
            wanted = dict(zip(records["id"].to_pylist(), records["fingerprint"].to_pylist(), strict=True))
            with self.engine.in_words(), self.engine.open(records.schema.field("vector").type.list_size) as sink:
                present = sink.fingerprints(shard)
                places = json.loads(stored[1].get(_PLACES, "[]")) if stored is not None else []
                if self.engine.place not in places:
                    if present:
                        form = (
                            "{place} holds {records} of {shard} that this corpus did not put there: name another table "
                            "in sinks.table, or delete that one"
                        )
                        raise StoreError(form, self.engine.place, counted(len(present), "record"), shard)
                    places = [*places, self.engine.place]
                    self._claim(shard, places)
                changes = Changes.between(present, wanted)
                changes.apply(sink, records)
                counts = changes.counts
                computed = sum(counts.values())
                differs = bool(computed) and sink.fingerprints(shard) != wanted
            problem = f"{self.engine.place} was changed by another program meanwhile: run again" if differs else None
            run.problems.note(HOLDS_THE_CHUNKS.name, shard, problem)
            run.problems.stop_at(shard)
            table = records.select(SEARCH_SINK.names).cast(SEARCH_SINK)
            self.store.update(self.name, shard, table, {**stamp.metadata(table), _PLACES: json.dumps(places)})
        watcher().planned(self.name, shard, computed)
        for _ in range(computed):
            watcher().computed(self.name, shard)
        if computed:
            run.log(f"{self.name} {shard}: " + ", ".join(f"{count} {change}" for change, count in counts.items()))
        unchanged = len(wanted) - counts["added"] - counts["replaced"]
        shown = {"dagster/row_count": len(wanted), "computed": computed, "kept": unchanged, **counts}
        return PublishedShard(stamp.recipe, {**shown, "sink": self.engine.place})

    def finish(self, run: RunContext, finished: Mapping[str, PublishedShard]) -> None:
        """Remove the records of shards that left the corpus."""
        listed = FooterCache(self.store).tables(self.name)
        for shard in sorted(shard for shard in listed.keys() - set(self.corpus.manifest.keys) if listed[shard].rows):
            places = json.loads(self.store.metadata(self.name, shard)[_PLACES])
            if self.engine.place not in places:
                continue
            dim = self.resources["embedding"].dim
            with self.store.exclusive(self.name, shard), self.engine.in_words(), self.engine.open(dim) as sink:
                gone = Changes.between(sink.fingerprints(shard), {})
                gone.apply(sink, records_schema(dim).empty_table())
                self._claim(shard, places)
            run.log(f"{self.name} {shard}: {len(gone.removed)} removed, because the shard left the corpus")

    def _claim(self, shard: str, places: Sequence[str]) -> None:
        """Publish an empty table, after which records of the shard in `places` are this corpus's.

        A run that is killed before it lists them can therefore be told from another corpus.
        """
        empty = SEARCH_SINK.empty_table()
        metadata = Provenance("", "", {}, "[]").metadata(empty)
        self.store.update(self.name, shard, empty, {**metadata, _PLACES: json.dumps(places)})


def _records(shard: str, chunks: pa.Table) -> pa.Table:
    """Return the records of all chunks of a shard that have a vector."""
    chunks = chunks.filter(pc.field("vector").is_valid())
    rows = chunks.drop_columns(["vector"]).to_pylist()
    schema = records_schema(chunks.schema.field("vector").type.list_size)
    columns: dict[str, Any] = {"shard": [shard] * len(rows)}
    columns |= {"page_id": [], "page": [], "bbox_2d": [], "fingerprint": []}
    for row in rows:
        for name in ("page_id", "page", "bbox_2d"):
            columns[name].append(row["places"][0][name])
        # The row's own fingerprint stands for its vector, and the id for its text and places.
        columns["fingerprint"].append(fingerprint([row["fingerprint"], row["doc_id"], row["kinds"], row["made_with"]]))
    for name in ("id", "doc_id", "places", "headings", "kinds", "text", "made_with"):
        columns[name] = chunks[name]
    columns["vector"] = chunks["vector"].cast(schema.field("vector").type)
    return pa.table([columns[name] for name in schema.names], schema=schema)
